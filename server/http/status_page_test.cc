#include "server/http/status_page.h"

#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/clock.h"
#include "server/telemetry/metrics.h"

namespace sru::server::http {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

ModelView Model(const std::string& name, int64_t version) {
  ModelView model;
  model.name = name;
  model.version = version;
  model.task = "classifier";
  model.labels = {"YES", "NO"};
  model.takes_text = true;
  return model;
}

class StatusPageTest : public ::testing::Test {
 protected:
  StatusPageTest() {
    snapshot_.time = absl::FromUnixMillis(1700000000250);
    snapshot_.state = "ready";
    snapshot_.limits.max_batch_tokens = 4096;
  }

  std::optional<PageResponse> Request(const std::string& path, const std::string& method = "GET",
                                      const std::string& query = "") {
    PageRequest request;
    request.method = method;
    request.path = path;
    request.query = query;
    request.peer = peer_;
    request.headers["host"] = host_;
    return page_.Handle(request);
  }
  json Status(const std::string& query = "") {
    return json::parse(Request("/status.json", "GET", query)->body);
  }

  StatusSnapshot snapshot_;
  std::string peer_ = "ipv4:127.0.0.1:4711";
  std::string host_ = "localhost:9090";
  StatusPage page_{[this] { return snapshot_; }, TryAccess::kLocal, {"sru.example"}};
};

std::string HeaderOf(const PageResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST_F(StatusPageTest, TheFilesAreThereAndLoadNothingFromElsewhere) {
  for (const auto& [path, type] :
       {std::pair{"/", "text/html"}, std::pair{"/index.html", "text/html"},
        std::pair{"/style.css", "text/css"}, std::pair{"/page.js", "text/javascript"},
        std::pair{"/chart.js", "text/javascript"}, std::pair{"/metrics.js", "text/javascript"},
        std::pair{"/box.js", "text/javascript"}, std::pair{"/boxes.js", "text/javascript"},
        std::pair{"/write.js", "text/javascript"}, std::pair{"/texts.js", "text/javascript"},
        std::pair{"/calls.js", "text/javascript"}, std::pair{"/table.js", "text/javascript"},
        std::pair{"/words.js", "text/javascript"}}) {
    SCOPED_TRACE(path);
    const auto response = Request(path);
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->content_type, absl::StrCat(type, "; charset=utf-8"));
    EXPECT_GT(response->body.size(), 100u);
    // The name of the SVG namespace is no address that anything is loaded from.
    const std::string body =
        absl::StrReplaceAll(response->body, {{"http://www.w3.org/2000/svg", ""}});
    for (const char* absent : {"//cdn", "http:", "https:", "innerHTML"}) {
      EXPECT_THAT(body, Not(HasSubstr(absent)));
    }
  }
  EXPECT_EQ(Request("/icon.svg")->content_type, "image/svg+xml");
  const auto page = Request("/");
  EXPECT_THAT(page->body, HasSubstr("<!DOCTYPE html>"));
  const std::string policy = HeaderOf(*page, "Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
  EXPECT_EQ(HeaderOf(*page, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(HeaderOf(*page, "X-Frame-Options"), "DENY");
}

TEST_F(StatusPageTest, OtherPathsAreNotThePages) {
  for (const char* path :
       {"/metrics", "/nope", "/v1/classify", "/status_page/page.js", "/../page.js", "//page.js"}) {
    EXPECT_FALSE(Request(path).has_value()) << path;
  }
}

TEST_F(StatusPageTest, OnlyReadingMethods) {
  for (const char* path : {"/", "/style.css", "/status.json"}) {
    EXPECT_EQ(Request(path, "HEAD")->status, 200) << path;
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
      const auto response = Request(path, method);
      EXPECT_EQ(response->status, 405) << method << " " << path;
      EXPECT_EQ(HeaderOf(*response, "Allow"), "GET, HEAD");
    }
  }
}

TEST_F(StatusPageTest, StatusHasServerModelsAndLimits) {
  snapshot_.models = {Model("trec", 1), Model("trec", 2)};
  snapshot_.models[1].latest = true;
  snapshot_.flags = {{"listen", "0.0.0.0:1", "SRU_LISTEN"}};
  snapshot_.models[0].state = "failed";
  snapshot_.models[0].reason = "model.safetensors: 12 bytes are missing";
  const json status = Status();
  EXPECT_EQ(status["time"], 1700000000.25);
  EXPECT_EQ(status["state"], "ready");
  EXPECT_EQ(status["limits"]["max_batch_tokens"], 4096);
  EXPECT_EQ(status["build"], json::parse(BuildJson()));
  EXPECT_EQ(status["build"]["commit"], "unknown");
  EXPECT_EQ(status["flags"],
            json({{{"name", "listen"}, {"value", "0.0.0.0:1"}, {"source", "SRU_LISTEN"}}}));
  ASSERT_EQ(status["models"].size(), 2u);
  EXPECT_EQ(status["models"][0]["state"], "failed");
  EXPECT_EQ(status["models"][0]["reason"], "model.safetensors: 12 bytes are missing");
  EXPECT_EQ(status["models"][0]["latest"], false);
  EXPECT_EQ(status["models"][0]["task"], "classifier");
  EXPECT_EQ(status["models"][1]["version"], 2);
  EXPECT_EQ(status["models"][1]["latest"], true);
  EXPECT_EQ(status["models"][1]["labels"], json({"YES", "NO"}));
}

TEST_F(StatusPageTest, StatusSaysWhetherThisViewerMayTry) {
  EXPECT_EQ(Status()["try"]["allowed"], true);
  peer_ = "ipv4:10.1.2.3:4711";
  const json access = Status()["try"];
  EXPECT_EQ(access["allowed"], false);
  EXPECT_THAT(access["reason"].get<std::string>(), HasSubstr("--status_page_try=all"));
}

bool MayTry(TryAccess access, const std::string& address, const std::string& host,
            const std::string& header = "accept") {
  const StatusPage page([] { return StatusSnapshot(); }, access, {"sru.example"});
  PageRequest request;
  const bool is_ipv6 = absl::StrContains(address, ':');
  request.peer =
      is_ipv6 ? absl::StrCat("ipv6:%5B", address, "%5D:80") : absl::StrCat("ipv4:", address, ":80");
  request.headers = {{"host", host}, {header, "anything"}};
  const absl::Status status = page.CheckAccess(request);
  EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status)) << status;
  return status.ok();
}

TEST(TryAccessTest, LocalMeansThisMachine) {
  for (const auto& [address, host, allowed] :
       std::vector<std::tuple<const char*, const char*, bool>>{
           {"127.0.0.1", "localhost:9090", true},
           {"127.0.0.1", "127.0.0.1:9090", true},
           {"127.8.9.1", "LOCALHOST", true},
           {"::1", "[::1]:9090", true},
           {"::ffff:127.0.0.1", "[::1]", true},
           {"10.0.0.7", "localhost:9090", false},
           {"::ffff:10.0.0.7", "localhost", false},
           {"2001:db8::1", "[::1]:9090", false},
           {"127.0.0.1", "10.0.0.7:9090", false},
           {"127.0.0.1", "[::ffff:127.0.0.1]:9090", true},
           {"127.0.0.1", "localhost:80@evil.example", false},
           {"127.0.0.1", "localhost:", false},
           {"127.0.0.1", "127.1", false},
           {"127.0.0.1", "evil.example:9090", false},
           {"127.0.0.1", "127.evil.example", false},
           {"127.0.0.1", "localhost, evil.example", false},
           {"127.0.0.1", "127.0.0.1.evil.example", false},
           {"127.0.0.1", "gpu-box", false},
           {"127.0.0.1", "", false},
           {"", "localhost", false},
       }) {
    EXPECT_EQ(MayTry(TryAccess::kLocal, address, host), allowed) << address << " " << host;
  }
  for (const char* header : {"x-forwarded-for", "forwarded", "via", "x-real-ip"}) {
    EXPECT_FALSE(MayTry(TryAccess::kLocal, "127.0.0.1", "localhost", header)) << header;
  }
}

// To the browser, the page under a stranger's name that points here is the stranger's own.
TEST(TryAccessTest, AllMeansEverybodyButUnderNamesOfStrangers) {
  for (const char* host :
       {"sru.example:9090", "10.0.0.7:9090", "[2001:db8::1]:9090", "localhost", "gpu-box:9090"}) {
    EXPECT_TRUE(MayTry(TryAccess::kAll, "10.0.0.8", host)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:9090", "127.0.0.1.evil.example",
                           "sru.example.evil.example", "localhost:80@evil.example", "127.1", ""}) {
    EXPECT_FALSE(MayTry(TryAccess::kAll, "10.0.0.8", host)) << host;
  }
}

TEST(TryAccessTest, OffMeansNobody) {
  EXPECT_FALSE(MayTry(TryAccess::kOff, "127.0.0.1", "localhost"));
}

TEST_F(StatusPageTest, IsNotShownUnderANameThatMayBeAStrangers) {
  for (const char* host : {"evil.example:9090", "127.0.0.1.evil.example", "localhost:1@x", ""}) {
    host_ = host;
    for (const char* path : {"/", "/page.js", "/status.json"}) {
      const auto response = Request(path);
      ASSERT_TRUE(response.has_value());
      EXPECT_EQ(response->status, 403) << host << path;
      EXPECT_THAT(response->body, Not(HasSubstr("trec")));
      EXPECT_EQ(HeaderOf(*response, "X-Content-Type-Options"), "nosniff");
    }
    EXPECT_FALSE(Request("/metrics").has_value());  // for machines, whatever they call the server
  }
  host_ = "evil.example";
  EXPECT_THAT(Request("/")->body, HasSubstr("--status_page_host=evil.example"));
  for (const char* host : {"10.0.0.7:9090", "[::1]:9090", "gpu-box", "SRU.example:9090"}) {
    host_ = host;
    EXPECT_EQ(Request("/status.json")->status, 200) << host;
  }
}

TEST_F(StatusPageTest, MetricsAreThoseOfTheScrape) {
  const RealClock clock;
  telemetry::Metrics metrics(&clock);
  const auto model = metrics.ForModel("trec", 3, 1000);
  telemetry::CallTimes times;
  times.total = absl::Milliseconds(3);
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, times);
  times.total = absl::Seconds(60);
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, times);
  telemetry::ServerLevels levels;
  levels.requests_in_flight = 7;
  snapshot_.metrics = metrics.Collect(levels);
  const json status = Status()["metrics"];

  EXPECT_EQ(status["sru_requests_in_flight"]["type"], "gauge");
  EXPECT_EQ(status["sru_requests_in_flight"]["series"],
            json::array({{{"labels", json::object()}, {"value", 7}}}));

  const json& calls = status["sru_requests_total"]["series"][0];
  EXPECT_EQ(calls["value"], 2);
  EXPECT_EQ(calls["labels"]["code"], "OK");
  EXPECT_EQ(calls["labels"]["model"], "trec");
  EXPECT_EQ(calls["labels"]["version"], "3");

  json classify;
  for (const json& series : status["sru_request_duration_seconds"]["series"]) {
    if (series["labels"]["method"] == "Classify") classify = series;
  }
  EXPECT_EQ(classify["count"], 2);
  EXPECT_DOUBLE_EQ(classify["sum"], 60.003);
  const size_t bounds = classify["bounds"].size();
  ASSERT_EQ(classify["counts"].size(), bounds + 1);
  for (size_t i = 0; i < bounds; ++i) {
    EXPECT_EQ(classify["counts"][i], classify["bounds"][i] < 0.003 ? 0 : 1) << i;
  }
  EXPECT_EQ(classify["counts"][bounds], 2);
}

