#include "server/http/metrics_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/http_get.h"
#include "tests/testing/notification.h"
#include "tests/testing/poll.h"
#include "tests/testing/slow_connection.h"

namespace sru::server::http {
namespace {

using ::sru::testing::HttpExchange;
using ::sru::testing::HttpGet;
using ::sru::testing::HttpResponse;
using ::sru::testing::Notification;
using ::sru::testing::PollUntil;
using ::sru::testing::SlowConnection;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    MetricsServer::Pages pages;
    pages.metrics = [] { return std::string("sru_ready 1\n"); };
    pages.probes.not_ready = [this] { return std::string(ready_ ? "" : "loading"); };
    pages.call = [this](calls::HttpExchange* exchange,
                        const PageRequest& request) -> std::shared_ptr<HttpCall> {
      if (request.path == "/echo") return std::make_shared<PageCall>(exchange, request, Echo);
      if (request.path != "/call") return nullptr;
      return std::make_shared<PageCall>(exchange, request,
                                        [this](const std::shared_ptr<HttpCall>& call) {
                                          MutexLock lock(&mutex_);
                                          call_ = call;
                                        });
    };
    pages.probes.alive = [this] { return alive_.load(); };
    auto server = MetricsServer::Start({"127.0.0.1", 0}, pages);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }

