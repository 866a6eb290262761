#include "client/client.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/utf8.h"
#include "client/channel_security.h"
#include "client/resume_generate.h"
#include "client/service_config.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/wrappers.pb.h"
#include "google/rpc/retry.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "sru/v1/admin.grpc.pb.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::client {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
// The least time for the call whose error says why there is no connection.
constexpr absl::Duration kLeastDiagnosis = absl::Seconds(1);
// How often a wait looks whether the caller has cancelled it.
constexpr absl::Duration kLookAround = absl::Milliseconds(50);
constexpr char kCallerHasEnough[] = "the caller has ended the call";
// A server that does not answer a ping within the timeout is gone: frozen, or cut off by a network
// that drops. Its connection ends and its calls, or their next attempts, go to others. Together at
// most 7.5 s, so that calls with the default deadline still succeed elsewhere. A shorter timeout
// would end healthy connections: while a process makes no call, gRPC 1.51 reads only every 5 s.
constexpr int kKeepaliveTimeMs = 1500;  // without anything received
constexpr int kKeepaliveTimeoutMs = 6000;
// Newer versions of gRPC wait for pings of their own, too, for a minute by default, and send none
// of ours meanwhile. Version 1.51 has neither the wait nor the name.
constexpr char kPingTimeoutArgument[] = "grpc.http2.ping_timeout_ms";
constexpr size_t kMostIdBytes = 128;  // of a request id and a traceparent
constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";
// Advice for errors of gRPC whose text contains `part`. The first row that matches is given.
struct Advice {
  const char* part;
  const char* advice;
};
constexpr char kNotGrpc[] =
    "this port does not speak gRPC; sru_server speaks it on the port of --listen (50051), not on "
    "that of --metrics_listen (9090)";
constexpr Advice kAdvice[] = {
    {"backend unhealthy",
     "the server answers but does not serve: no model is loaded, or it is loading or shutting "
     "down"},
    {"http1.x server", kNotGrpc},
    {"Failed parsing HTTP/2", kNotGrpc},
    {"is not in peer certificate",
     "the server's certificate has another name: give it with tls_server_name"},
    {"certificate verify failed",
     "no authority in tls_ca vouches for the server's certificate, or it has expired"},
    {"wrong version number",
     "the server does not speak TLS: leave out the options that begin with tls"},
    {"Connection refused", ""}};
constexpr char kNo6[] = "ipv6:%5B::1%5D";
// Whatever else ends a connection at its begin: the peer's TLS does, without a word.
constexpr char kWithoutTls[] = "the server may speak TLS: name its authority with tls_ca";
constexpr char kWithTls[] =
    "the server may want a client certificate, or another one: give it with tls_cert and tls_key";

absl::Status FromGrpc(const grpc::Status& from) {
  if (from.ok()) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(from.error_code()), from.error_message());
  google::rpc::Status details;
  if (!from.error_details().empty() && details.ParseFromString(from.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      status.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return status;
}

// On the wire these are grpc.health.v1.HealthCheckRequest, one string, and HealthCheckResponse, one
// enum. The system's gRPC does not install their generated code.
using HealthRequest = google::protobuf::StringValue;
using HealthResponse = google::protobuf::Int32Value;

// The error of the first text of a message that is not UTF-8, "sequences[0].text: expected ...";
// empty if all are.
std::string FindBadText(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* const field : fields) {
    const bool is_text = field->type() == google::protobuf::FieldDescriptor::TYPE_STRING;
    const bool is_message = field->type() == google::protobuf::FieldDescriptor::TYPE_MESSAGE;
    if (field->is_map() || (!is_text && !is_message)) continue;
    const bool repeated = field->is_repeated();
    for (int i = 0; i < (repeated ? values.FieldSize(message, field) : 1); ++i) {
      std::string wrong;
      if (is_text) {
        std::string scratch;
        const std::string& text =
            repeated ? values.GetRepeatedStringReference(message, field, i, &scratch)
                     : values.GetStringReference(message, field, &scratch);
        const size_t valid = FindInvalidUtf8(text);
        if (valid == text.size()) continue;
        wrong = absl::StrCat(": expected UTF-8, found an invalid byte at offset ", valid);
      } else {
        wrong = FindBadText(repeated ? values.GetRepeatedMessage(message, field, i)
                                     : values.GetMessage(message, field));
        if (wrong.empty()) continue;
        wrong.insert(0, ".");
      }
      return absl::StrCat(field->name(), repeated ? absl::StrCat("[", i, "]") : "", wrong);
    }
  }
  return "";
}

