#include "server/rpc/grpc_door.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpc/grpc.h"
#include "grpc/slice.h"
#include "grpc/support/time.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/base/clock.h"
#include "server/calls/grpc_text.h"
#include "server/rpc/grpc_credentials.h"
#include "server/transport/listening_sockets.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::rpc {
namespace {

// A call that comes while the library shuts down gets CANCELLED, which clients do not understand as
// "ask another replica"; for this long before, calls are answered with UNAVAILABLE.
constexpr absl::Duration kRefusalGrace = absl::Milliseconds(100);

// Messages up to this size are copied, which is cheaper than to share them.
constexpr size_t kCopiedBytes = 256;

absl::Cord ToCord(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices(1);
  if (!bytes.TrySingleSlice(&slices[0]).ok() && !bytes.Dump(&slices).ok()) return {};
  absl::Cord cord;
  for (grpc::Slice& slice : slices) {
    const absl::string_view view(reinterpret_cast<const char*>(slice.begin()), slice.size());
    if (view.size() <= kCopiedBytes) {
      cord.Append(view);
    } else {
      cord.Append(absl::MakeCordFromExternal(view, [slice = std::move(slice)] {}));
    }
  }
  return cord;
}

grpc::ByteBuffer ToByteBuffer(const absl::Cord& message) {
  std::vector<grpc::Slice> slices;
  for (const absl::string_view chunk : message.Chunks()) {
    if (chunk.size() <= kCopiedBytes) {
      slices.emplace_back(chunk.data(), chunk.size());
      continue;
    }
    // The slice shares the message.
    slices.emplace_back(
        const_cast<char*>(chunk.data()), chunk.size(),
        [](void* shared) { delete static_cast<absl::Cord*>(shared); }, new absl::Cord(message));
  }
  if (slices.empty()) slices.emplace_back();
  return {slices.data(), slices.size()};
}

// With another value than printable ASCII, the library would end the process.
bool CanSend(absl::string_view name, absl::string_view value) {
  return absl::EndsWith(name, "-bin") ||
         grpc_header_nonbin_value_is_legal(
             grpc_slice_from_static_buffer(value.data(), value.size())) != 0;
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetLimits(const door::DoorOptions& options, int64_t receive_bytes,
               grpc::ServerBuilder* builder) {
  const transport::ConnectionLimits& limits = options.limits;
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  if (receive_bytes > 0) {
    builder->SetResourceQuota(grpc::ResourceQuota().Resize(static_cast<size_t>(receive_bytes)));
  }
  if (!options.allow_compression) {
    // The library checks the length of a message only after it has unpacked it.
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
      builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
    }
  }
  // Otherwise two servers could have one port.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  // A client that silently disappeared is noticed after at most 80 s.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // After two pings that come too early, the library closes the connection.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(limits.min_ping_interval));
  if (limits.max_age != absl::InfiniteDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(limits.max_age));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                                Milliseconds(limits.max_age_grace));
  }
}

absl::string_view FindMetadata(const grpc::GenericCallbackServerContext& call,
                               absl::string_view name) {
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find(grpc::string_ref(name.data(), name.size()));
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

std::string CertificateName(const grpc::GenericCallbackServerContext& call) {
  const auto found = call.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? ""
                       : transport::OwnerOf(absl::string_view(found[0].data(), found[0].size()));
}

// The values of a name, joined with commas.
std::string JoinMetadata(const grpc::GenericCallbackServerContext& call, absl::string_view name) {
  std::string joined;
  const auto [begin, end] =
      call.client_metadata().equal_range(grpc::string_ref(name.data(), name.size()));
  for (auto it = begin; it != end; ++it) {
    absl::StrAppend(&joined, joined.empty() ? "" : ",",
                    absl::string_view(it->second.data(), it->second.size()));
  }
  return joined;
}

transport::CallVerdict Check(const transport::CallCheck& check,
                             const grpc::GenericCallbackServerContext& of) {
  if (check == nullptr) return {};
  const std::string peer = of.peer();
  const std::string x_forwarded_for = JoinMetadata(of, "x-forwarded-for");
  transport::CallToCheck call;
  call.path = of.method();
  call.authorizations = static_cast<int>(of.client_metadata().count("authorization"));
  call.headers.authorization = FindMetadata(of, "authorization");
  call.headers.request_id = FindMetadata(of, "x-request-id");
  call.headers.traceparent = FindMetadata(of, "traceparent");
  call.headers.user_agent = FindMetadata(of, "user-agent");
  call.x_forwarded_for = x_forwarded_for;
  call.peer = peer;
  call.certificate = [&of] { return CertificateName(of); };
  return check(call);
}

}  // namespace

