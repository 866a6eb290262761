#include "server/transport/connection_guard.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/heap.h"
#include "server/base/log.h"

namespace sru::server::transport {
namespace {

constexpr int kLogLinesPerSecond = 10;
// How often memory is looked at while there is too much: what was freed is given back to the system
// before, which takes a while.
constexpr absl::Duration kMemoryInterval = absl::Milliseconds(300);
// Of the connections that are suspicious, one in so many is closed at a look.
constexpr size_t kClosedShare = 4;

// From so many unanswered bytes on a connection is looked at every time.
constexpr int64_t kInterestingBytes = int64_t{64} << 10;

absl::Duration MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

// Ends the connection at once, with what has arrived and not been read: a connection that is only
// shut down can be read until its buffer is empty, which is what costs.
void Abort(int fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  shutdown(fd, SHUT_RDWR);                              // who polls it wakes up
  static_cast<void>(connect(fd, &none, sizeof(none)));  // it may be gone already
}

bool IsSame(int fd, ino_t inode) {
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_ino == inode;
}

}  // namespace

void ConnectionJudge::Note(absl::Duration now, const ConnectionLook& look) {
  const auto [it, added] = connections_.try_emplace(look.id);
  Connection& connection = it->second;
  const int64_t read = std::max<int64_t>(0, look.read - connection.read);
  read_lately_ += static_cast<double>(read);
  if (added) connection.marked_at = now;
  NoteDelivery(now, read, look.delivered - connection.delivered, &connection);
  connection.delivered = look.delivered;
  const bool progress = added || look.read > connection.read;
  if (added) connection.sent_at = now;
  if (look.sent != connection.sent) {
    connection.sent = look.sent;
    connection.sent_at = now;
    connection.read_when_sent = look.read;
  }
  const bool waits = look.waiting > 0;
  if (waits && !connection.waits) {
    connection.waits_since = now;
    connection.read_when_waiting = look.read;
  }
  if (progress || !connection.waits) connection.stuck_since = now;
  connection.waits = waits;
  connection.read = look.read;
  if (waits || look.read - connection.read_when_sent >= kInterestingBytes ||
      connection.unfinished >= kInterestingBytes) {
    of_interest_.insert(look.id);
  } else {
    of_interest_.erase(look.id);
  }
}

void ConnectionJudge::NoteDelivery(absl::Duration now, int64_t read, int64_t delivered,
                                   Connection* connection) {
  unfinished_ -= connection->unfinished;
  // Never negative: headers are counted as larger than they are on the wire, and what was delivered
  // too much is no credit.
  connection->unfinished = std::max<int64_t>(0, connection->unfinished + read - delivered);
  unfinished_ += connection->unfinished;
  // The oldest parts are delivered first, as far as anybody knows.
  connection->unfinished_at_mark = std::max<int64_t>(0, connection->unfinished_at_mark - delivered);
  connection->unfinished_for_long =
      std::max<int64_t>(0, connection->unfinished_for_long - delivered);
  if (now - connection->marked_at >= limits_.unfinished_for) {
    connection->unfinished_for_long = connection->unfinished_at_mark;
    connection->unfinished_at_mark = connection->unfinished;
    connection->marked_at = now;
  }
}

bool ConnectionJudge::IsFullOfParts(const MemoryLook& memory) const {
  return limits_.base_bytes > 0 && memory.held >= limits_.base_bytes + unfinished_ / 2;
}

bool ConnectionJudge::IsStalling(const Connection& connection, absl::Duration now,
                                 bool others_wait) const {
  const absl::Duration for_so_long =
      others_wait ? limits_.stalling_for : limits_.stalling_alone_for;
  const absl::Duration since = std::max(connection.waits_since, connection.sent_at);
  // What a server that is merely busy reads from an upload is followed by a window update.
  return connection.waits && now - since >= for_so_long &&
         connection.read - connection.read_when_sent >= limits_.stalling_bytes &&
         connection.read > connection.read_when_waiting &&
         now - connection.stuck_since < for_so_long;
}

bool ConnectionJudge::IsUnanswered(const Connection& connection, absl::Duration now) const {
  const int64_t unanswered = connection.read - connection.read_when_sent;
  const absl::Duration silence = now - connection.sent_at;
  return (unanswered >= limits_.unanswered_bytes && silence >= limits_.unanswered_for) ||
         (unanswered >= limits_.silent_bytes && silence >= limits_.silent_for);
}

int64_t ConnectionJudge::ExplainedBytes() const {
  const auto read = static_cast<int64_t>(std::min(read_lately_ * 2, 1e15));
  return limits_.base_bytes + limits_.margin_bytes + std::min(limits_.receive_bytes, read);
}

bool ConnectionJudge::IsUnexplained(const MemoryLook& memory) const {
  return memory.held > ExplainedBytes() + memory.inflight;
}

std::vector<ConnectionVerdict> ConnectionJudge::Judge(absl::Duration now,
                                                      absl::Span<const ConnectionLook> looks,
                                                      const std::function<MemoryLook()>& memory) {
  read_lately_ *= std::exp(absl::FDivDuration(judged_at_ - now, limits_.read_lately));
  judged_at_ = now;
  for (const ConnectionLook& look : looks) Note(now, look);
  bool others_wait = false;
  for (const ConnectionLook& look : looks) {
    const Connection& connection = connections_[look.id];
    others_wait |= connection.waits && now - connection.stuck_since >= limits_.stalling_for;
  }
  const bool much_unfinished =
      limits_.receive_bytes > 0 && unfinished_ >= limits_.receive_bytes / 2;
  const bool too_much_unfinished = much_unfinished && unfinished_ >= limits_.receive_bytes / 4 * 3;
  std::vector<ConnectionVerdict> verdicts;
  std::vector<ConnectionVerdict> suspicious;
  std::vector<ConnectionVerdict> unfinished;
  for (const ConnectionLook& look : looks) {
    const Connection& connection = connections_[look.id];
    ConnectionVerdict verdict;
    verdict.id = look.id;
    verdict.unanswered = connection.read - connection.read_when_sent;
    verdict.unfinished = connection.unfinished;
    if (IsUnanswered(connection, now)) {
      verdict.reason = CloseReason::kUnanswered;
      verdicts.push_back(verdict);
      continue;
    }
    if (IsStalling(connection, now, others_wait)) {
      verdict.reason = CloseReason::kStallsOthers;
      verdicts.push_back(verdict);
      continue;
    }
    const int64_t held =
        too_much_unfinished ? connection.unfinished : connection.unfinished_for_long;
    if (much_unfinished && held >= limits_.unfinished_bytes) {
      verdict.reason = CloseReason::kUnfinished;
      unfinished.push_back(verdict);
    }
    if (verdict.unanswered >= limits_.suspicious_bytes &&
        now - connection.sent_at >= limits_.suspicious_for) {
      verdict.reason = CloseReason::kMemory;
      suspicious.push_back(verdict);
    }
  }
  MemoryLook memory_look;
  if (limits_.base_bytes > 0 && !(suspicious.empty() && unfinished.empty())) memory_look = memory();
  if (!IsFullOfParts(memory_look)) unfinished.clear();
  AddLargest(unfinished, &verdicts);
  // What those held explains memory for the moment.
  if (!unfinished.empty() || suspicious.empty() || !IsUnexplained(memory_look)) suspicious.clear();
  std::sort(suspicious.begin(), suspicious.end(),
            [](const ConnectionVerdict& a, const ConnectionVerdict& b) {
              return a.unanswered > b.unanswered;
            });
  suspicious.resize((suspicious.size() + kClosedShare - 1) / kClosedShare);
  verdicts.insert(verdicts.end(), suspicious.begin(), suspicious.end());
  for (const ConnectionVerdict& verdict : verdicts) Forget(verdict.id);
  return verdicts;
}

void ConnectionJudge::AddLargest(std::vector<ConnectionVerdict> unfinished,
                                 std::vector<ConnectionVerdict>* verdicts) const {
  std::sort(unfinished.begin(), unfinished.end(),
            [this](const ConnectionVerdict& a, const ConnectionVerdict& b) {
              const int64_t a_for_long = connections_.at(a.id).unfinished_for_long;
              const int64_t b_for_long = connections_.at(b.id).unfinished_for_long;
              return a_for_long != b_for_long ? a_for_long > b_for_long
                                              : a.unfinished > b.unfinished;
            });
  int64_t left = unfinished_;
  for (const ConnectionVerdict& verdict : unfinished) {
    if (left <= limits_.receive_bytes / 4) break;
    left -= verdict.unfinished;
    verdicts->push_back(verdict);
  }
}

void ConnectionJudge::Forget(uint64_t id) {
  const auto it = connections_.find(id);
  if (it != connections_.end()) {
    unfinished_ -= it->second.unfinished;
    connections_.erase(it);
  }
  of_interest_.erase(id);
}

ConnectionGuard::ConnectionGuard(Options options)
    : options_(std::move(options)),
      judge_(options_.limits),
      log_limit_(kLogLinesPerSecond),
      base_bytes_(options_.limits.base_bytes),
      thread_([this] { Run(); }) {}

ConnectionGuard::~ConnectionGuard() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void ConnectionGuard::Add(int fd, ino_t inode, const std::string& peer) {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = added_.empty();
    added_.push_back({fd, inode, peer});
  }
  if (first) changed_.Signal();
}