// The wire allows UTF-8 only. The server would name the bad field too, but the call would be in
// vain, and protobuf prints a line of its own when it serializes such text.
absl::Status CheckTexts(const google::protobuf::Message& message) {
  const std::string wrong = FindBadText(message);
  return wrong.empty() ? absl::OkStatus() : absl::InvalidArgumentError(wrong);
}

class GrpcClient : public Client {
 public:
  GrpcClient(const ConnectOptions& options, std::shared_ptr<grpc::Channel> channel,
             std::unique_ptr<TokenFile> token)
      : options_(options),
        token_(std::move(token)),
        channel_(std::move(channel)),
        stub_(v1::InferenceService::NewStub(channel_)),
        admin_stub_(v1::AdminService::NewStub(channel_)),
        health_stub_(channel_) {}

  absl::Status Connect(absl::Duration timeout) override {
    const absl::Time deadline = absl::Now() + timeout;
    grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY) {
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
        return WhyNoConnection(deadline - absl::Now());
      }
      if (!channel_->WaitForStateChange(state, absl::ToChronoTime(deadline))) {
        return absl::DeadlineExceededError(absl::StrCat("no connection to ", options_.address,
                                                        " within ", absl::FormatDuration(timeout)));
      }
      state = channel_->GetState(/*try_to_connect=*/true);
    }
    return absl::OkStatus();
  }

#define SRU_CLIENT_METHOD(name)                                                  \
  absl::StatusOr<v1::name##Response> name(const v1::name##Request& request,      \
                                          const CallOptions& options) override { \
    return Call(*stub_, &v1::InferenceService::Stub::name, request, options);    \
  }
  SRU_CLIENT_METHODS(SRU_CLIENT_METHOD)
