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

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/server_builder.h"
#include "server/base/listen_address.h"
#include "server/transport/acceptor.h"
#include "server/transport/connection_handover.h"
#include "server/transport/receive_ledger.h"

namespace sru::server::transport {

class Listener {
 public:
  struct Options {
    int max_connections = 0;  // 0 = what the limit of open files allows
    // Of what arrives on its connections; null = none.
    std::shared_ptr<ReceiveLedger> ledger;
    // Both run on the thread that accepts: for each connection that is closed at once, before it
    // is, and for each other one, before gRPC gets it. A descriptor is the same connection for as
    // long as its inode is.
    std::function<void()> on_refused;
    std::function<void(int fd, ino_t inode, const std::string& peer)> on_accepted;
  };

  // Binds and listens; "0.0.0.0" takes IPv6 too where the machine has it, as with gRPC. Raises the
  // process' limit of open files as far as it may. kUnavailable names `flag`, the address and why
  // it cannot be listened on.
  //
  // From Start() to Stop() it goes on accepting whatever the system lacks for a while: files,
  // buffers, memory. What waits at the sockets meanwhile waits there.
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

  // Connections that are open now. Asks the system about each of them, and holds up neither the
  // thread that accepts nor FindConnection() meanwhile.
  int64_t num_connections() const;

  // How often the system refused what accepting needs.
  int64_t num_failures() const { return acceptor_->num_failures(); }

  // The socket of the connection that gRPC calls `peer` ("ipv4:10.0.0.1:4711"), -1 if there is
  // none. The connection may end at any time and its descriptor may then be another's.
  int FindConnection(const std::string& peer) const;

  // Counts bytes that the connection that gRPC calls `peer` has sent and that became messages.
  void NoteDelivered(const std::string& peer, int64_t bytes);
  // What was counted of the connection; nothing if it is not one of this listener's.
  std::optional<int64_t> DeliveredBytes(int fd, ino_t inode) const;

  // Ends the connection that gRPC calls `peer`, in both directions and at once; gRPC notices and
  // cancels its calls. False when there is none.
  bool Close(const std::string& peer);

 private:
  Listener(ListenAddress address, Options options);

  absl::Status Bind(absl::string_view flag);
  // Of the acceptor.
  void OnConnection(int socket, int fd, const sockaddr_storage& address);
  // Takes note of the connection; false when there are too many.
  bool Enter(int fd, ino_t inode, const std::string& peer);
  bool IsFull(int fd) const;
  void ForgetClosed() const;
  void ForgetPeer(int fd, const std::string& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant from Start() to Stop().
  ListenAddress address_;
  const Options options_;
  int max_file_ = 0;  // descriptors from here on are kept for other uses
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<ConnectionHandover> handover_;

  mutable Mutex mutex_;
  // What was handed to gRPC, by descriptor, with its inode: gRPC closes a connection without a
  // word, but a socket's inode tells whether a descriptor is still the same one.
  struct Connection {
    ino_t inode = 0;
    std::string peer;
    int64_t delivered = 0;  // bytes
  };
  mutable std::unordered_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  // The descriptors of the same connections.
  mutable std::unordered_map<std::string, int> by_peer_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_count_ = absl::InfinitePast();  // on the thread that accepts
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_LISTENER_H_