void ConnectionGuard::SetBaseBytes(int64_t bytes) {
  MutexLock lock(&mutex_);
  base_bytes_ = bytes;
}

int64_t ConnectionGuard::ResidentBytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long pages = 0;  // NOLINT(google-runtime-int): as scanf wants it
  const int found = std::fscanf(file, "%*s %lld", &pages);
  std::fclose(file);
  return found == 1 ? pages * sysconf(_SC_PAGESIZE) : 0;
}

void ConnectionGuard::Run() {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      // Without a connection there is nothing to look at.
      while (!closed_ && watched_.empty() && added_.empty()) changed_.Wait(&mutex_);
      const absl::Duration end =
          MonotonicNow() + (judge_.is_filling() ? options_.filling_interval : options_.interval);
      for (absl::Duration now = MonotonicNow(); now < end && !closed_; now = MonotonicNow()) {
        changed_.WaitFor(&mutex_, end - now);
      }
      if (closed_) return;
      for (Watched& watched : added_) {
        turn_.push_front(watched.inode);
        watched_[watched.inode] = std::move(watched);
      }
      added_.clear();
      judge_.set_base_bytes(base_bytes_);
    }
    Look(MonotonicNow());
  }
}

void ConnectionGuard::Look(absl::Duration now) {
  std::vector<uint64_t> ids;
  for (const uint64_t id : judge_.of_interest()) {
    if (ids.size() == options_.max_of_interest) break;
    ids.push_back(id);
  }
  for (size_t left = std::min(turn_.size(), options_.max_in_turn); left > 0; --left) {
    const uint64_t id = turn_.front();
    turn_.pop_front();
    if (watched_.count(id) == 0) continue;  // it is gone
    turn_.push_back(id);
    if (judge_.of_interest().count(id) == 0) ids.push_back(id);
  }
  std::vector<ConnectionLook> looks;
  looks.reserve(ids.size());
  for (const uint64_t id : ids) {
    ConnectionLook look;
    const auto it = watched_.find(id);
    if (it != watched_.end() && LookAt(it->second, &look)) {
      looks.push_back(look);
    } else {
      judge_.Forget(id);
      if (it != watched_.end()) watched_.erase(it);
    }
  }
  const auto memory = [&] { return LookAtMemory(now); };
  for (const ConnectionVerdict& verdict : judge_.Judge(now, looks, memory)) {
    const auto it = watched_.find(verdict.id);
    Close(it->second, verdict);
    watched_.erase(it);
  }
}