TEST_F(StatusPageTest, HistoryIsThatOfTheModelThatTheQueryNames) {
  const RealClock clock;
  telemetry::Metrics metrics(&clock);
  telemetry::History history;
  const auto trec = metrics.ForModel("trec", 1, 1000);
  const auto other = metrics.ForModel("other", 2, 1000);
  const absl::Time start = absl::FromUnixSeconds(1700000000);
  history.Add({start, metrics.Collect({})});
  for (int i = 0; i < 6; ++i) trec->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, {});
  other->OnCall(calls::MethodId::kClassify, absl::StatusCode::kInternal, {});
  history.Add({start + absl::Seconds(3), metrics.Collect({})});
  snapshot_.models = {Model("trec", 1), Model("broken", 1)};
  EXPECT_EQ(Status()["history"]["times"], json::array());

  snapshot_.history = &history;
  json all = Status();
  EXPECT_EQ(all["history"]["interval_s"], 3);
  EXPECT_EQ(all["history"]["times"], json({1700000000, 1700000003}));
  EXPECT_EQ(all["history"]["figures"]["calls"], json({nullptr, 2.333}));
  EXPECT_EQ(all["history"]["figures"]["p50"], json({nullptr, 2.5e-05}));
  EXPECT_EQ(all["models"][0]["figures"]["calls"], 2);
  EXPECT_EQ(all["models"][1]["figures"], json::object());
  const json one = Status("model=other&version=2");
  EXPECT_EQ(one["history"]["figures"]["errors"], json({nullptr, 0.3333}));
  EXPECT_EQ(Status("model=nobody")["history"]["times"], json::array());
}