// A call that does not go on; nothing of it is read.
class GrpcDoor::Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const char* why) { Finish({grpc::StatusCode::UNAUTHENTICATED, why}); }
  void OnDone() override { delete this; }
};

// The library calls OnDone() when no reaction runs any more.
class GrpcDoor::GrpcExchange final : public calls::Exchange, public grpc::ServerGenericBidiReactor {
 private:
  using Reactor = grpc::ServerGenericBidiReactor;

 public:
  // A row's calls with one request begin when that has come, those of streams at once.
  GrpcExchange(GrpcDoor* door, const calls::Method* row, grpc::GenericCallbackServerContext* call,
               callers::CallerPtr caller)
      : door_(*door), row_(row), call_(*call), caller_(std::move(caller)) {
    absl::Status refusal;
    if (row != nullptr && row->id.has_value()) {
      refusal = lease_.Enter(caller_, *row->id);
    }
    if (!refusal.ok()) {
      handler_ = door_.options_.refused(this, *row->id, refusal);
      handler_state_ = kHasHandler;
    } else if (row != nullptr && row->kind != calls::MethodKind::kBidirectional) {
      StartRead(&incoming_);
    } else {
      handler_ = row == nullptr ? door_.options_.unknown(this) : row->start(this);
      handler_state_ = kHasHandler;
    }
  }