MemoryLook ConnectionGuard::LookAtMemory(absl::Duration now) {
  MemoryLook look;
  if (now < next_memory_) return look;
  if (options_.inflight_bytes != nullptr) look.inflight = options_.inflight_bytes();
  look.held = ResidentBytes();
  if (look.held <= judge_.ExplainedBytes() + look.inflight) return look;
  // Perhaps the allocator only keeps what was freed.
  next_memory_ = now + kMemoryInterval;
  ReleaseFreeMemory();
  look.held = ResidentBytes();
  return look;
}

bool ConnectionGuard::LookAt(const Watched& watched, ConnectionLook* look) const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  int waiting = 0;
  if (!IsSame(watched.fd, watched.inode) ||
      getsockopt(watched.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received) ||
      ioctl(watched.fd, FIONREAD, &waiting) != 0) {
    return false;
  }
  look->id = watched.inode;
  look->waiting = waiting;
  look->read = static_cast<int64_t>(info.tcpi_bytes_received) - waiting;
  look->sent = static_cast<int64_t>(info.tcpi_bytes_acked);
  look->delivered = look->read;
  if (options_.delivered_bytes != nullptr) {
    look->delivered = options_.delivered_bytes(watched.fd, watched.inode).value_or(look->read);
  }
  return true;
}

void ConnectionGuard::Close(const Watched& watched, const ConnectionVerdict& verdict) {
  // A descriptor of our own keeps the socket what it is while we look and close.
  const int fd = fcntl(watched.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) {
    // Out of files. The time between look and close is short, and no file can be opened in it.
    if (IsSame(watched.fd, watched.inode)) Abort(watched.fd);
  } else {
    const bool same = IsSame(fd, watched.inode);
    if (same) Abort(fd);
    close(fd);
    if (!same) return;
  }
  if (options_.on_closed != nullptr) options_.on_closed(verdict.reason);
  int64_t refused = 0;
  if (!log_limit_.Take(absl::Now(), &refused)) return;
  Log(LogLevel::kWarning, "connection closed",
      {{"reason", CloseReasonName(verdict.reason)},
       {"peer", watched.peer},
       {"unanswered_bytes", verdict.unanswered},
       {"unfinished_bytes", verdict.unfinished},
       {"resident_bytes", ResidentBytes()},
       {"lines_dropped", refused}});
}

}  // namespace sru::server::transport