#undef SRU_CLIENT_METHOD

  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<bool(const v1::GenerateResponse&)>& on_response,
                        const CallOptions& options) override {
    SRU_RETURN_UNLESS_OK(CheckTexts(request));
    const absl::Time deadline = absl::Now() + options.deadline.value_or(options_.deadline);
    return ResumeGenerate(
        request, options_.max_attempts,
        [&](const v1::GenerateRequest& part, TakeGenerated take) {
          CallOptions part_options = options;
          part_options.deadline = deadline - absl::Now();
          return GenerateOnce(part, take, part_options);
        },
        [&](absl::Duration wait) {
          const absl::Time end = std::min(absl::Now() + wait, deadline);
          while (options.cancellation == nullptr || !options.cancellation->cancelled()) {
            const absl::Duration left = end - absl::Now();
            if (left <= absl::ZeroDuration()) return;
            absl::SleepFor(std::min(left, kLookAround));
          }
        },
        [&](v1::GenerateResponse* response) { return on_response(*response); });
  }

  absl::Status EncodeStream(const std::function<bool(v1::EncodeStreamRequest*)>& next,
                            const std::function<bool(const v1::EncodeStreamResponse&)>& on_response,
                            const CallOptions& options) override {
    grpc::ClientContext context;
    SRU_RETURN_UNLESS_OK(Prepare(options, &context));
    const Cancellation::Scope cancellation(options.cancellation, [&] { context.TryCancel(); });
    const auto stream = stub_->EncodeStream(&context);
    v1::EncodeStreamRequest request;
    v1::EncodeStreamResponse response;
    absl::Status bad;
    bool is_answered = true;  // each request that was sent
    while (next(&request)) {
      bad = CheckTexts(request);
      if (!bad.ok()) break;
      is_answered = stream->Write(request) && stream->Read(&response);
      if (!is_answered) break;
      if (!on_response(response)) {
        bad = absl::CancelledError(kCallerHasEnough);
        break;
      }
      request.Clear();
    }
    if (bad.ok()) {
      stream->WritesDone();
    } else {
      context.TryCancel();
    }
    // A drain may have sent its state while no answer was awaited.
    while (stream->Read(&response)) {
      if (bad.ok() && !on_response(response)) bad = absl::CancelledError(kCallerHasEnough);
    }
    const grpc::Status status = stream->Finish();
    if (!bad.ok() || !status.ok()) return bad.ok() ? FromGrpc(status) : bad;
    if (is_answered) return absl::OkStatus();
    return absl::UnavailableError(
        "the server ended the stream before it answered the last request");
  }

  absl::StatusOr<v1::ListModelsResponse> ListModels(const CallOptions& options) override {
    return Call(*stub_, &v1::InferenceService::Stub::ListModels, v1::ListModelsRequest(), options);
  }

  absl::StatusOr<v1::ModelInfo> GetModel(absl::string_view name, int64_t version,
                                         const CallOptions& options) override {
    v1::GetModelRequest request;
    request.set_model(std::string(name));
    request.set_version(version);
    SRU_ASSIGN_OR_RETURN(v1::GetModelResponse response,
                         Call(*stub_, &v1::InferenceService::Stub::GetModel, request, options));
    return std::move(*response.mutable_model());
  }

  absl::StatusOr<v1::LoadModelResponse> LoadModel(absl::string_view name,
                                                  const CallOptions& options) override {
    v1::LoadModelRequest request;
    request.set_model(std::string(name));
    return Call(*admin_stub_, &v1::AdminService::Stub::LoadModel, request, options);
  }

  absl::Status UnloadModel(absl::string_view name, const CallOptions& options) override {
    v1::UnloadModelRequest request;
    request.set_model(std::string(name));
    return Call(*admin_stub_, &v1::AdminService::Stub::UnloadModel, request, options).status();
  }

  absl::StatusOr<ServingStatus> Health(absl::string_view service,
                                       const CallOptions& options) override {
    grpc::ClientContext context;
    SRU_RETURN_UNLESS_OK(Prepare(options, &context));
    HealthRequest request;
    request.set_value(std::string(service));
    HealthResponse response;
    grpc::Status status;
    absl::Notification done;
    health_stub_.UnaryCall(&context, kHealthCheckMethod, grpc::StubOptions(), &request, &response,
                           [&](grpc::Status result) {
                             status = std::move(result);
                             done.Notify();
                           });
    done.WaitForNotification();
    if (!status.ok()) return FromGrpc(status);
    const int value = response.value();
    return value < 0 || value > 3 ? ServingStatus::kUnknown : static_cast<ServingStatus>(value);
  }

 private:
  // Only the error of a call says why the channel has no connection.
  absl::Status WhyNoConnection(absl::Duration left) {
    CallOptions options;
    options.deadline = std::max(left, kLeastDiagnosis);
    const absl::Status status = Health("", options).status();
    // It may have been made meanwhile.
    if (status.code() != absl::StatusCode::kUnavailable) return absl::OkStatus();
    // localhost has an IPv6 and an IPv4 address, and gRPC reports the error of only one. A server
    // on IPv4 alone refuses IPv6, which hides the real error, so IPv4 is tried by itself.
    absl::string_view port = options_.address;
    if (absl::ConsumePrefix(&port, "localhost:") && absl::StrContains(status.message(), kNo6)) {
      ConnectOptions other = options_;
      other.address = absl::StrCat("127.0.0.1:", port);
      other.max_attempts = 1;
      if (WantsTls(other) && other.tls_server_name.empty()) other.tls_server_name = "localhost";
      absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(other);
      if (client.ok()) return (*client)->Connect(options.deadline.value());
    }
    const auto* const found = std::find_if(
        std::begin(kAdvice), std::end(kAdvice),
        [&](const Advice& one) { return absl::StrContains(status.message(), one.part); });
    const char* advice = found != std::end(kAdvice) ? found->advice
                         : WantsTls(options_)       ? kWithTls
                                                    : kWithoutTls;
    return absl::UnavailableError(absl::StrCat("cannot connect to ", options_.address, ": ",
                                               status.message(), *advice == '\0' ? "" : "; ",
                                               advice));
  }

  absl::Status GenerateOnce(const v1::GenerateRequest& request, TakeGenerated take,
                            const CallOptions& options) {
    grpc::ClientContext context;
    SRU_RETURN_UNLESS_OK(Prepare(options, &context));
    const Cancellation::Scope cancellation(options.cancellation, [&] { context.TryCancel(); });
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    bool has_enough = false;
    while (reader->Read(&response)) {
      if (!has_enough && !take(&response)) {
        has_enough = true;
        context.TryCancel();
      }
    }
    const grpc::Status status = reader->Finish();
    return has_enough ? absl::CancelledError(kCallerHasEnough) : FromGrpc(status);
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, const CallOptions& options) {
    SRU_RETURN_UNLESS_OK(CheckTexts(request));
    grpc::ClientContext context;
    SRU_RETURN_UNLESS_OK(Prepare(options, &context));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  absl::Status Prepare(const CallOptions& options, grpc::ClientContext* context) const {
    if (token_ != nullptr) context->AddMetadata("authorization", token_->Authorization());
    const bool has_trace = !options.traceparent.empty();
    for (const auto& [name, value] :
         {std::pair("request_id", &options.request_id),
          std::pair("traceparent", has_trace ? &options.traceparent : &options_.traceparent)}) {
      if (value->empty()) continue;
      // gRPC ends the process because of a value that it cannot send.
      if (value->size() > kMostIdBytes ||
          !std::all_of(value->begin(), value->end(), absl::ascii_isgraph)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": expected at most ", kMostIdBytes, " visible ASCII characters"));
      }
      context->AddMetadata(value == &options.request_id ? "x-request-id" : name, *value);
    }
    const absl::Duration deadline = options.deadline.value_or(options_.deadline);
    if (deadline != absl::InfiniteDuration()) {
      context->set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    }
    return absl::OkStatus();
  }

  const ConnectOptions options_;
  const std::unique_ptr<TokenFile> token_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::InferenceService::Stub> stub_;
  const std::unique_ptr<v1::AdminService::Stub> admin_stub_;
  grpc::TemplatedGenericStub<HealthRequest, HealthResponse> health_stub_;
};

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0xffu : exponent + 112) << 23 | mantissa << 13;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

