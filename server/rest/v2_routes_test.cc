// The routes below /v2 against a service that answers what it was asked.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/rest/api_routes.h"
#include "tests/testing/fake_methods.h"
#include "tests/testing/notification.h"
#include "tests/testing/plain_rest_call.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
using ::sru::testing::FakeEnd;
using ::sru::testing::FakeUnary;
using ::testing::HasSubstr;

struct FakeService {
  bool ready = true;

  std::vector<calls::Method> Rows() {
    constexpr char kService[] = "inference.GRPCInferenceService";
    return {
        FakeUnary<inference::ServerLiveRequest, inference::ServerLiveResponse>(
            kService, "ServerLive",
            [](auto&, const auto&, auto* response) {
              response->set_live(true);
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ServerReadyRequest, inference::ServerReadyResponse>(
            kService, "ServerReady",
            [this](auto&, const auto&, auto* response) {
              response->set_ready(ready);
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
            kService, "ServerMetadata",
            [](auto&, const auto&, auto* response) {
              response->set_name("sru_server");
              response->add_extensions("binary_tensor_data");
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ModelReadyRequest, inference::ModelReadyResponse>(
            kService, "ModelReady",
            [](auto&, const auto& request, auto* response) {
              response->set_ready(request.name() == "trec");
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
            kService, "ModelMetadata",
            [](auto&, const auto& request, auto* response) {
              if (request.name() != "trec") {
                return FakeEnd(absl::NotFoundError("model '" + request.name() + "' is not loaded"));
              }
              response->set_name(request.name());
              response->add_versions(request.version().empty() ? "1" : request.version());
              response->set_platform("sru");
              auto* input = response->add_inputs();
              input->set_name("text");
              input->set_datatype("BYTES");
              input->add_shape(-1);
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ModelConfigRequest, inference::ModelConfigResponse>(
            kService, "ModelConfig",
            [](auto&, const auto& request, auto* response) {
              auto& config = *response->mutable_config();
              config.set_name(request.name());
              config.set_max_batch_size(256);
              config.add_input()->set_data_type(inference::TYPE_STRING);
              (*config.mutable_parameters())["task"].set_string_value("classifier");
              config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(1ULL << 60);
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
            kService, "ModelStatistics",
            [](auto&, const auto& request, auto* response) {
              auto* stats = response->add_model_stats();
              stats->set_name(request.name().empty() ? "all" : request.name());
              stats->set_inference_count(1ULL << 60);
              stats->mutable_inference_stats()->mutable_success()->set_count(3);
              return FakeEnd(absl::OkStatus());
            }),
        FakeUnary<inference::ModelInferRequest, inference::ModelInferResponse>(
            kService, "ModelInfer", [](auto&, const auto& request, auto* response) {
              if (request.model_name() != "trec") {
                return FakeEnd(
                    absl::NotFoundError("model '" + request.model_name() + "' is not loaded"));
              }
              response->set_model_name(request.model_name());
              response->set_model_version(request.model_version());
              response->set_id(request.id());
              for (int i = 0; i < request.inputs_size(); ++i) {
                auto* output = response->add_outputs();
                output->set_name(request.inputs(i).name());
                output->set_datatype(request.inputs(i).datatype());
                *output->mutable_shape() = request.inputs(i).shape();
                response->add_raw_output_contents(request.raw_input_contents(i));
              }
              return FakeEnd(absl::OkStatus());
            })};
  }
};

class FakeCall final : public sru::testing::PlainRestCall {
 public:
  FakeCall(const calls::MethodTable* methods, http::PageRequest request, std::string body,
           std::map<std::string, std::string> parameters)
      : PlainRestCall(std::move(request), std::move(body)),
        methods_(*methods),
        parameters_(std::move(parameters)) {
    errors = ErrorForm::kOpenInference;
  }

  const std::string& parameter(const std::string& name) const override {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? PlainRestCall::parameter(name) : found->second;
  }
  std::shared_ptr<calls::LocalCall> Unary(const std::string& method, absl::Cord request,
                                          calls::LocalCalls::OnDone done) override {
    return calls_.Unary(*methods_.Find(method), std::move(request), {}, std::move(done));
  }
  void Reply(http::PageResponse given) override {
    PlainRestCall::Reply(std::move(given));
    answered_.Notify();
  }

  const http::PageResponse& Wait() {
    EXPECT_TRUE(answered_.Wait());
    return response;
  }

 private:
  const calls::MethodTable& methods_;
  calls::LocalCalls calls_;
  const std::map<std::string, std::string> parameters_;
  sru::testing::Notification answered_;
};

class V2RoutesTest : public ::testing::Test {
 protected:
  V2RoutesTest() {
    group_ = OpenInferenceRoutes();
    for (const Route& route : group_.routes) table_.Add(route);
  }

  http::PageResponse Send(const std::string& method, const std::string& path,
                          const std::string& body = "", const std::string& json_length = "") {
    const RouteTable::Match match = table_.Find(method, path);
    if (match.route == nullptr) {
      ADD_FAILURE() << "no route for " << method << " " << path;
      return {};
    }
    http::PageRequest request;
    request.method = method;
    request.path = path;
    if (!json_length.empty()) request.headers["inference-header-content-length"] = json_length;
    EXPECT_EQ(match.route->error_form, ErrorForm::kOpenInference);
    const auto call =
        std::make_shared<FakeCall>(&methods_, std::move(request), body, match.parameters);
    match.route->handle(call);
    return call->Wait();
  }
  json Get(const std::string& path, int status = 200) {
    const http::PageResponse page = Send("GET", path);
    EXPECT_EQ(page.status, status) << page.body;
    EXPECT_EQ(page.content_type, "application/json");
    return json::parse(page.body);
  }

  FakeService service_;
  const calls::MethodTable methods_{service_.Rows()};
  RouteGroup group_;
  RouteTable table_;
};

TEST_F(V2RoutesTest, ServerAndHealth) {
  EXPECT_EQ(Get("/v2"), json::parse(R"({"name":"sru_server","version":"",
                                        "extensions":["binary_tensor_data"]})"));
  EXPECT_EQ(Get("/v2/health/live"), json({{"live", true}}));
  EXPECT_EQ(Get("/v2/health/ready"), json({{"ready", true}}));
  service_.ready = false;
  EXPECT_EQ(Get("/v2/health/ready", 503), json({{"ready", false}}));
}

TEST_F(V2RoutesTest, Models) {
  EXPECT_EQ(Get("/v2/models/trec"), json::parse(R"({"name":"trec","versions":["1"],"platform":"sru",
                            "inputs":[{"name":"text","datatype":"BYTES","shape":[-1]}],
                            "outputs":[]})"));
  EXPECT_EQ(Get("/v2/models/trec/versions/7")["versions"], json({"7"}));
  EXPECT_EQ(Get("/v2/models/nope", 404),
            json::parse(R"({"error":"model 'nope' is not loaded","code":"NOT_FOUND"})"));
  EXPECT_EQ(Get("/v2/models/trec/ready"), json::parse(R"({"name":"trec","ready":true})"));
  EXPECT_EQ(Get("/v2/models/nope/versions/1/ready", 503),
            json::parse(R"({"name":"nope","ready":false})"));
}

TEST_F(V2RoutesTest, ConfigAndStatisticsHaveNumbersAndTheProtosNames) {
  const json config = Get("/v2/models/trec/config");
  EXPECT_EQ(config["max_batch_size"], 256);
  EXPECT_EQ(config["input"][0]["data_type"], "TYPE_STRING");
  EXPECT_EQ(config["input"][0]["dims"], json::array());
  EXPECT_EQ(config["parameters"], json::parse(R"({"task":{"string_value":"classifier"}})"));
  EXPECT_EQ(config["dynamic_batching"]["max_queue_delay_microseconds"], 1ULL << 60);
  EXPECT_FALSE(config.contains("version_policy"));
  EXPECT_EQ(Get("/v2/models/stats")["model_stats"][0]["name"], "all");
  const json stats = Get("/v2/models/trec/versions/1/stats")["model_stats"][0];
  EXPECT_EQ(stats["name"], "trec");
  EXPECT_EQ(stats["inference_count"], 1ULL << 60);
  EXPECT_EQ(stats["inference_stats"]["success"], json::parse(R"({"count":3,"ns":0})"));
}

TEST_F(V2RoutesTest, Infer) {
  const std::string body =
      R"({"id":"7","inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1.5,"NaN"]}]})";
  const http::PageResponse page = Send("POST", "/v2/models/trec/versions/3/infer", body);
  EXPECT_EQ(page.status, 200) << page.body;
  EXPECT_EQ(json::parse(page.body),
            json::parse(R"({"model_name":"trec","model_version":"3","id":"7","outputs":[
                {"name":"x","datatype":"FP32","shape":[2],"data":[1.5,"NaN"]}]})"));
  const http::PageResponse unknown = Send("POST", "/v2/models/nope/infer", body);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body)["error"], "model 'nope' is not loaded");
  const http::PageResponse bad = Send("POST", "/v2/models/trec/infer", "{");
  EXPECT_EQ(bad.status, 400);
  EXPECT_THAT(json::parse(bad.body)["error"], HasSubstr("JSON, byte 1"));
}

TEST_F(V2RoutesTest, InferWithBinaryData) {
  const std::string values(100000, 'v');
  const std::string head =
      R"({"inputs":[{"name":"x","shape":[25000],"datatype":"INT32","parameters":{"binary_data_size":100000}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const http::PageResponse page =
      Send("POST", "/v2/models/trec/infer", head + values, std::to_string(head.size()));
  ASSERT_EQ(page.status, 200) << page.body;
  EXPECT_EQ(page.content_type, "application/octet-stream");
  ASSERT_EQ(page.headers.size(), 1U);
  EXPECT_EQ(page.headers[0].first, "Inference-Header-Content-Length");
  EXPECT_EQ(page.body.substr(std::stoul(page.headers[0].second)), values);
}

TEST_F(V2RoutesTest, TheRepositoryIsRefused) {
  for (const char* path : {"/v2/repository/index", "/v2/repository/models/trec/load",
                           "/v2/repository/models/trec/unload"}) {
    const http::PageResponse page = Send("POST", path);
    EXPECT_EQ(page.status, 501);
    EXPECT_THAT(json::parse(page.body)["error"], HasSubstr("--admin_listen"));
  }
}

// /openapi.json is made of these; a validator reads the whole of it elsewhere.
TEST_F(V2RoutesTest, EveryRouteIsDescribed) {
  const json schemas = group_.schemas();
  std::map<std::string, std::string> ids;
  for (const Route& route : group_.routes) {
    SCOPED_TRACE(route.method + " " + route.path);
    ASSERT_NE(route.openapi, nullptr);
    const json operation = route.openapi();
    EXPECT_TRUE(ids.emplace(operation["operationId"], route.path).second)
        << operation["operationId"];
    EXPECT_TRUE(operation["responses"].contains("default"));
    const std::string text = operation.dump() + schemas.dump();
    const std::string prefix = "#/components/schemas/";
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      const size_t begin = at + prefix.size();
      const std::string name = text.substr(begin, text.find('"', begin) - begin);
      EXPECT_TRUE(schemas.contains(name)) << name;
    }
  }
}

}  // namespace
}  // namespace sru::server::rest
