#include "server/transport/event_engine.h"

#if SRU_GRPC_IS_CURRENT

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "grpc/event_engine/endpoint_config.h"
#include "grpc/event_engine/slice.h"
#include "grpc/event_engine/slice_buffer.h"
#include "server/base/deferred_work.h"

namespace sru::server::transport {
namespace internal {
namespace {

using grpc_event_engine::experimental::EventEngine;
using grpc_event_engine::experimental::MemoryAllocator;
using grpc_event_engine::experimental::MemoryAllocatorFactory;
using grpc_event_engine::experimental::MemoryRequest;
using grpc_event_engine::experimental::Slice;
using grpc_event_engine::experimental::SliceBuffer;
using Clock = std::chrono::steady_clock;

// As much of a connection is read before others have their turn.
constexpr size_t kReadBytes = 64 << 10;
constexpr int kMaxPieces = 64;  // slices a sendmsg()
// Few, so that the other threads find something to do as well.
constexpr int kMaxEvents = 8;

absl::Status SystemError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::generic_category().message(error)));
}

// A closure of either kind.
class Task {
 public:
  explicit Task(EventEngine::Closure* closure) : closure_(closure) {}
  explicit Task(absl::AnyInvocable<void()> function) : function_(std::move(function)) {}
  void Run() {
    if (closure_ != nullptr) {
      closure_->Run();
    } else {
      function_();
    }
  }

 private:
  EventEngine::Closure* closure_ = nullptr;
  absl::AnyInvocable<void()> function_;
};

// Closures by due time, earliest first: a binary heap whose entries know their place, so that what
// is cancelled, as the deadline of nearly every call is, leaves at once.
class Timers {
 public:
  EventEngine::TaskHandle Add(Clock::time_point due, Task task) {
    uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    Entry& entry = entries_[slot];
    entry.due = due;
    entry.task.emplace(std::move(task));
    entry.place = heap_.size();
    heap_.push_back(slot);
    Up(entry.place);
    return {static_cast<intptr_t>(slot), static_cast<intptr_t>(entry.generation)};
  }

  // Nothing when it has run, is running or was never there.
  std::optional<Task> Remove(EventEngine::TaskHandle handle) {
    const auto slot = static_cast<size_t>(handle.keys[0]);
    if (slot >= entries_.size()) return std::nullopt;
    Entry& entry = entries_[slot];
    if (!entry.task.has_value() || static_cast<intptr_t>(entry.generation) != handle.keys[1]) {
      return std::nullopt;
    }
    return Take(static_cast<uint32_t>(slot));
  }

  std::optional<Task> PopDue(Clock::time_point now) {
    if (heap_.empty() || entries_[heap_.front()].due > now) return std::nullopt;
    return Take(heap_.front());
  }

  bool empty() const { return heap_.empty(); }
  Clock::time_point next() const { return entries_[heap_.front()].due; }

 private:
  struct Entry {
    Clock::time_point due;
    size_t place = 0;
    uint64_t generation = 1;  // never 0, nor negative: no handle is TaskHandle::kInvalid
    std::optional<Task> task;
  };

  Task Take(uint32_t slot) {
    Entry& entry = entries_[slot];
    const size_t place = entry.place;
    const uint32_t last = heap_.back();
    heap_.pop_back();
    if (last != slot) {
      Put(place, last);
      Up(place);
      Down(entries_[last].place);
    }
    Task task = std::move(*entry.task);
    entry.task.reset();
    ++entry.generation;
    free_.push_back(slot);
    return task;
  }

  void Put(size_t place, uint32_t slot) {
    heap_[place] = slot;
    entries_[slot].place = place;
  }

  void Up(size_t place) {
    const uint32_t slot = heap_[place];
    while (place > 0) {
      const size_t parent = (place - 1) / 2;
      if (entries_[heap_[parent]].due <= entries_[slot].due) break;
      Put(place, heap_[parent]);
      place = parent;
    }
    Put(place, slot);
  }

