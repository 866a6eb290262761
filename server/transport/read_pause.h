// ReadPause: lets what arrives on a connection gather for a moment before anybody is woken to read
// it, and what is answered on it before it leaves.
//
// A client that is refused because too much arrives usually has more under way, and to read and
// refuse its calls one by one costs several times what it costs to do so for a dozen at once: time
// that the calls which were accepted need. The same holds for the refusals: sent one by one, each
// would go through the network stack and wake the client by itself. So the service pauses a
// connection when it refuses a call of it for overload; others are not touched. Linux does the work
// (SO_RCVLOWAT, TCP_CORK): no thread is held up, data of more than kPauseBytes is read at once, and
// answers leave at the latest when the pause ends. (What an AnswerGroup holds leaves with the group.)
//
// Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_READ_PAUSE_H_
#define SRU_SERVER_TRANSPORT_READ_PAUSE_H_

#include <thread>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server::transport {

inline constexpr int kPauseBytes = 64 << 10;

class ReadPause {
 public:
  // A connection is paused for at most `length`; 0 = not at all.
  explicit ReadPause(absl::Duration length);
  // Ends all pauses.
  ~ReadPause();
  ReadPause(const ReadPause&) = delete;
  ReadPause& operator=(const ReadPause&) = delete;

  // Nothing happens for -1, for one that is paused already, and for what is no TCP socket: so a
  // descriptor that was closed and given to somebody else meanwhile does no harm, since all that
  // can happen to it is a pause.
  void Start(int socket);

 private:
  void Run();
  void EndAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration length_;
  Mutex mutex_;
  CondVar changed_;
  std::unordered_set<int> paused_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_READ_PAUSE_H_
