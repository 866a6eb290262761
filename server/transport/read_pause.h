// ReadPause: lets what arrives on a connection gather for a moment before anybody is woken to read
// it.
//
// A client that is refused because too much arrives usually has more under way, and to read and
// refuse its calls one by one costs several times what it costs to do so for a dozen at once: time
// that the calls which were accepted need. So the service pauses a connection when it refuses a
// call of it for overload; others are not touched. Linux does the work (SO_RCVLOWAT): no thread
// is held up, and data of more than kPauseBytes is read at once.
//
// Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_READ_PAUSE_H_
#define SRU_SERVER_TRANSPORT_READ_PAUSE_H_

#include <thread>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace sru::server {

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

  const absl::Duration length_;
  Mutex mutex_;
  CondVar changed_;
  std::unordered_set<int> paused_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_TRANSPORT_READ_PAUSE_H_