  void Down(size_t place) {
    const uint32_t slot = heap_[place];
    for (;;) {
      size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && entries_[heap_[child + 1]].due < entries_[heap_[child]].due) {
        ++child;
      }
      if (entries_[slot].due <= entries_[heap_[child]].due) break;
      Put(place, heap_[child]);
      place = child;
    }
    Put(place, slot);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> heap_;
  std::vector<uint32_t> free_;
};

}  // namespace

// What a read has got: gRPC's slices refer to it until the last of them is gone.
class ReceivedBytes {
 public:
  // Copies `bytes` behind a header of their own and appends them to `buffer`. False without memory.
  static bool Append(absl::Span<const uint8_t> bytes, MemoryAllocator* allocator,
                     const std::shared_ptr<ReceiveLedger::Account>& account, SliceBuffer* buffer) {
    void* const memory = std::malloc(sizeof(ReceivedBytes) + bytes.size());
    if (memory == nullptr) return false;
    auto* const received = new (memory) ReceivedBytes(
        allocator->MakeReservation(MemoryRequest(bytes.size())), account, bytes.size());
    auto* const data = reinterpret_cast<uint8_t*>(received + 1);
    memcpy(data, bytes.data(), bytes.size());
    buffer->Append(
        Slice(grpc_slice_new_with_user_data(data, bytes.size(), &ReceivedBytes::Free, received)));
    if (account != nullptr) account->Add(static_cast<int64_t>(bytes.size()));
    return true;
  }

 private:
  ReceivedBytes(MemoryAllocator::Reservation reservation,
                std::shared_ptr<ReceiveLedger::Account> account, size_t size)
      : reservation_(std::move(reservation)), account_(std::move(account)), size_(size) {}

  static void Free(void* self) {
    auto* const received = static_cast<ReceivedBytes*>(self);
    if (received->account_ != nullptr) {
      received->account_->Free(static_cast<int64_t>(received->size_));
    }
    received->~ReceivedBytes();
    std::free(self);
  }

  const MemoryAllocator::Reservation reservation_;
  const std::shared_ptr<ReceiveLedger::Account> account_;
  const size_t size_;
};

// A connected socket. Events come from the core; callbacks are run without the mutex.
class EngineConnection : public std::enable_shared_from_this<EngineConnection> {
 public:
  EngineConnection(std::shared_ptr<EngineCore> core, int fd, uint32_t generation,
                   MemoryAllocator allocator, std::shared_ptr<ReceiveLedger::Account> account)
      : core_(std::move(core)),
        fd_(fd),
        generation_(generation),
        account_(std::move(account)),
        allocator_(std::make_shared<MemoryAllocator>(std::move(allocator))) {}

  bool Read(absl::AnyInvocable<void(absl::Status)> on_read, SliceBuffer* buffer);
  bool Write(absl::AnyInvocable<void(absl::Status)> on_writable, SliceBuffer* data);
  // Ends what is pending with an error and closes the socket.
  void Close();
  // Ends the connection at both ends, which gRPC notices as if the peer had done it.
  void Abort();

  void OnEvents(uint32_t events);
  // Sends what Write() left.
  void Flush();
  // Waits for what is pending.
  void Arm();

 private:
  enum class Sent { kAll, kPart, kFailed };
  using ReadBuffer = std::array<uint8_t, kReadBytes>;

