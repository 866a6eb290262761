// A real server in this process, on ports of its own, and everything that a test needs to call it.
#ifndef SRU_TESTS_INTEGRATION_SERVER_FIXTURE_H_
#define SRU_TESTS_INTEGRATION_SERVER_FIXTURE_H_

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/rpc/retry.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/server.h"
#include "sru/v1/admin.grpc.pb.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/http_get.h"
#include "tests/testing/poll.h"

namespace sru::testing {

inline constexpr char kBundledRepository[] = "models/pretrained";

inline server::Options TestOptions(const std::string& repository) {
  server::Options options;
  options.models.repository = repository;
  options.listen = {"127.0.0.1", 0};
  options.http.metrics_listen = {"127.0.0.1", 0};
  options.http.http_listen = server::ListenAddress{"127.0.0.1", 0};
  options.drain_timeout = absl::Seconds(60);
  // As the program reads it: a test runs against either transport.
  if (const char* const transport = std::getenv("SRU_GRPC_TRANSPORT")) {
    options.transport.transport = absl::string_view(transport) == "library"
                                      ? server::door::GrpcTransport::kLibrary
                                      : server::door::GrpcTransport::kNative;
  }
  return options;
}

inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // By default, channels to the same target share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

inline grpc::ByteBuffer ToBytes(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string FromBytes(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return "";
  std::string flat;
  for (const grpc::Slice& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return flat;
}

inline grpc::Status LoadModel(v1::AdminService::Stub& admin, const std::string& model,
                              v1::LoadModelResponse* response = nullptr) {
  grpc::ClientContext context;
  v1::LoadModelRequest request;
  request.set_model(model);
  v1::LoadModelResponse ignored;
  return admin.LoadModel(&context, request, response != nullptr ? response : &ignored);
}

inline grpc::Status UnloadModel(v1::AdminService::Stub& admin, const std::string& model) {
  grpc::ClientContext context;
  v1::UnloadModelRequest request;
  request.set_model(model);
  v1::UnloadModelResponse response;
  return admin.UnloadModel(&context, request, &response);
}

// Whether the status says when to come back, and nothing else.
inline bool HasRetryInfo(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry_info;
  return details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
         details.details(0).UnpackTo(&retry_info) &&
         retry_info.retry_delay().seconds() + retry_info.retry_delay().nanos() > 0;
}

// The value of a metric line, such as `sru_ready`, in the text of /metrics at this port; -1 if it
// is absent.
inline double MetricAt(int port, const std::string& series) {
  const std::string text = "\n" + HttpGet(port, "/metrics").body;
  const size_t at = text.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + series.size() + 2);
}

// Matches a status of gRPC that has this code and a message that `message` matches.
MATCHER_P2(Fails, code, message, "") {
  *result_listener << "code " << arg.error_code() << ", message " << arg.error_message();
  return arg.error_code() == code &&
         ::testing::ExplainMatchResult(message, arg.error_message(), result_listener);
}

// The method of the service that takes a request of this type.
using ServiceStub = v1::InferenceService::Stub;
constexpr auto MethodFor(const v1::AnswerRequest&) { return &ServiceStub::Answer; }
constexpr auto MethodFor(const v1::ClassifyRequest&) { return &ServiceStub::Classify; }
constexpr auto MethodFor(const v1::DetokenizeRequest&) { return &ServiceStub::Detokenize; }
constexpr auto MethodFor(const v1::EncodeRequest&) { return &ServiceStub::Encode; }
constexpr auto MethodFor(const v1::GetModelRequest&) { return &ServiceStub::GetModel; }
constexpr auto MethodFor(const v1::ListModelsRequest&) { return &ServiceStub::ListModels; }
constexpr auto MethodFor(const v1::ScoreRequest&) { return &ServiceStub::Score; }
constexpr auto MethodFor(const v1::TagRequest&) { return &ServiceStub::Tag; }
constexpr auto MethodFor(const v1::TokenizeRequest&) { return &ServiceStub::Tokenize; }
constexpr auto MethodFor(const v1::TranslateRequest&) { return &ServiceStub::Translate; }

template <typename Request, typename Response>
Response ResponseOf(grpc::Status (ServiceStub::*)(grpc::ClientContext*, const Request&, Response*));
// The response that answers a request of this type.
template <typename Request>
using ResponseFor = decltype(ResponseOf(MethodFor(std::declval<Request>())));

// The messages of grpc.health.v1 by hand: HealthCheckRequest{service = 1},
// HealthCheckResponse{status = 1}.
inline std::string HealthRequest(const std::string& service) {
  if (service.empty()) return "";
  return absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
}
inline const std::string kServing("\x08\x01", 2);

class RunningServer {
 public:
  // A server that does not start ends the test with its error.
  explicit RunningServer(const server::Options& options) : RunningServer(nullptr, options) {}
  // Null: the options choose the backend.
  RunningServer(std::unique_ptr<kernels::Backend> backend, const server::Options& options)
      : server_(server::Server::Start(options, std::move(backend)).value()),
        channel_(MakeChannel(server_->address().ToString())),
        stub_(v1::InferenceService::NewStub(channel_)) {}

  server::Server& server() { return *server_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::InferenceService::Stub& stub() { return *stub_; }
  int port() const { return server_->address().port; }
  int http_port() const { return server_->http_address()->port; }
  int metrics_port() const { return server_->metrics_address().port; }
  // A stub of the port on which an operator loads and unloads models.
  std::unique_ptr<v1::AdminService::Stub> AdminStub() const {
    return v1::AdminService::NewStub(MakeChannel(server_->admin_address()->ToString()));
  }

  template <typename Request>
  grpc::Status Call(const Request& request, ResponseFor<Request>* response,
                    absl::Duration timeout = absl::InfiniteDuration()) {
    grpc::ClientContext context;
    if (timeout != absl::InfiniteDuration()) {
      context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    }
    return (*stub_.*MethodFor(request))(&context, request, response);
  }
  template <typename Request>
  grpc::Status Call(const Request& request) {
    ResponseFor<Request> ignored;
    return Call(request, &ignored);
  }
  // The response to a request that must be answered.
  template <typename Request>
  ResponseFor<Request> Must(const Request& request) {
    ResponseFor<Request> response;
    const grpc::Status status = Call(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // Calls `method` ("/package.Service/Method") with bytes that may be anything.
  grpc::Status CallRaw(const std::string& method, const std::string& request,
                       std::string* response = nullptr) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    const grpc::ByteBuffer request_bytes = ToBytes(request);
    grpc::ByteBuffer response_bytes;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request_bytes, &response_bytes,
                   [&done](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    if (status.ok() && response != nullptr) *response = FromBytes(response_bytes);
    return status;
  }

  // "SERVING", "NOT_SERVING", or the code of an error; "" asks for the server itself.
  std::string Health(const std::string& service) {
    std::string response;
    const grpc::Status status =
        CallRaw("/grpc.health.v1.Health/Check", HealthRequest(service), &response);
    if (!status.ok()) return absl::StrCat("code ", status.error_code());
    if (response == kServing) return "SERVING";
    return response == "\x08\x02" ? "NOT_SERVING"
                                  : absl::StrCat("0x", absl::BytesToHexString(response));
  }

  HttpResponse Get(const std::string& path) { return HttpGet(metrics_port(), path); }

  double Metric(const std::string& series) { return MetricAt(metrics_port(), series); }
  // Waits until a metric has this value; false if that takes too long.
  bool Becomes(const std::string& series, double value) {
    return PollUntil([&] { return Metric(series) == value; });
  }
  // Calls leave the counts a moment after their answers.
  void ExpectIdle() {
    for (const char* series :
         {"sru_requests_in_flight", "sru_open_streams", "sru_inflight_bytes"}) {
      EXPECT_TRUE(Becomes(series, 0)) << series << " " << Metric(series);
    }
  }

 private:
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_INTEGRATION_SERVER_FIXTURE_H_
