// GrpcPorts: the ports of the server that take gRPC calls, by the transport that --grpc_transport chooses.
#ifndef SRU_SERVER_GRPC_PORTS_H_
#define SRU_SERVER_GRPC_PORTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/listen_address.h"
#include "server/callers/caller.h"
#include "server/calls/http_exchange.h"
#include "server/calls/method.h"
#include "server/door/door_context.h"
#include "server/door/door_metrics.h"
#include "server/door/memory_count.h"
#include "server/door/native_door.h"
#include "server/options.h"
#include "server/rpc/grpc_door.h"
#include "server/telemetry/access_log.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/byte_stream.h"
#include "server/transport/call_check.h"
#include "server/transport/credentials.h"
#include "server/transport/loop.h"

namespace sru::server {

// Thread-safe. One thread calls Open(), OpenAdmin() and Shutdown().
class GrpcPorts {
 public:
  // All must outlive the ports.
  struct Context {
    const Options* options = nullptr;
    int64_t receive_bytes = 0;  // bounds what arrives
    // Native ports use these; null: gRPC's library opens the ports.
    transport::LoopSet* loops = nullptr;
    door::DoorMetrics* door_metrics = nullptr;
    const transport::Credentials* credentials = nullptr;
    telemetry::AccessLog* access_log = nullptr;
    // Makes the call of a path that no row has.
    std::function<calls::CallHandler*(calls::Exchange* exchange)> unknown;
    // As in door::DoorOptions.
    std::function<calls::CallHandler*(calls::Exchange* exchange, calls::MethodId method,
                                      const callers::Refusal& refusal)>
        refused;
    std::function<void(const std::string& detail, const std::string& peer)> on_handshake_failure;
    std::function<void()> on_refused;
    // Only the port for callers has these; gRPC's library speaks gRPC only.
    std::function<calls::HttpHandler*(calls::HttpExchange* exchange)> start_http;
    std::function<void(transport::AcceptedSocket socket,
                       std::unique_ptr<transport::ByteStream> bytes, std::string received)>
        on_http1;
  };
  explicit GrpcPorts(Context context);
  GrpcPorts(const GrpcPorts&) = delete;
  GrpcPorts& operator=(const GrpcPorts&) = delete;

  // Take calls from now on. kUnavailable names the flag, the address and why it cannot be listened on.
  absl::Status Open(const calls::MethodTable& methods);
  absl::Status OpenAdmin(const calls::MethodTable& methods);

  // Shows out whoever is no longer accepted, as tokens or certificates have changed. gRPC's library does not.
  void Recheck();
  // The port for callers refuses connections and asks those that are open to go elsewhere. gRPC's library does so in Shutdown() only.
  void BeginDrain();
  // Waits until the answers to callers have been sent; false after `timeout`.
  bool WaitUntilSent(absl::Duration timeout) const;
  // Waits up to `grace` for each port's calls to end, then cancels them.
  void Shutdown(absl::Duration grace);

  // With the ports that are really listened on.
  ListenAddress address() const;
  std::optional<ListenAddress> admin_address() const;

  // At the port for callers.
  struct Counts {
    std::optional<int64_t> connections;  // gRPC's library does not tell
    int64_t unsent_answers = 0;
    int64_t answers_not_taken = 0;  // since the start
  };
  Counts counts() const;

 private:
  using Door = std::variant<std::unique_ptr<door::NativeDoor>, std::unique_ptr<rpc::GrpcDoor>>;

  // Null for a port of gRPC's library, or none.
  static door::NativeDoor* NativeOf(const std::optional<Door>& door);

  absl::Status OpenDoor(absl::string_view flag, const ListenAddress& address,
                        const calls::MethodTable& methods, int max_message_bytes,
                        transport::CallCheck check_call, std::optional<Door>* door);
  door::DoorOptions NativeOptions() const;
  rpc::GrpcDoor::Options LibraryOptions() const;

  const Context context_;
  const Options& options_;
  door::MemoryCount receive_memory_;  // of native doors
  std::optional<Door> door_;
  std::optional<Door> admin_door_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_GRPC_PORTS_H_