  // Reads into `bytes`: how many there are, 0 when the pending read ends with `status`, -1 when
  // there is nothing to read yet.
  ssize_t Receive(ReadBuffer* bytes, absl::Status* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Sent Send(absl::Status* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<EngineCore> core_;
  const int fd_;
  const uint32_t generation_;
  const std::shared_ptr<ReceiveLedger::Account> account_;  // may be null

  Mutex mutex_;
  // Null once closed. Never called with the mutex: when its quota is used up it runs callbacks of
  // gRPC that are waiting, which may write to this very connection or close it.
  std::shared_ptr<MemoryAllocator> allocator_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void(absl::Status)> on_read_ ABSL_GUARDED_BY(mutex_);
  SliceBuffer* read_buffer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::AnyInvocable<void(absl::Status)> on_writable_ ABSL_GUARDED_BY(mutex_);
  SliceBuffer* write_buffer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t write_piece_ ABSL_GUARDED_BY(mutex_) = 0;   // the slice that is sent next,
  size_t write_offset_ ABSL_GUARDED_BY(mutex_) = 0;  // and how much of it has been sent
  bool write_blocked_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

// What a thread does once it is through with what it does now. Callbacks that callbacks ask for are
// the next generation.
struct Later {
  struct Armed {
    std::shared_ptr<EngineConnection> connection;
    uint64_t generation = 0;  // when it was asked for
  };
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<EngineConnection>> to_flush;
  std::deque<Armed> to_arm;
  uint64_t generation = 0;

  bool empty() const { return tasks.empty() && to_flush.empty() && to_arm.empty(); }
};

// A call takes three generations of callbacks from its headers to its end.
constexpr uint64_t kGenerationsBeforeRead = 8;
// After so long others have their turn.
constexpr std::chrono::milliseconds kTurn(1);

// Null on a thread that is neither the engine's nor within a DeferredWork.
thread_local Later* later = nullptr;
thread_local const EngineCore* this_threads_core = nullptr;

// What is there and what comes of it, until `end` or until there is nothing left. Answers are
// collected as long as there are callbacks to run; a connection is read again once the callbacks
// that came of it have run.
void DoLater(Later* work, Clock::time_point end) {
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<EngineConnection>> connections;
  while (!work->empty()) {
    tasks.swap(work->tasks);
    for (Task& task : tasks) task.Run();
    tasks.clear();
    ++work->generation;
    const bool turn_ends = Clock::now() >= end;
    if (work->tasks.empty() || turn_ends) {
      connections.swap(work->to_flush);
      for (const auto& connection : connections) connection->Flush();
      connections.clear();
    }
    const bool idle = work->tasks.empty() && work->to_flush.empty();
    while (!work->to_arm.empty() &&
           (idle || work->to_arm.front().generation + kGenerationsBeforeRead <= work->generation)) {
      work->to_arm.front().connection->Arm();
      work->to_arm.pop_front();
    }
    if (turn_ends) return;
  }
}

class DeferredWorkKeeper final : public DeferredWork::Keeper {
 public:
  static DeferredWorkKeeper* Get() {
    static auto* const keeper = new DeferredWorkKeeper;
    return keeper;
  }

  void Begin() override {
    if (later == nullptr) later = &kept_;
    if (later == &kept_) ++depth_;
  }
  void End() override {
    if (later != &kept_ || --depth_ > 0) return;
    DoLater(&kept_, Clock::time_point::max());
    later = nullptr;
  }

 private:
  static thread_local Later kept_;
  static thread_local int depth_;
};

thread_local Later DeferredWorkKeeper::kept_;
thread_local int DeferredWorkKeeper::depth_ = 0;

}  // namespace

class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  EngineCore()
      : epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        alarm_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    // One thread for each time that they are written to, or go off.
    Add(wake_, EPOLLIN | EPOLLET, kWakeToken);
    Add(alarm_, EPOLLIN | EPOLLET, kAlarmToken);
  }

  ~EngineCore() {
    close(alarm_);
    close(wake_);
    close(epoll_);
  }

