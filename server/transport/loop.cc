#include "server/transport/loop.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "base/mutex.h"
#include "server/base/cores.h"

namespace sru::server::transport {
namespace {

namespace asio = boost::asio;

// Jobs of RunInTurn() run one after the other for this long: a step of a handshake takes as long,
// the end of one that was given up does not.
constexpr std::chrono::microseconds kJobsTime(100);
// For so long the connections that are readable are read one after the other: one that becomes
// readable meanwhile is not seen.
constexpr std::chrono::microseconds kReadTime(200);
// A turn whose end has taken so long leaves what it has given itself to do to a later one. The next
// part of an answer is such work.
constexpr std::chrono::microseconds kEndTime(200);

class Job final : public LoopWork {
 public:
  explicit Job(std::function<void()> run) : run_(std::move(run)) {}
  void RunOnLoop() override {
    const std::unique_ptr<Job> self(this);
    run_();
  }

 private:
  std::function<void()> run_;
};

}  // namespace

Loop::Loop(LoopWatch watch, size_t most_handshakes)
    : watch_(std::move(watch)),
      handshakes_(most_handshakes, /*keeps_calls=*/true),
      keeps_running_(io_.get_executor()) {}

Loop::~Loop() { Stop(); }

void Loop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Loop::Stop() {
  if (!thread_.joinable()) return;
  Post([this] {
    keeps_running_.reset();
    io_.stop();
  });
  thread_.join();
  while (oldest_work_ != nullptr || work_.load() != nullptr) RunWork(SteadyTime::max());
}

void Loop::Run() {
  NameThisThread("sru_loop");
  TakeShortSlices();
  thread_id_ = std::this_thread::get_id();
  turn_work_.SetForThisThread();
  // OpenSSL writes to sockets that may be closed.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (!io_.stopped()) {
    // Only a lack of memory throws here. What it concerned is left to its deadline.
    try {
      io_.run();
    } catch (const std::exception&) {
    }
  }
}

