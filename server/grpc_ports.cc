#include "server/grpc_ports.h"

#include <utility>

#include "absl/status/statusor.h"

namespace sru::server {
namespace {

// Enough for a name and what protobuf puts around it.
constexpr int kMaxAdminMessageBytes = 64 << 10;

transport::NeedsToken NeedsToken(const calls::MethodTable& methods) {
  return [&methods](absl::string_view path) { return methods.NeedsToken(path); };
}

}  // namespace

GrpcPorts::GrpcPorts(Context context)
    : context_(std::move(context)),
      options_(*context_.options),
      receive_memory_(context_.receive_bytes) {}

absl::Status GrpcPorts::Open(const calls::MethodTable& methods) {
  return OpenDoor("listen", options_.listen, methods, options_.rpc.max_message_bytes,
                  context_.credentials->CheckForListener(NeedsToken(methods)), &door_);
}

absl::Status GrpcPorts::OpenAdmin(const calls::MethodTable& methods) {
  return OpenDoor("admin_listen", *options_.admin_listen, methods, kMaxAdminMessageBytes,
                  context_.credentials->CheckForAdminListener(NeedsToken(methods)), &admin_door_);
}

absl::Status GrpcPorts::OpenDoor(absl::string_view flag, const ListenAddress& address,
                                 const calls::MethodTable& methods, int max_message_bytes,
                                 transport::CallCheck check_call, std::optional<Door>* door) {
  if (context_.loops == nullptr) {
    rpc::GrpcDoor::Options options = LibraryOptions();
    options.methods = &methods;
    options.max_message_bytes = max_message_bytes;
    options.check_call = std::move(check_call);
    absl::StatusOr<std::unique_ptr<rpc::GrpcDoor>> opened =
        rpc::GrpcDoor::Open(flag, address, std::move(options));
    if (!opened.ok()) return opened.status();
    *door = *std::move(opened);
    return absl::OkStatus();
  }
  door::DoorOptions options = NativeOptions();
  options.methods = &methods;
  options.max_message_bytes = static_cast<uint32_t>(max_message_bytes);
  options.check_call = std::move(check_call);
  if (door == &door_) {
    options.start_http = context_.start_http;
    options.on_http1 = context_.on_http1;
  }
  absl::StatusOr<std::unique_ptr<door::NativeDoor>> opened =
      door::NativeDoor::Open(flag, address, std::move(options), context_.loops, &receive_memory_);
  if (!opened.ok()) return opened.status();
  (*opened)->Start();
  *door = *std::move(opened);
  return absl::OkStatus();
}

door::DoorOptions GrpcPorts::NativeOptions() const {
  door::DoorOptions door;
  door.metrics = context_.door_metrics;
  door.unknown = context_.unknown;
  door.refused = context_.refused;
  if (options_.security.has_tls()) {
    door.tls_context = [this] { return context_.credentials->TlsContext(); };
  }
  door.on_handshake_failure = context_.on_handshake_failure;
  door.on_refused = context_.on_refused;
  door.on_not_taken = [this](absl::string_view method, const std::string& peer) {
    context_.access_log->OnAnswerNotTaken(method, peer, options_.memory.send_timeout);
  };
  door.limits = options_.connections;
  door.allow_compression = options_.memory.allow_compression;
  door.send_timeout = options_.memory.send_timeout;
  return door;
}

rpc::GrpcDoor::Options GrpcPorts::LibraryOptions() const {
  rpc::GrpcDoor::Options door;
  door.unknown = context_.unknown;
  door.refused = context_.refused;
  if (options_.security.has_tls()) {
    door.tls_files = [this] { return context_.credentials->TlsFiles(); };
  }
  door.receive_bytes = context_.receive_bytes;
  door.limits = options_.connections;
  door.allow_compression = options_.memory.allow_compression;
  return door;
}

door::NativeDoor* GrpcPorts::NativeOf(const std::optional<Door>& door) {
  if (!door.has_value()) return nullptr;
  const auto* const native = std::get_if<std::unique_ptr<door::NativeDoor>>(&*door);
  return native == nullptr ? nullptr : native->get();
}

void GrpcPorts::Recheck() {
  for (const std::optional<Door>* const one : {&door_, &admin_door_}) {
    if (door::NativeDoor* const native = NativeOf(*one)) native->Recheck();
  }
}

void GrpcPorts::BeginDrain() {
  if (door::NativeDoor* const native = NativeOf(door_)) native->BeginDrain();
}

bool GrpcPorts::WaitUntilSent(absl::Duration timeout) const {
  return std::visit([timeout](const auto& door) { return door->WaitUntilSent(timeout); }, *door_);
}

void GrpcPorts::Shutdown(absl::Duration grace) {
  for (const std::optional<Door>* const door : {&door_, &admin_door_}) {
    if (!door->has_value()) continue;
    std::visit([grace](const auto& one) { one->Shutdown(grace); }, **door);
  }
}

ListenAddress GrpcPorts::address() const {
  return std::visit([](const auto& door) { return door->address(); }, *door_);
}

std::optional<ListenAddress> GrpcPorts::admin_address() const {
  if (!admin_door_.has_value()) return std::nullopt;
  return std::visit([](const auto& door) { return door->address(); }, *admin_door_);
}

GrpcPorts::Counts GrpcPorts::counts() const {
  Counts counts;
  counts.unsent_answers = std::visit([](const auto& door) { return door->num_unsent(); }, *door_);
  if (const door::NativeDoor* const native = NativeOf(door_)) {
    counts.connections = native->num_connections();
    counts.answers_not_taken = native->num_not_taken();
  }
  return counts;
}

}  // namespace sru::server