  void Start(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([self = shared_from_this()] { self->Loop(); });
    }
  }

  void Stop() {
    stopping_ = true;
    Wake();
    for (std::thread& thread : threads_) {
      if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
      } else {
        thread.join();
      }
    }
    threads_.clear();
  }

  void Run(Task task) {
    if (later != nullptr) {
      later->tasks.push_back(std::move(task));
      return;
    }
    {
      MutexLock lock(&mutex_);
      tasks_.push_back(std::move(task));
      num_tasks_ = tasks_.size();
    }
    // A thread that does not wait looks at num_tasks_ before it does.
    if (waiting_ > 0) Wake();
  }

  EventEngine::TaskHandle RunAfter(EventEngine::Duration when, Task task) {
    const Clock::time_point due = DueTime(when);
    MutexLock lock(&timer_mutex_);
    const EventEngine::TaskHandle handle = timers_.Add(due, std::move(task));
    if (timers_.next() < alarm_time_) SetAlarm(timers_.next());
    return handle;
  }

  bool Cancel(EventEngine::TaskHandle handle) {
    std::optional<Task> task;  // is destroyed without the mutex
    MutexLock lock(&timer_mutex_);
    task = timers_.Remove(handle);
    return task.has_value();
  }

  std::shared_ptr<EngineConnection> AddConnection(int fd, MemoryAllocator allocator,
                                                  std::shared_ptr<ReceiveLedger::Account> account) {
    MutexLock lock(&connections_mutex_);
    if (static_cast<size_t>(fd) >= connections_.size()) connections_.resize(fd + 1);
    Place& place = connections_[fd];
    ++place.generation;
    place.connection = std::make_shared<EngineConnection>(shared_from_this(), fd, place.generation,
                                                          std::move(allocator), std::move(account));
    Add(fd, EPOLLONESHOT, Token(fd, place.generation));
    return place.connection;
  }

  void RemoveConnection(int fd) {
    std::shared_ptr<EngineConnection> removed;
    MutexLock lock(&connections_mutex_);
    removed = std::move(connections_[fd].connection);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  }

  void Arm(int fd, uint32_t generation, uint32_t events) {
    epoll_event event{};
    event.events = events | EPOLLONESHOT;
    event.data.u64 = Token(fd, generation);
    epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  }

 private:
  static constexpr uint64_t kWakeToken = ~uint64_t{0};
  static constexpr uint64_t kAlarmToken = kWakeToken - 1;

  struct Place {
    uint32_t generation = 0;
    std::shared_ptr<EngineConnection> connection;
  };

  static uint64_t Token(int fd, uint32_t generation) {
    return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
  }

  static Clock::time_point DueTime(EventEngine::Duration when) {
    const Clock::time_point now = Clock::now();
    if (when <= EventEngine::Duration::zero()) return now;
    return when >= Clock::time_point::max() - now ? Clock::time_point::max() : now + when;
  }

  void Add(int fd, uint32_t events, uint64_t token) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void Wake() const { eventfd_write(wake_, 1); }

  void SetAlarm(Clock::time_point time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(timer_mutex_) {
    alarm_time_ = time;
    itimerspec when{};
    if (time != Clock::time_point::max()) {
      // Zero would turn it off.
      const auto since_boot = std::max<std::chrono::nanoseconds::rep>(
          1, std::chrono::nanoseconds(time.time_since_epoch()).count());
      when.it_value.tv_sec = since_boot / 1000000000;
      when.it_value.tv_nsec = since_boot % 1000000000;
    }
    timerfd_settime(alarm_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  void RunTimers() {
    const Clock::time_point now = Clock::now();
    MutexLock lock(&timer_mutex_);
    while (std::optional<Task> task = timers_.PopDue(now)) {
      later->tasks.push_back(std::move(*task));
    }
    SetAlarm(timers_.empty() ? Clock::time_point::max() : timers_.next());
  }

  void OnEvent(const epoll_event& event) {
    if (event.data.u64 == kAlarmToken) return RunTimers();
    const auto fd = static_cast<uint32_t>(event.data.u64);
    std::shared_ptr<EngineConnection> connection;
    {
      MutexLock lock(&connections_mutex_);
      const Place& place = connections_[fd];
      if (place.generation == event.data.u64 >> 32) connection = place.connection;
    }
    if (connection != nullptr) connection->OnEvents(event.events);
  }

  // Half of what others have left, so that a thread that is woken next finds some too.
  bool TakeTasks() {
    if (num_tasks_ == 0) return false;
    MutexLock lock(&mutex_);
    const size_t count = (tasks_.size() + 1) / 2;
    std::move(tasks_.begin(), tasks_.begin() + static_cast<ptrdiff_t>(count),
              std::back_inserter(later->tasks));
    tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<ptrdiff_t>(count));
    num_tasks_ = tasks_.size();
    return count > 0;
  }

  void Loop() {
    Later work;
    later = &work;
    this_threads_core = this;
    std::array<epoll_event, kMaxEvents> events;
    for (;;) {
      ++waiting_;
      const bool wait = num_tasks_ == 0 && !stopping_ && work.empty();
      const int count = epoll_wait(epoll_, events.data(), kMaxEvents, wait ? -1 : 0);
      --waiting_;
      bool worked = TakeTasks();
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<size_t>(i)];
        if (event.data.u64 == kWakeToken) continue;
        OnEvent(event);
        worked = true;
      }
      DoLater(&work, Clock::now() + kTurn);
      if (stopping_ && !worked && work.empty()) break;
    }
    Wake();  // the next one
    later = nullptr;
    this_threads_core = nullptr;
  }

  const int epoll_;
  const int wake_;
  const int alarm_;
  std::vector<std::thread> threads_;  // of whoever starts and stops them
  std::atomic<bool> stopping_{false};
  std::atomic<int> waiting_{0};  // threads that wait, or are about to

  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::atomic<size_t> num_tasks_{0};

  Mutex timer_mutex_;
  Timers timers_ ABSL_GUARDED_BY(timer_mutex_);
  Clock::time_point alarm_time_ ABSL_GUARDED_BY(timer_mutex_) = Clock::time_point::max();

  Mutex connections_mutex_;
  std::vector<Place> connections_ ABSL_GUARDED_BY(connections_mutex_);  // by descriptor

 public:
  // Listeners by the number that stands for their port.
  struct ListenerState {
    Mutex mutex;
    EventEngine::Listener::AcceptCallback on_accept ABSL_GUARDED_BY(mutex);
    std::unique_ptr<MemoryAllocatorFactory> allocators ABSL_GUARDED_BY(mutex);
    bool started ABSL_GUARDED_BY(mutex) = false;
  };
  Mutex listeners_mutex;
  std::unordered_map<int, std::shared_ptr<ListenerState>> listeners
      ABSL_GUARDED_BY(listeners_mutex);
  Mutex other_engine_mutex;
  std::shared_ptr<EventEngine> other_engine ABSL_GUARDED_BY(other_engine_mutex);
};

