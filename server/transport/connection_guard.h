// The last line of defence against connections that only take: it needs nothing of gRPC, whose own
// bounds are missing in old versions and incomplete in new ones.
//
// Whoever calls is answered, and whoever uploads is sent window updates and pings, many times a
// second on a fast connection and every ten seconds on the slowest. Resets of streams without end,
// headers without end and numbers that never become whole have in common that the server reads
// megabytes and sends nothing. So a thread looks at the counters that the kernel keeps of each
// connection, ten times a second, and closes
//
//   memory         while the process holds more memory than explained, by what it held when its
//                  models were loaded, by the calls in flight, and by what has arrived: those that
//                  were sent nothing for a moment while much was read from them, the worst quarter
//                  at each look
//   stalls_others  one whose data waits to be read at every look, which the server reads only
//   slowly
//                  and to which it sends nothing, while data of another connection waits and is not
//                  read at all; and, where no other waits, after eight times as long
//   unanswered     one that was sent nothing while more was read from it than flow control allows
//                  any upload to send
//   unfinished     while parts of messages fill half of what gRPC may hold of messages:
//                  those that have held most of it for a moment, and at three quarters any,
//                  until a quarter is left. gRPC has no such rule: once its quota is used up,
//                  everybody waits.
//
// ConnectionJudge decides, from numbers; ConnectionGuard gets the numbers and closes. What a client
// can do that gets small answers out of the server (SETTINGS, pings) is bounded by memory only.
#ifndef SRU_SERVER_TRANSPORT_CONNECTION_GUARD_H_
#define SRU_SERVER_TRANSPORT_CONNECTION_GUARD_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/base/rate_limit.h"
#include "server/transport/security_metrics.h"

namespace sru::server::transport {

struct GuardLimits {
  // The memory of the process is explained by what it held when its models were loaded and a
  // margin; 0 = it is not known, and any amount is explained.
  int64_t base_bytes = 0;
  int64_t margin_bytes = 0;
  // And by what was read of late, twice, but not more than what gRPC may hold of messages.
  int64_t receive_bytes = 0;
  absl::Duration read_lately = absl::Seconds(30);
  // No upload gets so far without a word from the server: windows grow to twice of what arrives
  // during a round trip, seen were 25 MB on loopback.
  int64_t unanswered_bytes = int64_t{64} << 20;
  absl::Duration unanswered_for = absl::Milliseconds(500);
  // Nor so long: gRPC sends a ping at least every ten seconds while data arrives.
  int64_t silent_bytes = int64_t{1} << 20;
  absl::Duration silent_for = absl::Seconds(15);
  // Of connections that stall others.
  int64_t stalling_bytes = int64_t{128} << 10;
  absl::Duration stalling_for = absl::Milliseconds(500);
  absl::Duration stalling_alone_for = absl::Seconds(4);
  // Of connections that are closed for memory.
  int64_t suspicious_bytes = int64_t{64} << 10;
  absl::Duration suspicious_for = absl::Milliseconds(200);
  // Of connections that are closed for unfinished messages. Nobody else can upload meanwhile, so
  // this is about how long others may wait.
  int64_t unfinished_bytes = int64_t{64} << 10;
  absl::Duration unfinished_for = absl::Milliseconds(300);
};

// What a look finds at a connection. Bytes are those of TCP since the connection began, headers and
// TLS included.
struct ConnectionLook {
  uint64_t id = 0;
  int64_t read = 0;     // by the server
  int64_t waiting = 0;  // arrived and not read
  int64_t sent = 0;     // by the server, and acknowledged: who reads nothing is sent nothing
  // Of what was read: messages that became whole, with their headers.
  int64_t delivered = 0;
};

// Bytes. `inflight` is what is known to be held by calls.
struct MemoryLook {
  int64_t held = 0;
  int64_t inflight = 0;
};

struct ConnectionVerdict {
  uint64_t id = 0;
  CloseReason reason = CloseReason::kMemory;
  int64_t unanswered = 0;  // bytes read since the server last sent something
  int64_t unfinished = 0;  // bytes read that have not become a message
};

// Not thread-safe. Times are counted from any moment, and never go back.
class ConnectionJudge {
 public:
  explicit ConnectionJudge(const GuardLimits& limits) : limits_(limits) {}

  void set_base_bytes(int64_t bytes) { limits_.base_bytes = bytes; }

  // Takes note of `looks`, at connections or at a part of them, and says which of them are to be
  // closed. Those are forgotten. `memory` is asked for when it matters only: at most once, while
  // there are connections that may be closed for it.
  std::vector<ConnectionVerdict> Judge(absl::Duration now, absl::Span<const ConnectionLook> looks,
                                       const std::function<MemoryLook()>& memory);
  void Forget(uint64_t id);

