#include "server/metrics_server.h"

#include <atomic>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/http_get.h"

namespace sru::server {
namespace {

using ::sru::testing::HttpGet;
using ::sru::testing::HttpResponse;
using ::testing::HasSubstr;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    MetricsServer::Pages pages;
    pages.metrics = [] { return std::string("sru_ready 1\n"); };
    pages.ready = [this] { return ready_.load(); };
    pages.alive = [this] { return alive_.load(); };
    auto server = MetricsServer::Start({"127.0.0.1", 0}, pages);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }

  HttpResponse Get(const std::string& path, const std::string& method = "GET") {
    return HttpGet(server_->address().port, path, method);
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
  for (const char* path : {"/", "/metrics/x", "/nope?x=1"}) {
    const HttpResponse response = Get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("/metrics, /healthz and /readyz"));
  }
}

TEST_F(MetricsServerTest, HeadHasNoBody) {
  const HttpResponse response = Get("/metrics", "HEAD");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "");
  EXPECT_THAT(response.headers, HasSubstr("Content-Length: 12"));
}

TEST_F(MetricsServerTest, ATakenPortIsAnError) {
  const auto second = MetricsServer::Start(server_->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address().ToString()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--metrics_listen"));
}

}  // namespace
}  // namespace sru::server