bool EngineConnection::Read(absl::AnyInvocable<void(absl::Status)> on_read, SliceBuffer* buffer) {
  MutexLock lock(&mutex_);
  on_read_ = std::move(on_read);
  read_buffer_ = buffer;
  if (later != nullptr) {
    later->to_arm.push_back({shared_from_this(), later->generation});
  } else {
    ArmLocked();
  }
  return false;
}

bool EngineConnection::Write(absl::AnyInvocable<void(absl::Status)> on_writable,
                             SliceBuffer* data) {
  MutexLock lock(&mutex_);
  write_buffer_ = data;
  write_piece_ = 0;
  write_offset_ = 0;
  write_blocked_ = false;
  if (later != nullptr) {
    on_writable_ = std::move(on_writable);
    later->to_flush.push_back(shared_from_this());
    return false;
  }
  absl::Status status;
  switch (Send(&status)) {
    case Sent::kAll:
      write_buffer_ = nullptr;
      return true;
    case Sent::kPart:
      on_writable_ = std::move(on_writable);
      write_blocked_ = true;
      ArmLocked();
      return false;
    case Sent::kFailed:
      break;
  }
  write_buffer_ = nullptr;
  core_->Run(
      Task([on_writable = std::move(on_writable), status]() mutable { on_writable(status); }));
  return false;
}

void EngineConnection::Flush() {
  absl::AnyInvocable<void(absl::Status)> on_writable;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (closed_ || on_writable_ == nullptr || write_blocked_) return;
    if (Send(&status) == Sent::kPart) {
      write_blocked_ = true;
      ArmLocked();
      return;
    }
    on_writable = std::move(on_writable_);
    on_writable_ = nullptr;
    write_buffer_ = nullptr;
  }
  on_writable(status);
}

