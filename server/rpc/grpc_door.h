// GrpcDoor: a port that gRPC's library serves (--grpc_transport=library). It starts the calls of a method table and gives each an Exchange of
// its own. The library bounds neither connections nor handshakes nor the time that an answer may wait for its client (docs/security.md).
//
//   auto door = GrpcDoor::Open("listen", address, options);
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
#include "server/callers/caller.h"
#include "server/calls/method.h"
#include "server/transport/call_check.h"
#include "server/transport/security_options.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::rpc {

class GrpcDoor final : private grpc::CallbackGenericService {
 public:
  struct Options {
    const calls::MethodTable* methods = nullptr;  // must outlive the door
    // Makes the call of a path that no row has.
    std::function<calls::CallHandler*(calls::Exchange* exchange)> unknown;
    transport::CallCheck check_call;  // null: all may call, and none are told apart
    // Makes the call of a method that the caller's limits refuse.
    std::function<calls::CallHandler*(calls::Exchange* exchange, calls::MethodId method,
                                      const callers::Refusal& refusal)>
        refused;
    // Turns TLS on: gives the files for a connection that has just come, never null. With a `client_ca` at the start, clients need a certificate.
    std::function<std::shared_ptr<const transport::TlsPem>()> tls_files;
    int64_t receive_bytes =
        0;  // bounds what the library holds of what arrives, roughly; 0 = unbounded
    transport::ConnectionLimits limits;
    int max_message_bytes = 4 << 20;
    bool allow_compression = false;
  };

  // Listens and takes calls. kUnavailable names `flag`, the address and why it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcDoor>> Open(absl::string_view flag,
                                                        ListenAddress address, Options options);
  ~GrpcDoor() override;

  // Waits until the library has taken all answers off our hands; false after `timeout`.
  bool WaitUntilSent(absl::Duration timeout) const;
  // Waits up to `grace` for calls to end, then cancels them, and waits until all have ended.
  void Shutdown(absl::Duration grace);

  // With the port that is really listened on.
  const ListenAddress& address() const { return address_; }
  // Calls that were answered and whose answers have not been taken.
  int64_t num_unsent() const { return unsent_.load(std::memory_order_relaxed); }

 private:
  class GrpcExchange;
  class Refusal;

  GrpcDoor(ListenAddress address, Options options);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

  ListenAddress address_;
  const Options options_;
  std::atomic<int64_t> unsent_{0};
  std::unique_ptr<grpc::Server> server_;  // null after Shutdown()
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_GRPC_DOOR_H_