std::string StartTrace() {
  std::random_device device;
  const auto random = [&device] {  // an id of zeros alone means none
    return absl::Hex(uint64_t{device()} << 32 | device() | 1, absl::kZeroPad16);
  };
  return absl::StrCat("00-", random(), random(), "-", random(), "-01");
}

const char* ServingStatusName(ServingStatus status) {
  static constexpr const char* kNames[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
  return kNames[static_cast<int>(status)];
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ConnectOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError("address: expected HOST:PORT, found nothing");
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return InvalidArgument("deadline: expected more than 0s, found ",
                           absl::FormatDuration(options.deadline));
  }
  if (options.max_attempts < 1 || options.max_attempts > 5) {
    return InvalidArgument("max_attempts: expected 1 to 5, found ", options.max_attempts);
  }
  if (options.initial_backoff < kMinBackoff || options.max_backoff < options.initial_backoff ||
      options.max_backoff == absl::InfiniteDuration()) {
    return InvalidArgument(
        "initial_backoff, max_backoff: expected ", absl::FormatDuration(kMinBackoff),
        " <= initial_backoff <= max_backoff, found ", absl::FormatDuration(options.initial_backoff),
        " and ", absl::FormatDuration(options.max_backoff));
  }
  if (options.max_message_bytes <= 0) {
    return InvalidArgument("max_message_bytes: expected more than 0, found ",
                           options.max_message_bytes);
  }
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no bound
  args.SetInt(kPingTimeoutArgument, kKeepaliveTimeoutMs);
  args.SetMaxReceiveMessageSize(options.max_message_bytes);
  args.SetServiceConfigJSON(
      ServiceConfigJson(options.max_attempts, options.initial_backoff, options.max_backoff));
  if (options.max_attempts == 1) args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (!options.only_serving) args.SetInt(GRPC_ARG_INHIBIT_HEALTH_CHECKING, 1);
  // A proxy would call its own machine, and it would see the token.
  if (StaysOnThisMachine(options.address)) args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SRU_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                       MakeChannelCredentials(options));
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<TokenFile> token, TokenFile::Open(options));
  if (!options.tls_server_name.empty()) {
    args.SetSslTargetNameOverride(options.tls_server_name);
  }
  for (const auto& [name, value] : options.channel_args) {
    if (const int* number = std::get_if<int>(&value)) {
      args.SetInt(name, *number);
    } else {
      args.SetString(name, std::get<std::string>(value));
    }
  }
  return std::make_unique<GrpcClient>(
      options, grpc::CreateCustomChannel(options.address, credentials, args), std::move(token));
}