TEST_F(StatusPageTest, SlowCallsAndErrorsHaveTheirStages) {
  telemetry::RecentCall call;
  call.time = absl::FromUnixMillis(1700000000250);
  call.line =
      R"({"time":"2023-11-14T22:13:20Z","method":"Translate","code":"OK","peer":"ipv4:10.0.0.1:4",)"
      R"("request_id":"id-7","model":"ende","queue_us":4000,"rest_us":3000.5,"steps":12})";
  snapshot_.slow = absl::Milliseconds(5);
  snapshot_.slow_calls = {call};
  telemetry::RecentCall error;
  error.line = R"({"code":"UNAUTHENTICATED","reason":"there is no such token"})";
  snapshot_.errors = {error};
  const json status = Status();
  EXPECT_EQ(status["slow_calls"]["log_slow_ms"], 5);
  const json& slow = status["slow_calls"]["calls"][0];
  EXPECT_EQ(slow["time"], 1700000000.25);
  EXPECT_EQ(slow["request_id"], "id-7");
  EXPECT_EQ(slow["queue_us"], 4000);
  EXPECT_EQ(slow["rest_us"], 3000.5);
  EXPECT_EQ(slow["tokens"], 0);
  EXPECT_FALSE(slow.contains("peer")) << "the page does not say who called";
  EXPECT_EQ(slow["steps"], 12);
  EXPECT_EQ(status["errors"][0]["code"], "UNAUTHENTICATED");
  EXPECT_EQ(status["errors"][0]["error"], "there is no such token");
  EXPECT_FALSE(status["errors"][0].contains("total_us")) << "nobody knows";
}

