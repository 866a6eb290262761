#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/log.h"
#include "server/calls/kinds/unknown_method.h"
#include "server/door/native_door.h"
#include "server/rpc/grpc_door.h"
#include "server/transport/file_limit.h"
#include "server/transport/listening_sockets.h"
#include "server/wiring/parts.h"
#include "server/wiring/state_key_file.h"

namespace sru::server::wiring {
namespace {

// For messages of gRPC from 64 KiB on.
constexpr int kSideThreads = 2;

// Enough for a name and what protobuf puts around it.
constexpr uint32_t kMaxAdminMessageBytes = 64 << 10;

}  // namespace

absl::Status CheckPorts(const Options& options) {
  const int files = transport::RaiseFileLimit();
  SRU_RETURN_UNLESS_OK(transport::CheckFileLimit(files));
  const std::string warning =
      transport::FileLimitWarning(files, options.connections.max_connections);
  if (!warning.empty()) LogWarning(warning);
  // The ports are opened and closed again: until the server takes calls, it should refuse
  // connections.
  std::vector<transport::ListenFlag> flags = {{"listen", options.listen},
                                              {"metrics_listen", options.http.metrics_listen}};
  if (options.http.http_listen.has_value()) {
    flags.emplace_back("http_listen", *options.http.http_listen);
  }
  if (options.admin_listen.has_value()) {
    flags.emplace_back("admin_listen", *options.admin_listen);
  }
  return transport::CheckListening(flags);
}

absl::Status Doors::LoadCredentials(ServedModelLoader* loader) {
  SRU_ASSIGN_OR_RETURN(
      credentials_, transport::Credentials::Create(shared_.options.security, &shared_.callers,
                                                   &shared_.security_metrics, &shared_.access_log,
                                                   &shared_.clock, [this] { RecheckCallers(); }));
  SRU_ASSIGN_OR_RETURN(auto keys, WatchStateKeys(shared_.options.security.state_key_file,
                                                 &key_watcher_, &shared_.security_metrics));
  loader->set_state_keys(std::move(keys));
  key_watcher_.Start();
  check_call_ = credentials_->CheckForListener(
      [this](absl::string_view path) { return methods_.table()->NeedsToken(path); });
  return absl::OkStatus();
}

void Doors::LookNow() {
  credentials_->LookNow();
  key_watcher_.LookNow();
}

void Doors::SetRechecks(bool rechecks) {
  MutexLock lock(&recheck_mutex_);
  rechecks_ = rechecks;
}

// Other tokens or certificates are in use.
void Doors::RecheckCallers() {
  MutexLock lock(&recheck_mutex_);
  if (!rechecks_) return;
  for (door::GrpcPort* const port : Ports()) port->Recheck();
}

void Doors::StartLoops() {
  if (!is_native() && !shared_.options.http.http_listen.has_value()) return;
  door_metrics_ = std::make_unique<door::DoorMetrics>(shared_.metrics.registry());
  loops_ = std::make_unique<transport::LoopSet>(shared_.options.transport.num_io_threads(),
                                                kSideThreads, door_metrics_->Watch());
}

std::vector<door::GrpcPort*> Doors::CallPorts() const {
  std::vector<door::GrpcPort*> ports;
  for (const auto* port : {&port_, &http_port_}) {
    if (*port != nullptr) ports.push_back(port->get());
  }
  return ports;
}

std::vector<door::GrpcPort*> Doors::Ports() const {
  std::vector<door::GrpcPort*> ports = CallPorts();
  if (admin_port_ != nullptr) ports.push_back(admin_port_.get());
  return ports;
}

// On the loops.
void Doors::OnHandshakeFailure(const std::string& detail, const std::string& peer) {
  const transport::HandshakeFailure failure = detail.empty()
                                                  ? transport::HandshakeFailure::kClosedByClient
                                                  : transport::ClassifyHandshakeFailure(detail);
  shared_.security_metrics.OnHandshakeFailure(failure);
  shared_.access_log.OnHandshakeFailure(
      transport::kHandshakeFailureNames[static_cast<size_t>(failure)], detail, peer);
}

// Runs on the ports' threads.
void Doors::OnConnectionRefused(absl::string_view reason, const std::string& peer) {
  shared_.security_metrics.OnConnectionRefused();
  int64_t before = 0;
  if (!refused_connections_.Take(shared_.clock.Now(), &before)) return;
  Log(LogLevel::kWarning, absl::StrCat("connections are refused: ", reason),
      {{"peer", peer}, {"refused_connections", before + 1}});
}

// All ports have these in common.
door::DoorOptions Doors::MakeDoorOptions(const calls::MethodTable& methods) {
  telemetry::Metrics* const metrics = &shared_.metrics;
  telemetry::AccessLog* const access_log = &shared_.access_log;
  door::DoorOptions door;
  door.methods = &methods;
  door.metrics = door_metrics_.get();
  door.unknown = [metrics, access_log](calls::Exchange* exchange) {
    return calls::StartUnknownMethod(exchange, metrics, access_log);
  };
  door.refused = [metrics, access_log](calls::Exchange* exchange, calls::MethodId method,
                                       const absl::Status& refusal) {
    return calls::StartRefusedCall(exchange, method, refusal, metrics, access_log);
  };
  door.on_failed = [metrics, access_log, &methods](const calls::Exchange& exchange,
                                                   const absl::Status& status) {
    return calls::EndFailedCall(exchange, methods.Find(exchange.method()), status, metrics,
                                access_log);
  };
  if (shared_.options.security.has_tls()) {
    door.tls_context = [this] { return credentials_->TlsContext(); };
  }
  door.on_handshake_failure = [this](const std::string& detail, const std::string& peer) {
    OnHandshakeFailure(detail, peer);
  };
  door.on_refused = [this](absl::string_view reason, const std::string& peer) {
    OnConnectionRefused(reason, peer);
  };
  const absl::Duration send_timeout = shared_.options.memory.send_timeout;
  door.on_not_taken = [access_log, send_timeout](absl::string_view method,
                                                 const std::string& peer) {
    access_log->OnAnswerNotTaken(method, peer, send_timeout);
  };
  door.limits = shared_.options.connections;
  door.connections = &connections_;
  door.allow_compression = shared_.options.memory.allow_compression;
  door.asks_for_tokens = !shared_.options.security.auth_tokens_file.empty();
  door.send_timeout = send_timeout;
  return door;
}

// The two ports for callers have these.
door::DoorOptions Doors::MakeCallOptions(http::HttpServer* http) {
  door::DoorOptions options = MakeDoorOptions(*methods_.table());
  options.max_message_bytes = static_cast<uint32_t>(shared_.options.rpc.max_message_bytes);
  options.check_call = check_call_;
  options.start_http = [http](calls::HttpExchange* exchange) { return http->Answer(exchange); };
  options.start_http1 = [http](door::SessionHost* host, const door::PeerInfo& peer) {
    return http->StartSession(host, peer);
  };
  return options;
}

absl::StatusOr<std::unique_ptr<door::GrpcPort>> Doors::OpenPort(bool native, absl::string_view flag,
                                                                const ListenAddress& address,
                                                                door::DoorOptions options) {
  if (!native) {
    rpc::GrpcDoor::TlsFiles tls_files;
    if (shared_.options.security.has_tls()) tls_files = [this] { return credentials_->TlsFiles(); };
    return rpc::GrpcDoor::Open(flag, address, std::move(options), shared_.budgets.receive_bytes,
                               std::move(tls_files));
  }
  SRU_ASSIGN_OR_RETURN(
      std::unique_ptr<door::NativeDoor> door,
      door::NativeDoor::Open(flag, address, std::move(options), loops_.get(), &receive_memory_));
  door->Start();
  return std::unique_ptr<door::GrpcPort>(std::move(door));
}

// Like the port of --listen, that of --http_listen refuses connections until the server takes
// calls, so that balancers and clients go to another server meanwhile. The native door serves it
// whatever serves gRPC: only it takes HTTP/1.1.
absl::Status Doors::OpenForCallers(http::HttpServer* http) {
  SRU_ASSIGN_OR_RETURN(
      port_, OpenPort(is_native(), "listen", shared_.options.listen, MakeCallOptions(http)));
  if (shared_.options.http.http_listen.has_value()) {
    SRU_ASSIGN_OR_RETURN(http_port_,
                         OpenPort(/*native=*/true, "http_listen", *shared_.options.http.http_listen,
                                  MakeCallOptions(http)));
  }
  return absl::OkStatus();
}

absl::Status Doors::OpenAdmin() {
  if (shared_.options.admin_listen.has_value()) {
    const calls::MethodTable& methods = *methods_.admin_table();
    door::DoorOptions options = MakeDoorOptions(methods);
    options.max_message_bytes = kMaxAdminMessageBytes;
    options.connections = nullptr;  // callers do not keep the operator out
    options.check_call = credentials_->CheckForAdminListener(
        [&methods](absl::string_view path) { return methods.NeedsToken(path); });
    SRU_ASSIGN_OR_RETURN(admin_port_, OpenPort(is_native(), "admin_listen",
                                               *shared_.options.admin_listen, std::move(options)));
  }
  are_open_ = true;
  SetRechecks(true);
  return absl::OkStatus();
}

}  // namespace sru::server::wiring
