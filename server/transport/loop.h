// Loop: a thread with an io_context, on which connections live. Other threads hand it work without
// a lock and without an allocation; what several of them hand over while the loop has not looked
// yet wakes it once.
//
// Turns. Whatever the loop does, it does in a turn. At the end of a turn the loop runs the work
// that was handed over, and then lets each connection that has something to write write it: the
// answers of a batch leave in one write per connection. What calls have put off
// (server/base/turn_work.h) runs in a turn of its own, once the loop has looked at all connections
// that had something to say.
#ifndef SRU_SERVER_TRANSPORT_LOOP_H_
#define SRU_SERVER_TRANSPORT_LOOP_H_

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "server/base/late_wakes.h"
#include "server/base/side_threads.h"
#include "server/base/turn_work.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/connection_table.h"
#include "server/transport/timer_set.h"
#include "server/transport/turn_timer.h"

namespace sru::server::transport {

// Work that any thread may hand to a loop.
class LoopWork : private LateWakes::Link {
 public:
  virtual void RunOnLoop() = 0;

 protected:
  ~LoopWork() = default;

 private:
  friend class Loop;
};

// A Writer writes at the end of a turn.
class Writer {
 public:
  virtual void WriteNow() = 0;

 protected:
  ~Writer() = default;

 private:
  friend class Loop;
  bool is_listed_ = false;
};

// Whose jobs take turns with the jobs of others: an address, or one of its callers.
struct TurnKey {
  // NOLINTNEXTLINE(google-explicit-constructor)
  TurnKey(const AddressKey& of_address, const void* of_caller = nullptr)
      : address(of_address), caller(of_caller) {}
  bool operator<(const TurnKey& other) const {
    return std::tie(address, caller) < std::tie(other.address, other.caller);
  }

  AddressKey address;
  const void* caller;  // tells callers apart, and is not read
};

// What loops tell, on their threads. Each may be null.
struct LoopWatch {
  // How long work waited between its wake-up and its turn, now and then.
  std::function<void(SteadyTime::duration)> on_lag;
  // The processor time of a turn, if it was a long one (turn_timer.h).
  std::function<void(SteadyTime::duration)> on_long_turn;
};

class Loop final : private LateWakes::Taker {
 public:
  // Connections of one address that wait to begin, and its other jobs that wait for their turn, at
  // most.
  static constexpr size_t kMostWaiting = 1024;

  // `most_handshakes` is the limit of handshakes().
  Loop(LoopWatch watch, size_t most_handshakes);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Start();
  // Ends the thread once it has run what it was given before. Not on the loop's thread.
  void Stop();

  // Runs the work on the loop's thread, soon (late_wakes.h). The work must not be handed over again
  // until it runs. Thread-safe.
  void Wake(LoopWork* work) { LateWakes::HandOver(this, work); }
  // The same for rare things. Thread-safe.
  void Post(std::function<void()> job);

  // Begins a connection that has been accepted, in its address' turn. If too many wait before it,
  // it is closed and `refuse` runs instead. Both run on the loop's thread. Thread-safe.
  void TakeIn(AcceptedSocket socket, std::function<void(AcceptedSocket socket)> begin,
              std::function<void(const std::string& peer)> refuse);

  bool IsThisThread() const { return std::this_thread::get_id() == thread_id_.load(); }

  // The connections of all ports that it has, or that are on their way to it. Thread-safe.
  void CountConnection(int change) { connections_.fetch_add(change, std::memory_order_relaxed); }
  int64_t num_connections() const { return connections_.load(std::memory_order_relaxed); }

  // The rest is for the loop's thread.

