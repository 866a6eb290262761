// The listening sockets of a gRPC server, accepted from here and handed to gRPC connection by
// connection. gRPC 1.51 has no bound on connections, and when the process runs out of files once it
// accepts none ever again; here connections over the bound are closed at once and counted, and the
// others go on.
//
//   auto listener = Listener::Open("listen", address, options);
//   (*listener)->AddTo(&builder, credentials);
//   auto server = builder.BuildAndStart();
//   (*listener)->Start();
//   ...
//   (*listener)->Stop();  // before the server shuts down
//
// Thread-safe, but for the order above.
#ifndef SRU_SERVER_TRANSPORT_LISTENER_H_
#define SRU_SERVER_TRANSPORT_LISTENER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/server_builder.h"
#include "server/base/mutex.h"
#include "server/options.h"

namespace sru::server {

class Listener {
 public:
  struct Options {
    int max_connections = 0;  // 0 = what the limit of open files allows
    // Runs on the thread that accepts, for each connection that is closed at once, before it is.
    std::function<void()> on_refused;
  };

  // Binds and listens; "0.0.0.0" takes IPv6 too where the machine has it, as with gRPC. Raises the
  // process' limit of open files as far as it may. kUnavailable names `flag`, the address and why
  // it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(absl::string_view flag,
                                                        const ListenAddress& address,
                                                        Options options);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  void AddTo(grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  void Start();
  // Closes the listening sockets; connections stay. Later calls do nothing.
  void Stop();

  // With the port that is really listened on.
  const ListenAddress& address() const { return address_; }

  // Connections that are open now.
  int64_t num_connections() const;

  // The socket of the connection that gRPC calls `peer` ("ipv4:10.0.0.1:4711"), -1 if there is
  // none. The connection may end at any time and its descriptor may then be another's.
  int FindConnection(const std::string& peer) const;

 private:
  Listener(ListenAddress address, Options options);

  absl::Status Bind(absl::string_view flag);
  void Run();
  // Accepts what waits at `socket`. False when the process is out of files.
  bool Accept(int socket);
  bool HasRoom(int fd, const std::string& peer);
  void ForgetClosed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetPeer(int fd, const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ListenAddress address_;
  const Options options_;
  int max_file_ = 0;  // descriptors from here on are kept for other uses
  std::vector<int> sockets_;
  int wake_ = -1;  // an eventfd that ends Run()
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::thread thread_;

  mutable Mutex mutex_;
  // What was handed to gRPC, by descriptor, with its inode: gRPC closes a connection without a
  // word, but a socket's inode tells whether a descriptor is still the same one.
  struct Connection {
    ino_t inode = 0;
    std::string peer;
  };
  mutable std::unordered_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  // The descriptors of the same connections.
  mutable std::unordered_map<std::string, int> by_peer_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_count_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sru::server

#endif  // SRU_SERVER_TRANSPORT_LISTENER_H_