  // CallOrigin and Exchange:
  absl::string_view FindHeader(absl::string_view name) const override {
    return FindMetadata(call_, name);
  }
  std::string peer() const override { return call_.peer(); }
  std::string certificate() const override { return CertificateName(call_); }
  const callers::CallerPtr& caller() const override { return caller_; }
  absl::string_view method() const override { return call_.method(); }
  // The time that is left is the same by every clock. (call.deadline() would be a date, and wrong
  // once the system's clock is set.)
  absl::Duration time_left() const override {
    const gpr_timespec deadline = call_.raw_deadline();
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
      return absl::InfiniteDuration();
    }
    const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
  }
  bool is_cancelled() const override { return call_.IsCancelled(); }

  void AddHeader(std::string name, std::string value) override {
    if (CanSend(name, value)) call_.AddInitialMetadata(name, value);
  }
  void Read() override { StartRead(&incoming_); }
  void Write(absl::Cord message) override {
    outgoing_ = ToByteBuffer(message);
    AddUnsent();
    StartWrite(&outgoing_);
  }
  void Finish(calls::CallEnd end) override {
    grpc::Status status = Ending(end);
    Reactor::Finish(std::move(status));
  }
  void WriteAndFinish(absl::Cord message, calls::CallEnd end) override {
    outgoing_ = ToByteBuffer(message);
    grpc::Status status = Ending(end);
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), std::move(status));
  }

 private:
  enum HandlerState { kHasHandler = 1, kCancelled = 2 };

  void AddUnsent() { door_.unsent_.fetch_add(1, std::memory_order_relaxed); }
  void RemoveUnsent() { door_.unsent_.fetch_sub(1, std::memory_order_relaxed); }

  grpc::Status Ending(const calls::CallEnd& end) {
    lease_.Leave();
    for (const auto& [name, value] : end.headers) AddHeader(name, value);
    for (const auto& [name, value] : end.trailers) {
      if (CanSend(name, value)) call_.AddTrailingMetadata(name, value);
    }
    AddUnsent();
    if (end.status.ok()) return grpc::Status::OK;
    return {static_cast<grpc::StatusCode>(end.status.code()),  // the numbers are the same
            std::string(end.status.message()), calls::StatusDetails(end.status)};
  }

  // The reactions: noexcept, since the library would swallow an exception, and the caller would
  // wait for ever.
  void OnReadDone(bool ok) noexcept override {
    std::optional<absl::Cord> message;
    if (ok) {
      message = ToCord(incoming_);
      incoming_.Clear();
    }
    if (handler_ != nullptr) return handler_->OnMessage(std::move(message));
    handler_ = row_->start(this);
    handler_->OnMessage(std::move(message));
    if ((handler_state_.fetch_or(kHasHandler) & kCancelled) != 0) handler_->OnCancel();
  }
  void OnWriteDone(bool ok) noexcept override {
    outgoing_.Clear();
    RemoveUnsent();
    handler_->OnWritten(ok);
  }
  void OnCancel() noexcept override {
    if ((handler_state_.fetch_or(kCancelled) & kHasHandler) != 0) handler_->OnCancel();
  }
  void OnDone() override {
    RemoveUnsent();
    handler_->OnDone();
    delete this;
  }
  // OnCancel() and OnDone() never block, so the library may run them where it is instead of handing
  // each to a thread of its executor. Its own default reactor does the same.
  bool InternalInlineable() override { return true; }

  GrpcDoor& door_;
  const calls::Method* const row_;  // null: there is none
  grpc::GenericCallbackServerContext& call_;
  const callers::CallerPtr caller_;
  callers::Lease lease_;                   // until the call ends
  calls::CallHandler* handler_ = nullptr;  // null until the first message
  std::atomic<int> handler_state_{0};
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
};

grpc::ServerGenericBidiReactor* GrpcDoor::CreateReactor(grpc::GenericCallbackServerContext* call) {
  transport::CallVerdict verdict = Check(options_.check_call, *call);
  if (verdict.refusal != nullptr) return new Refusal(verdict.refusal);
  return new GrpcExchange(this, options_.methods->Find(call->method()), call,
                          std::move(verdict.caller));
}

GrpcDoor::GrpcDoor(ListenAddress address, door::DoorOptions options)
    : address_(std::move(address)), options_(std::move(options)) {}

GrpcDoor::~GrpcDoor() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<GrpcDoor>> GrpcDoor::Open(absl::string_view flag,
                                                         ListenAddress address,
                                                         door::DoorOptions options,
                                                         int64_t receive_bytes,
                                                         TlsFiles tls_files) {
  // The library does not say why it cannot listen.
  if (absl::Status status = transport::CheckListening({{flag, address}}); !status.ok())
    return status;
  std::unique_ptr<GrpcDoor> door(new GrpcDoor(std::move(address), std::move(options)));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(door->address_.ToString(), MakeCredentials(std::move(tls_files)), &port);
  builder.RegisterCallbackGenericService(door.get());
  SetLimits(door->options_, receive_bytes, &builder);
  door->server_ = builder.BuildAndStart();
  if (door->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", door->address_.ToString(),
                                               " (--", flag, "): GRPC_VERBOSITY=error says why"));
  }
  if (!absl::StartsWith(door->address_.host, kUnixPrefix)) door->address_.port = port;
  return door;
}

bool GrpcDoor::WaitUntilSent(absl::Duration timeout) const {
  const absl::Time end = SteadyNow() + timeout;
  while (num_unsent() > 0) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

void GrpcDoor::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  absl::SleepFor(std::min(grace, kRefusalGrace));
  // The library converts the date to its own clock at once.
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
  server_.reset();
}

}  // namespace sru::server::rpc