  // Each handler of the io_context begins with one.
  class Turn {
   public:
    explicit Turn(Loop* loop) : loop_(*loop) { loop_.turn_timer_.Begin(); }
    ~Turn() { loop_.EndTurn(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Loop& loop_;
  };

  boost::asio::io_context& io() { return io_; }
  TimerSet& timers() { return timers_; }
  // The connections of all ports whose TLS handshake has not ended. What a handshake holds is freed
  // on this loop, before the next turn takes more: if loops shared the table, a loop that is not
  // scheduled would keep the memory of those that made way, while another takes more.
  ConnectionTable& handshakes() { return handshakes_; }
  // A connection has, or has no longer, more to be read than a turn allows.
  void NoteBehind(bool is_behind) { behind_ += is_behind ? 1 : -1; }
  // Runs the job in a later turn. The keys whose jobs wait take turns, and between jobs that take
  // long the loop looks at everything else: for what a stranger makes a loop compute, such as a
  // step of a TLS handshake, and for reading on where more than a portion waits.
  void RunInTurn(const TurnKey& key, std::function<void()> job);
  // How many jobs of the key wait.
  size_t NumWaiting(const TurnKey& key) const;
  // Whether a connection that has become readable may be read at once: no job of its key waits, so
  // that it would be the next one to have its turn, and those that became readable before it, since
  // the loop has last looked, have not been read for long. Else it is to be read in its turn.
  bool MayReadNow(const TurnKey& key);
  // Calls WriteNow() at the end of the turn.
  void WriteLater(Writer* writer);
  void Forget(Writer* writer);

  // To read into and to gather what is written; valid until the next use.
  absl::Span<char> read_buffer() { return absl::MakeSpan(read_buffer_); }
  std::vector<char>& write_buffer() { return write_buffer_; }

 private:
  static constexpr size_t kReadBytes = 16 << 10;

  // LateWakes::Taker:
  void Take(LateWakes::Link* newest, LateWakes::Link* oldest) override;

  void Run();
  // Whatever lacks memory meanwhile, the others get their turn.
  void EndTurn() noexcept;
  // Runs turn_work_ after what is ready to run by now.
  void RunTurnWorkLater();
  // Runs jobs_ likewise.
  void RunJobsLater();
  // Runs what has been woken, or its beginning: no more once `end` is past.
  void RunWork(SteadyTime end);
  // False if nobody had something to write.
  bool WriteAll();
  void SetTimer();

  const LoopWatch watch_;
  TurnTimer turn_timer_;
  ConnectionTable handshakes_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keeps_running_;
  boost::asio::steady_timer timer_{io_};
  SteadyTime timer_due_ = SteadyTime::max();  // of timer_
  TimerSet timers_;
  TurnWorkList turn_work_;
  bool runs_turn_work_ = false;  // RunTurnWorkLater() was called
  int behind_ = 0;               // connections that have more to be read
  std::map<TurnKey, std::deque<std::function<void()>>> jobs_;  // of RunInTurn(), none empty
  bool runs_jobs_ = false;                                     // RunJobsLater() was called
  bool reads_ = false;                                         // since the loop has last looked
  SteadyTime reads_until_;                                     // where it does
  TurnKey served_{AddressKey{}};                               // of the job that ran last
  std::vector<Writer*> writers_;
  std::vector<Writer*> writing_;
  std::array<char, kReadBytes> read_buffer_;
  std::vector<char> write_buffer_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_;
  std::atomic<int64_t> connections_{0};

  LateWakes::Link* oldest_work_ =
      nullptr;  // that RunWork() has yet to run, each leading to the next newer one
  // The newest first.
  std::atomic<LateWakes::Link*> work_{nullptr};
  std::atomic<SteadyTime::rep> woken_at_{0};
};

// Loops that ports share, and the threads beside them. Must outlive the ports.
class LoopSet {
 public:
  // TLS handshakes that have not ended, at most, on all loops together. One holds 46 KiB once the
  // server has answered its first message.
  static constexpr size_t kMaxHandshakes = 512;

  // At least one loop.
  LoopSet(int loops, int side_threads, LoopWatch watch = {});
  ~LoopSet();
  LoopSet(const LoopSet&) = delete;
  LoopSet& operator=(const LoopSet&) = delete;

  const std::vector<std::unique_ptr<Loop>>& loops() const { return loops_; }
  // The index of the loop that has the fewest connections.
  size_t Least() const;
  SideThreads& side() { return side_; }
  // Runs `run(i)` for each loops()[i] in a turn of its own, and waits for that. What a loop queued
  // in turns before the last one has run by then. Not on a loop's thread.
  void RunOnEach(const std::function<void(size_t i)>& run) const;

 private:
  std::vector<std::unique_ptr<Loop>> loops_;
  SideThreads side_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_LOOP_H_