void Loop::Take(LateWakes::Link* newest, LateWakes::Link* oldest) {
  LateWakes::Link* before = work_.load(std::memory_order_relaxed);
  do {
    oldest->older = before;
  } while (!work_.compare_exchange_weak(before, newest, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  // Who was there before has woken the loop, and the loop's own thread looks at the end of its
  // turn.
  if (before != nullptr || IsThisThread()) return;
  woken_at_.store(ClockNow().time_since_epoch().count(), std::memory_order_relaxed);
  asio::post(io_, [this] {
    Turn turn(this);
    const SteadyTime woken(SteadyTime::duration(woken_at_.exchange(0, std::memory_order_relaxed)));
    if (woken != SteadyTime() && watch_.on_lag != nullptr) watch_.on_lag(ClockNow() - woken);
  });
}

void Loop::Post(std::function<void()> job) { Wake(new Job(std::move(job))); }

void Loop::RunWork(SteadyTime end) {
  if (oldest_work_ == nullptr) {
    LateWakes::Link* newest = work_.exchange(nullptr, std::memory_order_acq_rel);
    while (newest != nullptr) {  // turns the chain round
      LateWakes::Link* const older = std::exchange(newest->older, oldest_work_);
      oldest_work_ = std::exchange(newest, older);
    }
  }
  while (oldest_work_ != nullptr) {
    LateWakes::Link* const link = oldest_work_;
    oldest_work_ = link->older;
    static_cast<LoopWork*>(link)->RunOnLoop();
    if (ClockNow() >= end) return;
  }
}

bool Loop::WriteAll() {
  if (writing_.empty()) writing_.swap(writers_);
  if (writing_.empty()) return false;
  while (!writing_.empty()) {
    Writer* const writer = writing_.back();
    writing_.pop_back();
    if (writer == nullptr) continue;
    writer->is_listed_ = false;
    writer->WriteNow();
  }
  return true;
}

void Loop::EndTurn() noexcept {
  const SteadyTime end = ClockNow() + kEndTime;
  bool may_be_urgent = !turn_work_.empty();
  for (;;) {
    // What throws has been taken off its list before.
    try {
      if (std::exchange(may_be_urgent, false)) turn_work_.RunUrgent();
      RunWork(end);
      if (WriteAll() || oldest_work_ != nullptr || work_.load() != nullptr) {
        if (ClockNow() < end) continue;
        const TurnKey rest = AddressKey{};
        if (NumWaiting(rest) == 0) RunInTurn(rest, [] {});
      }
      RunTurnWorkLater();
      RunJobsLater();
      SetTimer();
      const auto used = turn_timer_.End();
      if (used.has_value() && watch_.on_long_turn != nullptr) watch_.on_long_turn(*used);
      return;
    } catch (const std::exception&) {
    }
  }
}

void Loop::RunTurnWorkLater() {
  if (turn_work_.empty() || runs_turn_work_) return;
  asio::post(io_, [this] {
    Turn turn(this);
    runs_turn_work_ = false;
    turn_work_.RunAll(/*in_time=*/behind_ == 0);
  });
  runs_turn_work_ = true;  // not if there was no memory
}

void Loop::RunInTurn(const TurnKey& key, std::function<void()> job) {
  const auto found = jobs_.find(key);
  if (found != jobs_.end()) return found->second.push_back(std::move(job));
  std::deque<std::function<void()>>
      jobs;  // has its job before it is listed: none that is listed may be empty
  jobs.push_back(std::move(job));
  jobs_.emplace(key, std::move(jobs));
}

bool Loop::MayReadNow(const TurnKey& key) {
  if (NumWaiting(key) > 0) return false;
  if (reads_) return ClockNow() < reads_until_;
  asio::post(io_, [this] { reads_ = false; });  // runs once the loop has looked again
  reads_ = true;
  reads_until_ = ClockNow() + kReadTime;
  return true;
}

void Loop::TakeIn(AcceptedSocket socket, std::function<void(AcceptedSocket socket)> begin,
                  std::function<void(const std::string& peer)> refuse) {
  Post([this, shared = std::make_shared<AcceptedSocket>(std::move(socket)),
        begin = std::move(begin), refuse = std::move(refuse)]() mutable {
    const AddressKey address = shared->key();
    if (NumWaiting(address) >= kMostWaiting) return refuse(shared->peer());
    RunInTurn(address, [shared = std::move(shared), begin = std::move(begin)] {
      begin(std::move(*shared));
    });
  });
}

size_t Loop::NumWaiting(const TurnKey& key) const {
  const auto found = jobs_.find(key);
  return found == jobs_.end() ? 0 : found->second.size();
}

void Loop::RunJobsLater() {
  if (jobs_.empty() || runs_jobs_) return;
  asio::post(io_, [this] {
    Turn turn(this);
    runs_jobs_ = false;
    const SteadyTime end = ClockNow() + kJobsTime;
    do {
      auto next = jobs_.upper_bound(served_);
      if (next == jobs_.end()) next = jobs_.begin();
      served_ = next->first;
      const std::function<void()> job = std::move(next->second.front());
      next->second.pop_front();
      if (next->second.empty()) jobs_.erase(next);
      job();
    } while (!jobs_.empty() && ClockNow() < end);
    // Another thread that has something for this core waits no longer than connections here do.
    if (!jobs_.empty()) std::this_thread::yield();
  });
  runs_jobs_ = true;
}

void Loop::WriteLater(Writer* writer) {
  if (std::exchange(writer->is_listed_, true)) return;
  writers_.push_back(writer);
}

void Loop::Forget(Writer* writer) {
  writer->is_listed_ = false;
  writers_.erase(std::remove(writers_.begin(), writers_.end(), writer), writers_.end());
  std::replace(writing_.begin(), writing_.end(), writer, static_cast<Writer*>(nullptr));
}

void Loop::SetTimer() {
  const SteadyTime next = timers_.next();
  if (next >= timer_due_) return;  // at worst it comes for nothing
  timer_due_ = next;
  timer_.expires_at(next);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;  // set anew
    Turn turn(this);
    timer_due_ = SteadyTime::max();
    timers_.RunDue(ClockNow());
  });
}

// LoopSet.

LoopSet::LoopSet(int loops, int side_threads, LoopWatch watch) : side_(side_threads) {
  const auto num_loops = static_cast<size_t>(std::max(1, loops));
  while (loops_.size() < num_loops) {
    loops_.push_back(
        std::make_unique<Loop>(watch, std::max<size_t>(1, kMaxHandshakes / num_loops)));
    loops_.back()->Start();
  }
}

LoopSet::~LoopSet() {
  for (const auto& loop : loops_) loop->Stop();
}

size_t LoopSet::Least() const {
  const auto least = std::min_element(
      loops_.begin(), loops_.end(),
      [](const auto& a, const auto& b) { return a->num_connections() < b->num_connections(); });
  return static_cast<size_t>(least - loops_.begin());
}

void LoopSet::RunOnEach(const std::function<void(size_t i)>& run) const {
  Mutex mutex;
  CondVar changed;
  size_t left = loops_.size();
  for (size_t i = 0; i < loops_.size(); ++i) {
    asio::post(loops_[i]->io(), [&, i] {
      Loop::Turn turn(loops_[i].get());
      run(i);
      MutexLock lock(&mutex);
      if (--left == 0) changed.SignalAll();
    });
  }
  MutexLock lock(&mutex);
  while (left > 0) changed.Wait(&mutex);
}

}  // namespace sru::server::transport