void EngineConnection::OnEvents(uint32_t events) {
  static thread_local ReadBuffer bytes;
  absl::AnyInvocable<void(absl::Status)> on_read;
  absl::AnyInvocable<void(absl::Status)> on_writable;
  absl::Status read_status;
  absl::Status write_status;
  SliceBuffer* read_buffer = nullptr;
  std::shared_ptr<MemoryAllocator> allocator;
  ssize_t received = -1;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    const bool broken = (events & (EPOLLHUP | EPOLLERR)) != 0;
    if (write_blocked_ && (broken || (events & EPOLLOUT) != 0) &&
        Send(&write_status) != Sent::kPart) {
      on_writable = std::move(on_writable_);
      on_writable_ = nullptr;
      write_buffer_ = nullptr;
      write_blocked_ = false;
    }
    if (read_buffer_ != nullptr && (broken || (events & EPOLLIN) != 0)) {
      received = Receive(&bytes, &read_status);
    }
    if (received >= 0) {
      on_read = std::move(on_read_);
      on_read_ = nullptr;
      read_buffer = read_buffer_;
      read_buffer_ = nullptr;
      allocator = allocator_;
    }
    ArmLocked();
  }
  if (received > 0) {
    // The buffer is there until `on_read` has been called, even if the endpoint is gone by then.
    if (!ReceivedBytes::Append({bytes.data(), static_cast<size_t>(received)}, allocator.get(),
                               account_, read_buffer)) {
      read_status = absl::ResourceExhaustedError("there is no memory to receive with");
    }
  }
  if (on_writable != nullptr) on_writable(std::move(write_status));
  if (on_read != nullptr) on_read(std::move(read_status));
}

ssize_t EngineConnection::Receive(ReadBuffer* bytes, absl::Status* status) {
  ssize_t count = 0;
  do {
    count = recv(fd_, bytes->data(), bytes->size(), MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count > 0) return count;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return -1;
  *status = count == 0 ? absl::UnavailableError("Socket closed") : SystemError("recv", errno);
  return 0;
}

EngineConnection::Sent EngineConnection::Send(absl::Status* status) {
  while (write_piece_ < write_buffer_->Count()) {
    std::array<iovec, kMaxPieces> pieces;
    size_t count = 0;
    size_t offset = write_offset_;
    for (size_t i = write_piece_; i < write_buffer_->Count() && count < kMaxPieces; ++i) {
      const Slice& slice = (*write_buffer_)[i];
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): sendmsg() does not write.
      pieces[count++] = {const_cast<uint8_t*>(slice.data()) + offset, slice.size() - offset};
      offset = 0;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Sent::kPart;
      *status = SystemError("sendmsg", errno);
      return Sent::kFailed;
    }
    auto left = static_cast<size_t>(sent);
    while (write_piece_ < write_buffer_->Count()) {
      const size_t rest = (*write_buffer_)[write_piece_].size() - write_offset_;
      if (left < rest) {
        write_offset_ += left;
        break;
      }
      left -= rest;
      ++write_piece_;
      write_offset_ = 0;
    }
  }
  return Sent::kAll;
}

void EngineConnection::Arm() {
  MutexLock lock(&mutex_);
  ArmLocked();
}

void EngineConnection::ArmLocked() {
  if (closed_) return;
  const uint32_t events =
      (read_buffer_ != nullptr ? EPOLLIN : 0U) | (write_blocked_ ? EPOLLOUT : 0U);
  if (events != 0) core_->Arm(fd_, generation_, events);
}

void EngineConnection::Abort() {
  MutexLock lock(&mutex_);
  if (!closed_) shutdown(fd_, SHUT_RDWR);
}

void EngineConnection::Close() {
  absl::AnyInvocable<void(absl::Status)> on_read;
  absl::AnyInvocable<void(absl::Status)> on_writable;
  std::shared_ptr<MemoryAllocator> allocator;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    on_read = std::move(on_read_);
    on_read_ = nullptr;
    on_writable = std::move(on_writable_);
    on_writable_ = nullptr;
    read_buffer_ = nullptr;
    write_buffer_ = nullptr;
    allocator = std::move(allocator_);
  }
  core_->RemoveConnection(fd_);
  close(fd_);
  const auto cancel = [this](absl::AnyInvocable<void(absl::Status)> callback) {
    if (callback == nullptr) return;
    core_->Run(Task([callback = std::move(callback)]() mutable {
      callback(absl::CancelledError("The endpoint was closed"));
    }));
  };
  cancel(std::move(on_read));
  cancel(std::move(on_writable));
}

