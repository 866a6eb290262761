// Acceptor: a thread that accepts connections. It goes on whatever the system lacks for a while
// (files, buffers, memory); what waits at the sockets meanwhile waits there.
//
// Thread-safe, but for Start() before Stop().
#ifndef SRU_SERVER_TRANSPORT_ACCEPTOR_H_
#define SRU_SERVER_TRANSPORT_ACCEPTOR_H_

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::server::transport {

class Acceptor {
 public:
  // Runs on the thread and owns `fd`, which does not block.
  using OnConnection = std::function<void(int fd, const sockaddr_storage& address)>;
  // Runs on the thread when the system lacks what accepting needs, so that an open connection can
  // make way.
  using OnFailure = std::function<void()>;

  // Takes over `sockets` (listening_sockets.h). `name` is their address, for the log. kUnavailable
  // if the system has no descriptor for it.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(std::vector<int> sockets,
                                                          std::string name,
                                                          OnConnection on_connection,
                                                          OnFailure on_failure = nullptr);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  void Start();
  // Accepts what waits at the sockets, and closes them. Later calls do nothing.
  void Stop();

  // How often the system refused what accepting needs.
  int64_t num_failures() const { return failures_.load(std::memory_order_relaxed); }

 private:
  Acceptor(std::vector<int> sockets, std::string name, OnConnection on_connection,
           OnFailure on_failure);

  void Run();
  // Accepts what waits at `socket`. False when the system lacks something for it.
  bool Accept(int socket);
  // Counts a failure, and logs the first.
  void NoteFailure(const char* what);

  // Constant from Start() to Stop().
  std::vector<int> sockets_;
  const std::string name_;
  const OnConnection on_connection_;
  const OnFailure on_failure_;  // may be null
  int wake_ = -1;               // an eventfd that wakes Run()
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> failures_{0};
  std::thread thread_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_ACCEPTOR_H_
