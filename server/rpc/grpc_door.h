// GrpcDoor: a port that gRPC's library serves (--grpc_transport=library). It starts the calls of a
// method table and gives each an Exchange of its own. The library bounds neither connections nor
// handshakes nor the time that an answer may wait for its client (docs/security.md).
//
//   auto door = GrpcDoor::Open("listen", address, options, receive_bytes, tls);
//   ...
//   (*door)->WaitUntilSent(timeout);
//   (*door)->Shutdown(grace);
//
// All functions are thread-safe; the caller keeps this order.
#ifndef SRU_SERVER_RPC_GRPC_DOOR_H_
#define SRU_SERVER_RPC_GRPC_DOOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "server/base/listen_address.h"
#include "server/door/door_context.h"
#include "server/door/grpc_port.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::rpc {

class GrpcDoor final : public door::GrpcPort, private grpc::CallbackGenericService {
 public:
  using TlsFiles = std::function<std::shared_ptr<const transport::TlsPem>()>;

  // Listens and takes calls. kUnavailable names `flag`, the address and why it cannot be listened
  // on. What `options` say of connections that end, of HTTP and of TLS is the native door's.
  // `receive_bytes` bounds what the library holds of what arrives, roughly; 0 = unbounded.
  // `tls_files` turns TLS on: it gives the files for a connection that has just come, never null.
  // With a `client_ca` at the start, clients need a certificate.
  static absl::StatusOr<std::unique_ptr<GrpcDoor>> Open(absl::string_view flag,
                                                        ListenAddress address,
                                                        door::DoorOptions options,
                                                        int64_t receive_bytes, TlsFiles tls_files);
  ~GrpcDoor() override;

  // GrpcPort:
  const ListenAddress& address() const override { return address_; }
  Counts counts() const override { return {std::nullopt, num_unsent(), 0}; }
  bool WaitUntilSent(absl::Duration timeout) const override;
  void Shutdown(absl::Duration grace) override;

  // Calls that were answered and whose answers have not been taken.
  int64_t num_unsent() const { return unsent_.load(std::memory_order_relaxed); }

 private:
  class GrpcExchange;
  class Refusal;

  GrpcDoor(ListenAddress address, door::DoorOptions options);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

  ListenAddress address_;
  const door::DoorOptions options_;
  std::atomic<int64_t> unsent_{0};
  std::unique_ptr<grpc::Server> server_;  // null after Shutdown()
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_GRPC_DOOR_H_