TEST_F(StatusPageTest, TheDocumentsThatItLinksToAreThere) {
  const std::string page = Request("/")->body;
  int links = 0;
  for (size_t at = page.find("docs/"); at != std::string::npos; at = page.find("docs/", at + 1)) {
    const auto document = Request("/" + page.substr(at, page.find('"', at) - at));
    ASSERT_TRUE(document.has_value());
    EXPECT_EQ(document->content_type, "text/plain; charset=utf-8");
    EXPECT_THAT(document->body, HasSubstr("# "));
    ++links;
  }
  EXPECT_GE(links, 3);
  EXPECT_FALSE(Request("/docs/nothing.md").has_value());
}

TEST_F(StatusPageTest, BadTextOfAModelIsStillJson) {
  snapshot_.models = {Model("trec", 1)};
  snapshot_.models[0].description = "caf\xe9 </script> \"quoted\"";
  EXPECT_EQ(Status()["models"][0]["description"], "caf\xef\xbf\xbd </script> \"quoted\"");
}

TEST_F(StatusPageTest, ANumberThatJsonCannotHoldIsNull) {
  prometheus::MetricFamily family;
  family.name = "odd";
  family.type = prometheus::MetricType::Gauge;
  family.metric.emplace_back();
  family.metric[0].gauge.value = std::numeric_limits<double>::quiet_NaN();
  snapshot_.metrics = {family};
  EXPECT_TRUE(Status()["metrics"]["odd"]["series"][0]["value"].is_null());
}

}  // namespace
}  // namespace sru::server::http