namespace {

EventEngine::ResolvedAddress AddressOf(int fd, int (*get)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (get(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) size = 0;
  size = std::min<socklen_t>(size, sizeof(address));
  return {reinterpret_cast<const sockaddr*>(&address), size};
}

class PollingEndpoint final : public EventEngine::Endpoint {
 public:
  PollingEndpoint(EngineCore* core, int fd, MemoryAllocator allocator,
                  const std::shared_ptr<ReceiveLedger::Account>& account)
      : peer_(AddressOf(fd, getpeername)),
        local_(AddressOf(fd, getsockname)),
        connection_(core->AddConnection(fd, std::move(allocator), account)) {
    if (account == nullptr) return;
    account->set_close([connection = std::weak_ptr<EngineConnection>(connection_)] {
      if (const auto there = connection.lock()) there->Abort();
    });
  }
  ~PollingEndpoint() override { connection_->Close(); }

  bool Read(absl::AnyInvocable<void(absl::Status)> on_read, SliceBuffer* buffer,
            ReadArgs /*args*/) override {
    return connection_->Read(std::move(on_read), buffer);
  }
  bool Write(absl::AnyInvocable<void(absl::Status)> on_writable, SliceBuffer* data,
             WriteArgs /*args*/) override {
    return connection_->Write(std::move(on_writable), data);
  }
  const EventEngine::ResolvedAddress& GetPeerAddress() const override { return peer_; }
  const EventEngine::ResolvedAddress& GetLocalAddress() const override { return local_; }
  std::shared_ptr<TelemetryInfo> GetTelemetryInfo() const override { return nullptr; }

 private:
  const EventEngine::ResolvedAddress peer_;
  const EventEngine::ResolvedAddress local_;
  const std::shared_ptr<EngineConnection> connection_;
};

int PortOf(const EventEngine::ResolvedAddress& address) {
  const sockaddr* any = address.address();
  return ntohs(any->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(any)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(any)->sin_port);
}

class HandoverListener final : public EventEngine::Listener {
 public:
  HandoverListener(std::shared_ptr<EngineCore> core, AcceptCallback on_accept,
                   absl::AnyInvocable<void(absl::Status)> on_shutdown,
                   std::unique_ptr<MemoryAllocatorFactory> allocators)
      : core_(std::move(core)),
        state_(std::make_shared<EngineCore::ListenerState>()),
        on_shutdown_(std::move(on_shutdown)) {
    MutexLock lock(&state_->mutex);
    state_->on_accept = std::move(on_accept);
    state_->allocators = std::move(allocators);
  }

  ~HandoverListener() override {
    {
      MutexLock lock(&core_->listeners_mutex);
      for (const int port : ports_) core_->listeners.erase(port);
    }
    std::unique_ptr<MemoryAllocatorFactory> allocators;
    AcceptCallback on_accept;
    {
      MutexLock lock(&state_->mutex);
      state_->started = false;
      on_accept = std::move(state_->on_accept);
      allocators = std::move(state_->allocators);
    }
    core_->Run(
        Task([on_shutdown = std::move(on_shutdown_)]() mutable { on_shutdown(absl::OkStatus()); }));
  }

  absl::StatusOr<int> Bind(const EventEngine::ResolvedAddress& address) override {
    const int port = PortOf(address);
    MutexLock lock(&core_->listeners_mutex);
    if (!core_->listeners.emplace(port, state_).second) {
      return absl::AlreadyExistsError(absl::StrCat("there is a listener ", port, " already"));
    }
    ports_.push_back(port);
    return port;
  }

  absl::Status Start() override {
    MutexLock lock(&state_->mutex);
    state_->started = true;
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<EngineCore> core_;
  const std::shared_ptr<EngineCore::ListenerState> state_;
  absl::AnyInvocable<void(absl::Status)> on_shutdown_;  // until the destructor runs it
  std::vector<int> ports_ ABSL_GUARDED_BY(core_->listeners_mutex);
};

}  // namespace
}  // namespace internal

using internal::EngineCore;
using internal::Task;

PollingEngine::PollingEngine(const Options& options) : core_(std::make_shared<EngineCore>()) {
  core_->Start(options.threads);
  DeferredWork::SetKeeper(internal::DeferredWorkKeeper::Get());
}

PollingEngine::~PollingEngine() { core_->Stop(); }

std::unique_ptr<PollingEngine::Endpoint> PollingEngine::MakeEndpoint(
    int fd, grpc_event_engine::experimental::MemoryAllocator allocator,
    std::shared_ptr<ReceiveLedger::Account> account) {
  return std::make_unique<internal::PollingEndpoint>(core_.get(), fd, std::move(allocator),
                                                     account);
}

bool PollingEngine::Accept(int port, int fd, std::shared_ptr<ReceiveLedger::Account> account) {
  std::shared_ptr<EngineCore::ListenerState> state;
  {
    MutexLock lock(&core_->listeners_mutex);
    const auto it = core_->listeners.find(port);
    if (it != core_->listeners.end()) state = it->second;
  }
  if (state != nullptr) {
    MutexLock lock(&state->mutex);
    if (state->started) {
      state->on_accept(MakeEndpoint(fd, state->allocators->CreateMemoryAllocator("connection"),
                                    std::move(account)),
                       state->allocators->CreateMemoryAllocator("transport"));
      return true;
    }
  }
  close(fd);
  return false;
}

absl::StatusOr<std::unique_ptr<PollingEngine::Listener>> PollingEngine::CreateListener(
    Listener::AcceptCallback on_accept, absl::AnyInvocable<void(absl::Status)> on_shutdown,
    const grpc_event_engine::experimental::EndpointConfig& /*config*/,
    std::unique_ptr<grpc_event_engine::experimental::MemoryAllocatorFactory>
        memory_allocator_factory) {
  return std::make_unique<internal::HandoverListener>(
      core_, std::move(on_accept), std::move(on_shutdown), std::move(memory_allocator_factory));
}

namespace {

std::shared_ptr<grpc_event_engine::experimental::EventEngine> OtherEngine(EngineCore* core) {
  MutexLock lock(&core->other_engine_mutex);
  if (core->other_engine == nullptr) {
    core->other_engine = grpc_event_engine::experimental::CreateEventEngine();
  }
  return core->other_engine;
}

}  // namespace

PollingEngine::ConnectionHandle PollingEngine::Connect(
    OnConnectCallback on_connect, const ResolvedAddress& address,
    const grpc_event_engine::experimental::EndpointConfig& config,
    grpc_event_engine::experimental::MemoryAllocator allocator, Duration timeout) {
  return OtherEngine(core_.get())
      ->Connect(std::move(on_connect), address, config, std::move(allocator), timeout);
}

bool PollingEngine::CancelConnect(ConnectionHandle handle) {
  return OtherEngine(core_.get())->CancelConnect(handle);
}

bool PollingEngine::IsWorkerThread() { return internal::this_threads_core == core_.get(); }

absl::StatusOr<std::unique_ptr<PollingEngine::DNSResolver>> PollingEngine::GetDNSResolver(
    const DNSResolver::ResolverOptions& options) {
  return OtherEngine(core_.get())->GetDNSResolver(options);
}

void PollingEngine::Run(Closure* closure) { core_->Run(Task(closure)); }

void PollingEngine::Run(absl::AnyInvocable<void()> closure) {
  core_->Run(Task(std::move(closure)));
}

PollingEngine::TaskHandle PollingEngine::RunAfter(Duration when, Closure* closure) {
  return core_->RunAfter(when, Task(closure));
}

PollingEngine::TaskHandle PollingEngine::RunAfter(Duration when,
                                                  absl::AnyInvocable<void()> closure) {
  return core_->RunAfter(when, Task(std::move(closure)));
}

bool PollingEngine::Cancel(TaskHandle handle) { return core_->Cancel(handle); }

}  // namespace sru::server::transport

#endif  // SRU_GRPC_IS_CURRENT