  // What explains the memory of the process, but for calls in flight.
  int64_t ExplainedBytes() const;
  // Whether parts of messages become so many that the next look must not be long in coming.
  bool is_filling() const {
    return limits_.receive_bytes > 0 && unfinished_ >= limits_.receive_bytes / 8;
  }
  // The connections that are to be among the next looks.
  const std::unordered_set<uint64_t>& of_interest() const { return of_interest_; }

 private:
  struct Connection {
    int64_t sent = 0;
    int64_t read = 0;
    // When the server had last sent something, as far as known, and what it had read then.
    absl::Duration sent_at;
    int64_t read_when_sent = 0;
    // Since when data has waited at every look, and what had been read then.
    bool waits = false;
    absl::Duration waits_since;
    int64_t read_when_waiting = 0;
    // Since when nothing of what waits has been read.
    absl::Duration stuck_since;
    // What was read and is not delivered; how much of it has been there since `marked_at`, and how
    // much since a mark that is at least limits_.unfinished_for old.
    int64_t delivered = 0;
    int64_t unfinished = 0;
    int64_t unfinished_at_mark = 0;
    int64_t unfinished_for_long = 0;
    absl::Duration marked_at;
  };

  void Note(absl::Duration now, const ConnectionLook& look);
  void NoteDelivery(absl::Duration now, int64_t read, int64_t delivered, Connection* connection);
  // Whether parts of messages take so much that others are about to wait, and are really there:
  // uploads that were given up are counted here, but take no memory.
  bool IsFullOfParts(const MemoryLook& memory) const;
  // Of the connections that have held unfinished messages for long, those that are to be closed.
  void AddLargest(std::vector<ConnectionVerdict> unfinished,
                  std::vector<ConnectionVerdict>* verdicts) const;
  bool IsUnexplained(const MemoryLook& memory) const;
  bool IsStalling(const Connection& connection, absl::Duration now, bool others_wait) const;
  bool IsUnanswered(const Connection& connection, absl::Duration now) const;

  GuardLimits limits_;
  double read_lately_ = 0;  // bytes, those of limits_.read_lately ago count 1/e
  absl::Duration judged_at_ = -absl::InfiniteDuration();
  std::unordered_map<uint64_t, Connection> connections_;
  int64_t unfinished_ = 0;  // of all connections
  std::unordered_set<uint64_t> of_interest_;
};

// Thread-safe.
class ConnectionGuard {
 public:
  struct Options {
    GuardLimits limits;
    absl::Duration interval = absl::Milliseconds(100);
    absl::Duration filling_interval =
        absl::Milliseconds(20);  // while ConnectionJudge::is_filling()
    // Most connections of one look: those of interest, and some of the others, in turn, so that
    // many idle ones cost next to nothing. 10,000 have all been looked at after four seconds.
    size_t max_of_interest = 1024;
    size_t max_in_turn = 256;
    // What calls are known to hold. Runs on the guard's thread.
    std::function<int64_t()> inflight_bytes;
    // ConnectionLook::delivered; nothing for a connection of which it is not known, of which all is
    // taken to be delivered then. Runs on the guard's thread.
    std::function<std::optional<int64_t>(int fd, ino_t inode)> delivered_bytes;
    // Runs on the guard's thread for every connection that it closed.
    std::function<void(CloseReason)> on_closed;
  };

  explicit ConnectionGuard(Options options);
  // Ends the thread. Connections stay.
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // Watches a connection, until the descriptor has another inode.
  void Add(int fd, ino_t inode, const std::string& peer);

  // Sets limits.base_bytes.
  void SetBaseBytes(int64_t bytes);

  // What the process holds now: its resident memory.
  static int64_t ResidentBytes();

 private:
  struct Watched {
    int fd = -1;
    ino_t inode = 0;
    std::string peer;
  };

  void Run();
  void Look(absl::Duration now);
  bool LookAt(const Watched& watched, ConnectionLook* look) const;
  MemoryLook LookAtMemory(absl::Duration now);
  void Close(const Watched& watched, const ConnectionVerdict& verdict);

  const Options options_;
  // Of the guard's thread.
  ConnectionJudge judge_;
  RateLimit log_limit_;
  std::unordered_map<uint64_t, Watched> watched_;  // by inode
  std::deque<uint64_t> turn_;                      // all of them, in the order of the looks
  absl::Duration next_memory_ = -absl::InfiniteDuration();

  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Watched> added_ ABSL_GUARDED_BY(mutex_);
  int64_t base_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_CONNECTION_GUARD_H_