  static void Echo(const std::shared_ptr<HttpCall>& call) {
    const PageRequest& request = call->request();
    PageResponse response;
    response.headers.emplace_back("X-Seen", request.header("x-custom"));
    const absl::StatusOr<std::string> body = call->TakeBody();
    response.status = body.ok() ? 200 : 400;
    response.body = absl::StrCat(request.method, " from ", request.remote_address(), ": ",
                                 body.ok() ? *body : body.status().ToString());
    call->Reply(std::move(response));
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
  Mutex mutex_;
  std::shared_ptr<HttpCall> call_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<MetricsServer> server_;
};

// In parts, as a text is; a client that goes away ends it.
TEST_F(MetricsServerTest, ACallIsAnsweredWhenItHasEnded) {
  auto client = std::make_unique<SlowConnection>(
      server_->address().port,
      "POST /call HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
  std::shared_ptr<HttpCall> call;
  ASSERT_TRUE(PollUntil([&] {
    MutexLock lock(&mutex_);
    call = call_;
    return call != nullptr;
  }));
  EXPECT_EQ(*call->TakeBody(), "{}");
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/echo").status, 400);
  const std::unique_ptr<PageStream> stream = call->ReplyInParts(PageResponse());
  stream->AsyncWrite("first", [](bool) {});
  std::string answer;
  EXPECT_TRUE(PollUntil([&] {
    answer += client->ReadSome();
    return absl::StrContains(answer, "5\r\nfirst\r\n");
  }));
  client = nullptr;
  std::atomic<bool> gone{false};
  EXPECT_TRUE(PollUntil([&] {
    stream->AsyncWrite("x", [&](bool more) { gone = gone || !more; });
    return gone.load();
  }));
}

TEST_F(MetricsServerTest, Metrics) {
  const HttpResponse response = Get("/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "sru_ready 1\n");
  EXPECT_THAT(response.headers, HasSubstr("Content-Type: text/plain; version=0.0.4"));
}

TEST_F(MetricsServerTest, Version) {
  const HttpResponse response = Get("/version");
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.headers, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(response.body, HasSubstr("\"commit\":\"unknown\""));
}

TEST_F(MetricsServerTest, HealthIsOkUntilNothingButANewStartHelps) {
  EXPECT_EQ(Get("/healthz").status, 200);
  alive_ = false;
  EXPECT_EQ(Get("/healthz").status, 503);
}

TEST_F(MetricsServerTest, HealthIsOkWhileReadyChanges) {
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/readyz").body, "not ready: loading\n");
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
    EXPECT_THAT(response.body,
                HasSubstr("/, /status.json, /version, /metrics, /healthz and /readyz"));
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
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n"
      "Content-Length: 0\r\n\r\n");
  EXPECT_THAT(response.body, HasSubstr("OPTIONS from"));  // the handler answers
  EXPECT_THAT(absl::AsciiStrToLower(response.headers), Not(HasSubstr("access-control")));
}

TEST_F(MetricsServerTest, ABodyThatIsNotWholeAtTheEndIsAnswered) {
  SlowConnection client(server_->address().port,
                        "POST /nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                        "Content-Length: 10\r\n\r\n");
  std::string answer;
  ASSERT_TRUE(PollUntil([&] {
    answer += client.ReadSome();
    return absl::StrContains(answer, "100 Continue\r\n\r\n");
  }));
  client.Send("half");
  server_ = nullptr;
  answer = client.ReadAll();
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 503 "));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(answer, HasSubstr("the server is shutting down"));
}

TEST_F(MetricsServerTest, ATakenPortIsAnError) {
  const auto second = MetricsServer::Start(server_->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address().ToString()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--metrics_listen"));
}

// What strangers may send to the port.
TEST_F(MetricsServerTest, WhatIsNoRequestIsRefused) {
  const int port = server_->address().port;
  const auto status = [port](const std::string& bytes) { return HttpExchange(port, bytes).status; };
  EXPECT_EQ(status("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS, for one\r\n\r\n"), 400);
  EXPECT_EQ(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /healthz\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /healthz HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 400);
  EXPECT_EQ(status("POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /healthz HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("GET /" + std::string(20000, 'x') + " HTTP/1.1\r\n\r\n"), 431);
  // A body of unknown length is not read.
  EXPECT_THAT(Post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n").body,
              HasSubstr("Content-Length"));
  // The requests of old clients and of hasty ones.
  EXPECT_EQ(status("GET /healthz HTTP/1.0\r\n\r\n"), 200);
  EXPECT_EQ(status("GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /healthz?verbose HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: "
                   "x\r\n\r\n"),
            200);
}

TEST_F(MetricsServerTest, AClientMayAskBeforeItSendsTheBody) {
  SlowConnection client(server_->address().port,
                        "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                        "Content-Length: 5\r\n\r\n");
  client.Send("hello");
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("POST from 127.0.0.1: hello"));
}

constexpr char kHalfARequest[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";

struct SlowClients {
  const char* name;
  std::string bytes;  // that each of them sends
  int receive_buffer = 0;
  bool goes_on = false;  // a byte at a time
};

// With times so long that none is up, and fewer connections than there are clients, or with the
// usual bounds.
class SlowClientsTest : public ::testing::TestWithParam<std::tuple<bool, SlowClients>> {
 protected:
  SlowClientsTest() {
    MetricsServer::Pages pages;
    pages.metrics = [] { return std::string(1 << 20, 'x'); };
    pages.probes.not_ready = [] { return ""; };
    HttpServer::Limits limits;
    if (std::get<0>(GetParam())) {
      limits.max_connections = 64;
      limits.header_timeout = limits.body_timeout = limits.answer_timeout = absl::Hours(1);
    }
    server_ = *MetricsServer::Start({"127.0.0.1", 0}, pages, limits);
    idle_ = Probe([] {});
  }

  // The times of 40 probes, sorted. Before each probe, `go_on` makes the clients act once more.
  template <typename GoOn>
  std::vector<milliseconds> Probe(const GoOn& go_on) {
    std::vector<milliseconds> times;
    for (int i = 0; i < 20; ++i) {
      for (const char* path : {"/healthz", "/readyz"}) {
        go_on();
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(HttpGet(server_->address().port, path).status, 200);
        times.push_back(
            std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start));
      }
    }
    std::sort(times.begin(), times.end());
    return times;
  }
  std::unique_ptr<MetricsServer> server_;
  std::vector<milliseconds> idle_;  // of probes without other clients; the machine may be busy
  std::vector<std::unique_ptr<SlowConnection>> clients_;
};

TEST_P(SlowClientsTest, DoNotHoldUpProbes) {
  const SlowClients& kind = std::get<1>(GetParam());
  for (int i = 0; i < 300; ++i) {
    clients_.push_back(
        std::make_unique<SlowConnection>(server_->address().port, kind.bytes, kind.receive_buffer));
    ASSERT_TRUE(clients_.back()->connected());
  }
  const std::vector<milliseconds> times = Probe([&] {
    for (size_t i = 0; kind.goes_on && i < clients_.size(); ++i) clients_[i]->Send("x");
  });
  EXPECT_LT(times[times.size() / 2], milliseconds(100) + 5 * idle_[idle_.size() / 2]);
  EXPECT_LT(times.back(), milliseconds(1500) + 5 * idle_.back());
  EXPECT_EQ(HttpGet(server_->address().port, "/metrics").status, 200);
}

INSTANTIATE_TEST_SUITE_P(
    Bounds, SlowClientsTest,
    ::testing::Combine(
        ::testing::Bool(),
        ::testing::Values(SlowClients{"Silent", ""}, SlowClients{"HalfARequest", kHalfARequest},
                          SlowClients{"AByteAtATime", kHalfARequest, 0, /*goes_on=*/true},
                          SlowClients{
                              "HalfABody",
                              "POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                              "60000\r\n\r\n{"},
                          SlowClients{"AnswersUnread",
                                      "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 4096})),
    [](const auto& info) {
      return absl::StrCat(std::get<1>(info.param).name,
                          std::get<0>(info.param) ? "FewConnections" : "UsualBounds");
    });

// A server whose bounds a test chooses, with pages that wait and throw.
class BoundsTest : public ::testing::Test {
 protected:
  BoundsTest() {
    pages_.metrics = [this] {
      if (++metrics_ == 1) {
        EXPECT_TRUE(hold_.Wait());
      }
      return std::string("sru_ready 1\n");
    };
    pages_.probes.not_ready = [] { return ""; };
    pages_.call = [](calls::HttpExchange* exchange,
                     const PageRequest& request) -> std::shared_ptr<HttpCall> {
      if (request.path != "/body") return nullptr;
      return std::make_shared<PageCall>(exchange, request, AnswerBody);
    };
    pages_.other = [this](const PageRequest& request) -> std::optional<PageResponse> {
      PageResponse response;
      if (request.path == "/hold") {
        ++held_;
        EXPECT_TRUE(hold_.Wait());
      } else if (request.path == "/large") {
        response.body = std::string(16 << 20, 'x');
      } else if (request.path == "/no_memory") {
        throw std::bad_alloc();
      } else {
        throw std::runtime_error("a bug");
      }
      return response;
    };
  }
  ~BoundsTest() override { hold_.Notify(); }

  static void AnswerBody(const std::shared_ptr<HttpCall>& call) {
    call->Reply(TextResponse(200, call->TakeBody().status().ToString()));
  }

  int Start() {
    server_ = *MetricsServer::Start({"127.0.0.1", 0}, pages_, limits_);
    return server_->address().port;
  }

  MetricsServer::Pages pages_;
  HttpServer::Limits limits_;
  Notification hold_;
  std::atomic<int> held_{0};
  std::atomic<int> metrics_{0};
  std::unique_ptr<MetricsServer> server_;
};

constexpr milliseconds kLongWait(10000);

TEST_F(BoundsTest, HeadersHaveATimeAltogether) {
  limits_.header_timeout = absl::Milliseconds(200);
  const int port = Start();
  EXPECT_LT(SlowConnection(port).TimeUntilClosed(kLongWait), kLongWait);
  EXPECT_LT(SlowConnection(port, kHalfARequest).TimeUntilClosed(kLongWait), kLongWait);
  // Each single byte comes in time.
  SlowConnection drip(port, kHalfARequest);
  const milliseconds time = drip.TimeUntilClosed(kLongWait, "x");
  EXPECT_GE(time, milliseconds(100));
  EXPECT_LT(time, kLongWait);
}

TEST_F(BoundsTest, BodiesHaveATimeAltogether) {
  limits_.body_timeout = absl::Milliseconds(200);
  const int port = Start();
  const std::string head = "POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n";
  for (const std::string& begin :
       {head + "\r\n", head + "\r\n{", head + "Expect: 100-continue\r\n\r\n"}) {
    SlowConnection slow(port, begin);
    EXPECT_THAT(slow.ReadAll(),
                HasSubstr("DEADLINE_EXCEEDED: the body did not come whole within 200ms"));
  }
  SlowConnection drip(port, head + "\r\n");
  EXPECT_LT(drip.TimeUntilClosed(kLongWait, "x"), kLongWait);
}

TEST_F(BoundsTest, AnswersHaveATimeAltogether) {
  limits_.answer_timeout = absl::Milliseconds(200);
  const int port = Start();
  SlowConnection slow(port, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", 4096);
  slow.StopReading();
  EXPECT_LT(slow.TimeUntilClosed(kLongWait), kLongWait);
  // The kernel takes a short answer completely; then it is the client that does not close its side.
  SlowConnection open(port, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(open.ReadAll(), HasSubstr("200 OK"));
  EXPECT_TRUE(PollUntil([&] { return !open.Send("x"); }));
}

TEST_F(BoundsTest, WhoSendsOnWithoutEndIsDisconnected) {
  limits_.answer_timeout = absl::Hours(1);
  SlowConnection client(Start(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.StopReading();
  EXPECT_TRUE(PollUntil([&] { return !client.Send(std::string(1000, 'x')); }));
}

TEST_F(BoundsTest, TheOldestMakesWay) {
  limits_.max_connections = 4;
  limits_.header_timeout = absl::Hours(1);
  const int port = Start();
  std::vector<std::unique_ptr<SlowConnection>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<SlowConnection>(port));
  EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
  EXPECT_LT(clients[0]->TimeUntilClosed(kLongWait), kLongWait);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(clients[i]->Send("x")) << i;
}

TEST_F(BoundsTest, OneAddressDoesNotCrowdOutAnother) {
  limits_.max_connections = 4;
  limits_.header_timeout = absl::Hours(1);
  const int port = Start();
  SlowConnection other(port, "", 0, "127.0.0.2");
  std::vector<std::unique_ptr<SlowConnection>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<SlowConnection>(port));
  EXPECT_LT(clients[46]->TimeUntilClosed(kLongWait), kLongWait);  // all but the last three
  other.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(other.ReadAll(), HasSubstr("200 OK"));
}

TEST_F(BoundsTest, SomeFilesAreLeftToTheRestOfTheProcess) {
  limits_.header_timeout = absl::Hours(1);
  const int port = Start();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(160, before.rlim_cur), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    // Each also takes a descriptor for the client's end.
    std::vector<std::unique_ptr<SlowConnection>> clients;
    for (int i = 0; i < 80; ++i) {
      clients.push_back(std::make_unique<SlowConnection>(port));
      EXPECT_TRUE(clients.back()->connected()) << i;
    }
    EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    EXPECT_GE(file, 0);
    close(file);
    EXPECT_LT(clients[0]->TimeUntilClosed(kLongWait), kLongWait);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(BoundsTest, PagesDoNotHoldUpTheScraperNorTheScraperProbes) {
  const int port = Start();
  std::vector<std::unique_ptr<SlowConnection>> pages;
  for (int i = 0; i < 20; ++i) {
    pages.push_back(
        std::make_unique<SlowConnection>(port, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  ASSERT_TRUE(PollUntil([this] { return held_ >= 2; }));
  SlowConnection first(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");  // is held open too
  ASSERT_TRUE(PollUntil([this] { return metrics_ == 1; }));
  EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
  EXPECT_EQ(HttpGet(port, "/readyz").status, 200);
  // Requests that come meanwhile share one text, which is made when it is their turn.
  std::vector<std::unique_ptr<SlowConnection>> scrapers;
  for (int i = 0; i < 5; ++i) {
    scrapers.push_back(
        std::make_unique<SlowConnection>(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  // The answer to a later request says that the server has read the earlier ones.
  EXPECT_EQ(HttpGet(port, "/healthz").status, 200);
  hold_.Notify();
  EXPECT_THAT(first.ReadAll(), HasSubstr("sru_ready 1"));
  for (const auto& scraper : scrapers) EXPECT_THAT(scraper->ReadAll(), HasSubstr("sru_ready 1"));
  EXPECT_EQ(metrics_, 2);
  for (const auto& page : pages) EXPECT_THAT(page->ReadAll(), HasSubstr("200 OK"));
}

TEST_F(BoundsTest, WhatThePagesThrowIsAnswered) {
  pages_.metrics = []() -> std::string { throw std::bad_alloc(); };
  pages_.probes.not_ready = []() -> std::string { throw std::bad_alloc(); };
  pages_.probes.alive = []() -> bool { throw std::runtime_error("a bug"); };
  const int port = Start();
  EXPECT_EQ(HttpGet(port, "/no_memory").status, 503);
  const HttpResponse response = HttpGet(port, "/bug");
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, HasSubstr("a bug"));
  EXPECT_EQ(HttpGet(port, "/metrics").status, 503);
  EXPECT_EQ(HttpGet(port, "/readyz").status, 503);
  EXPECT_EQ(HttpGet(port, "/healthz").status, 500);
}

TEST_F(BoundsTest, StoppingWaitsForWhatRuns) {
  const int port = Start();
  SlowConnection silent(port);
  SlowConnection running(port, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(PollUntil([this] { return held_ == 1; }));
  std::thread stopper([this] { server_.reset(); });
  hold_.Notify();
  stopper.join();
  EXPECT_THAT(running.ReadAll(), HasSubstr("200 OK"));
  EXPECT_LT(silent.TimeUntilClosed(kLongWait), kLongWait);
  EXPECT_FALSE(SlowConnection(port).connected());
}

}  // namespace
}  // namespace sru::server::http
