#include "server/http/metrics_server.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/http_get.h"

namespace sru::server {
namespace {

using ::sru::testing::HttpExchange;
using ::sru::testing::HttpGet;
using ::sru::testing::HttpResponse;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    MetricsServer::Pages pages;
    pages.metrics = [] { return std::string("sru_ready 1\n"); };
    pages.ready = [this] { return ready_.load(); };
    pages.other = [](const PageRequest& request) -> std::optional<PageResponse> {
      if (request.path != "/echo") return std::nullopt;
      PageResponse response;
      response.headers.emplace_back("X-Seen", request.header("x-custom"));
      absl::StatusOr<std::string> body = request.read_body();
      response.status = body.ok() ? 200 : 400;
      response.body = absl::StrCat(request.method, " from ", request.remote_address, ": ",
                                   body.ok() ? *body : body.status().ToString());
      return response;
    };
    pages.alive = [this] { return alive_.load(); };
    auto server = MetricsServer::Start({"127.0.0.1", 0}, pages);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }

  HttpResponse Get(const std::string& path, const std::string& method = "GET") {
    return HttpGet(server_->address().port, path, method);
  }
  HttpResponse Post(const std::string& head, const std::string& body) {
    return HttpExchange(server_->address().port,
                        "POST /echo HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n" + body);
  }

  std::atomic<bool> ready_{false};
  std::atomic<bool> alive_{true};
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, Metrics) {
  const HttpResponse response = Get("/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "sru_ready 1\n");
  EXPECT_THAT(response.headers, HasSubstr("Content-Type: text/plain; version=0.0.4"));
}

TEST_F(MetricsServerTest, HealthIsOkUntilNothingButANewStartHelps) {
  EXPECT_EQ(Get("/healthz").status, 200);
  alive_ = false;
  EXPECT_EQ(Get("/healthz").status, 503);
}

TEST_F(MetricsServerTest, HealthIsOkWhileReadyChanges) {
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  ready_ = true;
  EXPECT_EQ(Get("/readyz").status, 200);
  ready_ = false;
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(MetricsServerTest, OtherPathsSayWhatThereIs) {
  for (const char* path : {"/nope", "/metrics/x", "/nope?x=1"}) {
    const HttpResponse response = Get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("/, /status.json, /metrics, /healthz and /readyz"));
  }
}

TEST_F(MetricsServerTest, HeadHasNoBody) {
  const HttpResponse response = Get("/metrics", "HEAD");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "");
  EXPECT_THAT(response.headers, HasSubstr("Content-Length: 12"));
}

TEST_F(MetricsServerTest, OwnPathsAreOnlyRead) {
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
      const HttpResponse response = Get(path, method);
      EXPECT_EQ(response.status, 405) << method << " " << path;
      EXPECT_THAT(response.headers, HasSubstr("Allow: GET, HEAD"));
    }
  }
}

TEST_F(MetricsServerTest, OtherPathsSeeTheRequest) {
  const HttpResponse response =
      Post("Content-Length: 5\r\nX-Custom: a\r\nx-custom: b\r\n", "hello");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST from 127.0.0.1: hello");
  EXPECT_THAT(response.headers, HasSubstr("X-Seen: a, b"));
}

TEST_F(MetricsServerTest, BodiesAreBounded) {
  EXPECT_THAT(Post("", "").body, HasSubstr("Content-Length"));
  EXPECT_THAT(Post("Content-Length: 65537\r\n", std::string(65537, 'x')).body,
              HasSubstr("65537 bytes, expected at most 65536"));
  const HttpResponse largest = Post("Content-Length: 65536\r\n", std::string(65536, 'x'));
  EXPECT_EQ(largest.status, 200);
  EXPECT_EQ(largest.body.size(), 65536 + std::string("POST from 127.0.0.1: ").size());
}

TEST_F(MetricsServerTest, ABrowserIsNotToldThatOtherSitesMayCall) {
  const HttpResponse response = HttpExchange(
      server_->address().port,
      "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-sru-try\r\n"
      "Content-Length: 0\r\n\r\n");
  EXPECT_THAT(response.body, HasSubstr("OPTIONS from"));  // the handler answers, not civetweb
  EXPECT_THAT(absl::AsciiStrToLower(response.headers), Not(HasSubstr("access-control")));
}

TEST_F(MetricsServerTest, ATakenPortIsAnError) {
  const auto second = MetricsServer::Start(server_->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address().ToString()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--metrics_listen"));
}

}  // namespace
}  // namespace sru::server