std::optional<absl::Duration> RetryDelay(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryInfoUrl);
  if (!payload.has_value()) return std::nullopt;
  google::rpc::RetryInfo info;
  if (!info.ParseFromString(std::string(*payload)) || !info.has_retry_delay()) return std::nullopt;
  return absl::Seconds(info.retry_delay().seconds()) +
         absl::Nanoseconds(info.retry_delay().nanos());
}

v1::Sequence TextSequence(absl::string_view text) {
  v1::Sequence sequence;
  sequence.set_text(std::string(text));
  return sequence;
}

v1::Sequence TokensSequence(absl::Span<const std::string> tokens) {
  v1::Sequence sequence;
  sequence.mutable_tokens()->mutable_values()->Add(tokens.begin(), tokens.end());
  return sequence;
}

v1::Sequence TokenIdsSequence(absl::Span<const int32_t> ids) {
  v1::Sequence sequence;
  sequence.mutable_token_ids()->mutable_values()->Add(ids.begin(), ids.end());
  return sequence;
}

absl::StatusOr<std::vector<float>> EncodingValues(const v1::Encoding& encoding,
                                                  v1::OutputFormat format) {
  int64_t count = 1;
  for (const int64_t size : encoding.shape()) {
    if (size < 0 || (size > 0 && count > std::numeric_limits<int32_t>::max() / size)) {
      return InvalidArgument("shape: a size of ", size, " is not a size of an encoding");
    }
    count *= size;
  }
  const std::string& data = encoding.data();
  const int width = format == v1::OUTPUT_FORMAT_RAW_FLOAT32    ? 4
                    : format == v1::OUTPUT_FORMAT_RAW_FLOAT16  ? 2
                    : format == v1::OUTPUT_FORMAT_RAW_BFLOAT16 ? 2
                                                               : 0;  // bytes of a value in `data`
  const int64_t found =
      width == 0 ? encoding.values_size() : static_cast<int64_t>(data.size()) / width;
  if (found != count || (width != 0 && data.size() % width != 0)) {
    return InvalidArgument(width == 0 ? "values" : "data", ": expected ", count,
                           " values by the shape, found ", found);
  }
  if (width == 0) return std::vector<float>(encoding.values().begin(), encoding.values().end());
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;  // little-endian, as the wire
    std::memcpy(&bits, &data[i * width], width);
    if (format == v1::OUTPUT_FORMAT_RAW_FLOAT16) {
      values[i] = HalfToFloat(static_cast<uint16_t>(bits));
      continue;
    }
    if (width == 2) bits <<= 16;
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  return values;
}

}  // namespace sru::client
