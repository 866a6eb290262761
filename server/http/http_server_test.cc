#include "server/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/late_wakes.h"
#include "server/base/turn_work.h"
#include "server/door/native_door.h"
#include "server/transport/file_limit.h"
#include "tests/testing/function_call.h"
#include "tests/testing/poll.h"
#include "tests/testing/slow_connection.h"

namespace sru::server::http {
namespace {

using ::sru::testing::PollUntil;
using ::sru::testing::SlowConnection;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr milliseconds kLong(10000);

std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}
std::string Post(const std::string& path, const std::string& body) {
  return absl::StrCat("POST ", path,
                      " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(), "\r\n\r\n",
                      body);
}

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    options_.keep_alive = true;
    options_.loops = &loops_;
    options_.start = [this](calls::HttpExchange* exchange, PageRequest request) {
      return std::make_shared<::sru::testing::FunctionCall>(exchange, std::move(request),
                                                            functions_);
    };
    functions_.check = [](const PageRequest& request) -> HttpCall::Verdict {
      if (request.path != "/forbidden" && request.path != "/empty") return {};
      const int status = request.path == "/empty" ? 204 : 401;
      return {std::make_shared<const PageResponse>(TextResponse(status, ""))};
    };
    functions_.handle = [this](const std::shared_ptr<HttpCall>& call) { Handle(call); };
    functions_.on_gone = [this] { ++gone_; };
  }
  ~HttpServerTest() override { server_.reset(); }

  int Start() {
    auto server = HttpServer::Start("http_listen", {"127.0.0.1", 0}, options_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return server_->address().port;
  }

  // "/hold" is kept, everything else is echoed.
  void Handle(const std::shared_ptr<HttpCall>& call) {
    ++handled_;
    if (call->request().path == "/hold") {
      MutexLock lock(&mutex_);
      held_.push_back(call);
      return;
    }
    PageResponse response;
    absl::StatusOr<std::string> body = call->TakeBody();
    if (!body.ok()) response.status = 503;
    response.body = absl::StrCat("<", call->request().path, ":",
                                 body.ok() ? *body : body.status().ToString(), ">");
    call->Reply(std::move(response));
  }

  std::shared_ptr<HttpCall> Held(size_t index) {
    std::shared_ptr<HttpCall> call;
    EXPECT_TRUE(PollUntil([&] {
      MutexLock lock(&mutex_);
      if (held_.size() > index) call = held_[index];
      return call != nullptr;
    }));
    return call;
  }

  static size_t NumOpenFiles() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                             std::filesystem::directory_iterator()));
  }

  // What comes until it ends with `end`.
  static std::string ReadUntil(SlowConnection* client, const std::string& end) {
    std::string text;
    EXPECT_TRUE(PollUntil([&] {
      text += client->ReadSome();
      return absl::StrContains(text, end);
    })) << text;
    return text;
  }

  transport::LoopSet loops_{2, 1};
  HttpServer::Options options_;
  ::sru::testing::FunctionCall::Functions functions_;
  Mutex mutex_;
  std::vector<std::shared_ptr<HttpCall>> held_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> handled_{0};
  std::atomic<int> gone_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AConnectionCarriesManyRequests) {
  SlowConnection client(Start());
  for (int i = 0; i < 3; ++i) {
    client.Send(Post("/a", absl::StrCat(i)));
    const std::string answer = ReadUntil(&client, absl::StrCat("</a:", i, ">"));
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), Not(HasSubstr("Connection:"))));
  }
  client.Send(
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n");
  ReadUntil(&client, "</a:hello>");
  client.Send("GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(HasSubstr("Connection: close"), HasSubstr("</b:>")));
  const HttpServer::Stats stats = server_->stats();
  EXPECT_EQ(stats.answers[2], 5);
  EXPECT_EQ(stats.body_bytes, 0);
}

// Whoever gives it: the handler, the check of the headers or the connection, whole or in parts.
TEST_F(HttpServerTest, EveryAnswerHasADateAndAnId) {
  const int port = Start();
  const auto head = [port](const std::string& request) {
    SlowConnection client(port, request);
    const std::string answer = client.ReadAll();
    return answer.substr(0, answer.find("\r\n\r\n") + 2);
  };
  const std::string end = "Host: x\r\nConnection: close\r\n\r\n";
  const std::string date = "\r\nDate: [A-Z][a-z][a-z], [0-9]+ [A-Z][a-z]+ 2[0-9]+ [0-9:]+ GMT\r\n";
  const std::string made = "\r\nX-Request-Id: [0-9a-f]{32}\r\n";
  EXPECT_THAT(head("GET /a HTTP/1.1\r\nX-Request-Id: mine\r\n" + end),
              AllOf(ContainsRegex(date), HasSubstr("\r\nX-Request-Id: mine\r\n")));
  for (const std::string& request :
       {"GET /a HTTP/1.1\r\n" + end, "HEAD /a HTTP/1.1\r\n" + end,
        "GET /a HTTP/1.1\r\nX-Request-Id: two words\r\n" + end, "GET /forbidden HTTP/1.1\r\n" + end,
        std::string("GET\r\n\r\n"),
        "GET /a HTTP/1.1\r\nX-Request-Id: two words\r\nbad line\r\n" + end}) {
    EXPECT_THAT(head(request), AllOf(ContainsRegex(date), ContainsRegex(made))) << request;
  }
  SlowConnection parts(port, "GET /hold HTTP/1.1\r\nX-Request-Id: mine\r\n" + end);
  Held(0)->ReplyInParts(PageResponse());
  EXPECT_THAT(parts.ReadAll(), AllOf(ContainsRegex(date), HasSubstr("\r\nX-Request-Id: mine\r\n")));
}

TEST_F(HttpServerTest, AnswersComeInTheOrderOfTheRequests) {
  SlowConnection client(Start());
  client.Send(Get("/hold") + Post("/a", "one") + Get("/forbidden") + Get("/hold") +
              Post("/b", "two"));
  const std::shared_ptr<HttpCall> first = Held(0);
  PageResponse response;
  response.body = "<held 0>";
  first->Reply(response);
  std::string text = ReadUntil(&client, "</a:one>");
  EXPECT_LT(text.find("<held 0>"), text.find("</a:one>"));
  response.body = "<held 1>";
  Held(1)->Reply(response);
  text += ReadUntil(&client, "</b:two>");
  EXPECT_LT(text.find("</a:one>"), text.find("401"));
  EXPECT_LT(text.find("401"), text.find("<held 1>"));
  EXPECT_LT(text.find("<held 1>"), text.find("</b:two>"));
}

TEST_F(HttpServerTest, HeadersAreCheckedBeforeTheBodyIsRead) {
  const int port = Start();
  {
    SlowConnection client(port);
    client.Send("POST /forbidden HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    ReadUntil(&client, "401 Unauthorized");
    // A short body is taken all the same, and the connection goes on.
    client.Send("hello" + Get("/a"));
    ReadUntil(&client, "</a:>");
  }
  for (const std::string header :
       {"Content-Length: 5\r\nExpect: 100-continue\r\n", "Content-Length: 5000000\r\n",
        "Transfer-Encoding: chunked\r\n"}) {
    SlowConnection client(port, "POST /forbidden HTTP/1.1\r\nHost: x\r\n" + header + "\r\n");
    EXPECT_THAT(client.ReadAll(),
                AllOf(HasSubstr("401 Unauthorized"), HasSubstr("Connection: close"),
                      Not(HasSubstr("100 Continue"))));
  }
  EXPECT_EQ(handled_, 1);
}

TEST_F(HttpServerTest, AnAnswerWithoutABodyHasNoLength) {
  SlowConnection client(Start());
  client.Send(Get("/empty") + Get("/a"));
  const std::string text = ReadUntil(&client, "</a:>");
  const size_t next = text.find("HTTP/1.1 200 OK\r\n");
  EXPECT_THAT(text.substr(0, next), AllOf(StartsWith("HTTP/1.1 204 No Content\r\n"),
                                          EndsWith("\r\n\r\n"), Not(HasSubstr("Content-"))));
}

TEST_F(HttpServerTest, AClientMayAskBeforeItSendsTheBody) {
  SlowConnection client(Start());
  client.Send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  ReadUntil(&client, "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hello");
  ReadUntil(&client, "</a:hello>");
}

TEST_F(HttpServerTest, WhatIsNoRequestEndsTheConnection) {
  options_.make_error = [](int status, const std::string& text) {
    PageResponse response;
    response.status = status;
    response.body = "{" + text + "}";
    return response;
  };
  SlowConnection client(Start());
  client.Send(Get("/a") + "POST /b HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx" +
              Get("/c"));
  EXPECT_THAT(client.ReadAll(), AllOf(HasSubstr("</a:>"), HasSubstr("400 Bad Request"),
                                      HasSubstr("{Content-Length: "), Not(HasSubstr("/c"))));
}

TEST_F(HttpServerTest, OldClients) {
  const int port = Start();
  SlowConnection once(port, "GET /a HTTP/1.0\r\n\r\n");
  EXPECT_THAT(once.ReadAll(), AllOf(HasSubstr("</a:>"), HasSubstr("Connection: close")));
  SlowConnection kept(port);
  for (int i = 0; i < 2; ++i) {
    kept.Send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(ReadUntil(&kept, "</a:>"), HasSubstr("Connection: keep-alive"));
  }
  // They know no chunks: an answer in parts ends with the connection.
  kept.Send("GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  auto stream = Held(0)->ReplyInParts(PageResponse());
  stream->AsyncWrite("part", [](bool more) { EXPECT_TRUE(more); });
  stream.reset();
  EXPECT_THAT(kept.ReadAll(), AllOf(HasSubstr("Connection: close"), HasSubstr("\r\n\r\npart"),
                                    Not(HasSubstr("chunked"))));
}

TEST_F(HttpServerTest, ConnectionsAreSpreadOverTheLoops) {
  const int port = Start();
  const auto counts = [this](int64_t first, int64_t second) {
    const auto& loops = loops_.loops();
    return loops[0]->num_connections() == first && loops[1]->num_connections() == second;
  };
  {
    std::vector<std::unique_ptr<SlowConnection>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<SlowConnection>(port, Get("/a")));
      ReadUntil(clients.back().get(), ":>");
      loops_.RunOnEach([](size_t /*i*/) {});  // the turn that took it in has ended
    }
    EXPECT_TRUE(counts(2, 2));
  }
  EXPECT_TRUE(PollUntil([&] { return counts(0, 0); }));
}

TEST_F(HttpServerTest, AnAnswerInPartsDoesNotBeginForACallerThatIsNoLongerAccepted) {
  std::atomic<bool> accepted{true};
  functions_.is_accepted = [&] { return accepted.load(); };
  const int port = Start();
  const auto recheck = [&] {
    accepted = false;
    server_->door().Recheck();
    for (int i = 0; i < 10; ++i) loops_.RunOnEach([](size_t /*i*/) {});  // each has looked
    accepted = true;
  };
  SlowConnection refused(port, Get("/hold"));
  const std::shared_ptr<HttpCall> call = Held(0);
  recheck();
  auto stream = call->ReplyInParts(PageResponse());
  stream->AsyncWrite("part", [](bool more) { EXPECT_FALSE(more); });
  EXPECT_EQ(refused.ReadAll(), "");
  EXPECT_TRUE(PollUntil([this] { return gone_ == 1; }));
  stream.reset();
  // A whole answer is that of a request that was accepted.
  SlowConnection whole(port, Get("/hold"));
  const std::shared_ptr<HttpCall> answered = Held(1);
  recheck();
  answered->Reply(PageResponse());
  ReadUntil(&whole, "200 OK");
  // The body may still be on its way.
  const std::string post = Post("/hold", "ab");
  SlowConnection late(port, post.substr(0, post.size() - 1));
  ASSERT_TRUE(PollUntil([this] { return server_->stats().body_bytes == 1; }));
  recheck();
  late.Send("b");
  stream = Held(2)->ReplyInParts(PageResponse());
  stream->AsyncWrite("part", [](bool more) { EXPECT_FALSE(more); });
  EXPECT_EQ(late.ReadAll(), "");
}

// What a thread hands to a loop may be handed over late (late_wakes.h), after that of another one.
TEST_F(HttpServerTest, PartsComeInTheirOrderWhateverThreadsGiveThem) {
  SlowConnection client(Start(), Get("/hold"));
  const std::shared_ptr<HttpCall> call = Held(0);
  std::unique_ptr<PageStream> stream;
  {
    const LateWakes late;
    stream = call->ReplyInParts(PageResponse());
    stream->AsyncWrite("one", [](bool more) { EXPECT_TRUE(more); });
    std::thread([&] {
      stream.reset();
      loops_.RunOnEach([](size_t /*i*/) {});  // the loop has run what it has been given
    }).join();
  }
  EXPECT_THAT(ReadUntil(&client, "0\r\n\r\n"), HasSubstr("\r\n\r\n3\r\none\r\n0\r\n"));
}

TEST_F(HttpServerTest, AnAnswerInPartsLeavesTheConnectionOpen) {
  SlowConnection client(Start());
  client.Send(Get("/hold") + Get("/a"));
  auto stream = Held(0)->ReplyInParts(PageResponse());
  std::atomic<int> written{0};
  for (const std::string part : {"one", "", "three"}) {
    const int before = written;
    stream->AsyncWrite(part, [&](bool more) { written += more ? 1 : 100; });
    ASSERT_TRUE(PollUntil([&] { return written > before; }));
  }
  ReadUntil(&client, "5\r\nthree\r\n");
  stream.reset();
  const std::string text = ReadUntil(&client, "</a:>");
  EXPECT_THAT(text, HasSubstr("0\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_EQ(written, 3);
}

// A writer hears that its part has left, or that its reader has gone.
TEST_F(HttpServerTest, AWriterIsHeldBackByItsReader) {
  const int port = Start();
  auto client = std::make_unique<SlowConnection>(port, "", 4096);
  client->Send(Get("/hold"));
  const std::shared_ptr<PageStream> stream = Held(0)->ReplyInParts(PageResponse());
  std::atomic<int64_t> bytes{0};
  std::atomic<bool> ended{false};
  std::function<void(bool)> next = [&](bool more) {
    if (!more) {
      ended = true;
      return;
    }
    bytes += 100000;
    stream->AsyncWrite(std::string(100000, 'x'), next);
  };
  next(true);
  int64_t before = -1;
  EXPECT_TRUE(PollUntil([&] {
    const int64_t now = bytes;
    return std::exchange(before, now) == now;
  }));
  EXPECT_LT(bytes, 32 << 20);
  EXPECT_FALSE(ended);
  client.reset();
  EXPECT_TRUE(PollUntil([&] { return ended.load(); }));
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, AHandlerHearsThatItsClientIsGone) {
  const int port = Start();
  {
    SlowConnection client(port, Get("/hold"));
    Held(0);
    EXPECT_EQ(gone_, 0);
  }
  EXPECT_TRUE(PollUntil([this] { return gone_ == 1; }));
  EXPECT_TRUE(Held(0)->gone());
  Held(0)->Reply(PageResponse());  // nobody gets it
  // It does not hear of those that got their answers.
  {
    SlowConnection client(port, Get("/hold"));
    Held(1)->Reply(PageResponse());
    ReadUntil(&client, "200 OK");
  }
  EXPECT_TRUE(PollUntil([this] { return server_->stats().connections == 0; }));
  EXPECT_EQ(gone_, 1);
}

// A client that says that it sends no more may wait for what it has asked.
TEST_F(HttpServerTest, AHalfClosedClientGetsItsAnswers) {
  const int port = Start();
  size_t held = 0;
  const auto answer = [&](const std::string& request) {
    SlowConnection client(port, request);
    client.EndSending();
    const std::shared_ptr<HttpCall> call = Held(held++);
    loops_.RunOnEach([](size_t /*i*/) {});
    absl::SleepFor(absl::Milliseconds(20));  // the end has come
    EXPECT_FALSE(call->gone());
    call->Reply(TextResponse(200, "answer"));
    return client.ReadAll();
  };
  const std::string close = "GET /hold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  for (const std::string& request :
       {close, Get("/hold"), Post("/hold", "body"), std::string("GET /hold HTTP/1.0\r\n\r\n")}) {
    EXPECT_THAT(answer(request), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("answer"))) << request;
  }
  EXPECT_THAT(answer(Get("/a") + Get("/forbidden") + Get("/hold") + Get("/b")),
              AllOf(HasSubstr("</a:>"), HasSubstr("401"), HasSubstr("answer"), HasSubstr("</b:>")));
  // Parts tell whether somebody reads them, if nothing else was to come.
  for (const bool is_last : {true, false}) {
    SlowConnection client(port, is_last ? close : Get("/hold"));
    client.EndSending();
    const std::shared_ptr<HttpCall> call = Held(held++);
    loops_.RunOnEach([](size_t /*i*/) {});
    absl::SleepFor(absl::Milliseconds(20));
    call->ReplyInParts(PageResponse())->AsyncWrite("part", [](bool) {});
    EXPECT_EQ(absl::StrContains(client.ReadAll(), "part"), is_last);
  }
  EXPECT_TRUE(PollUntil([this] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, RefusalsOfOneConnectionLeaveRoomForOthers) {
  Mutex mutex;
  std::vector<std::string> order;
  functions_.check = [&](const PageRequest& request) -> HttpCall::Verdict {
    // Turns end by time: however fast the machine is, few refusals of this length fit into one.
    const absl::Time end = absl::Now() + absl::Microseconds(20);
    while (absl::Now() < end) continue;
    MutexLock lock(&mutex);
    order.push_back(request.path);
    return {std::make_shared<const PageResponse>(TextResponse(401, "no"))};
  };
  transport::LoopSet loop(1, 1);
  options_.loops = &loop;
  const int port = Start();
  std::string many;
  for (int i = 0; i < 300; ++i) many += Get("/many");
  SlowConnection greedy(port);
  SlowConnection polite(port, "", 0, "127.0.0.2");
  ASSERT_TRUE(PollUntil([this] { return server_->stats().connections == 2; }));
  absl::Notification go;
  loop.loops()[0]->Post([&go] { go.WaitForNotification(); });
  greedy.Send(many);
  polite.Send(Get("/one"));
  absl::SleepFor(absl::Milliseconds(20));
  go.Notify();
  EXPECT_TRUE(PollUntil([&] {
    MutexLock lock(&mutex);
    return order.size() == 301;
  }));
  {
    MutexLock lock(&mutex);
    EXPECT_LT(std::find(order.begin(), order.end(), "/one") - order.begin(), 20);
  }
  server_.reset();
  options_.loops = &loops_;
}

TEST_F(HttpServerTest, ABodyThatNobodyWantsIsNotKept) {
  functions_.check = [](const PageRequest& request) -> HttpCall::Verdict {
    return {nullptr, nullptr, request.path == "/none" ? 0U : 10U};
  };
  const int port = Start();
  const std::string chunked = " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  SlowConnection client(port);
  const std::string large = Post("/none", std::string(60000, 'x'));
  client.Send(large.substr(0, 50000));
  ReadUntil(&client, "</none:>");
  EXPECT_EQ(server_->stats().body_bytes, 0);
  client.Send(large.substr(50000) + Post("/few", "0123456789"));
  ReadUntil(&client, "</few:0123456789>");
  for (const std::string& request :
       {Post("/none", std::string(70000, 'x')), "POST /none" + chunked + "3\r\nabc\r\n0\r\n\r\n"}) {
    EXPECT_THAT(SlowConnection(port, request).ReadAll(),
                AllOf(HasSubstr("</none:>"), HasSubstr("Connection: close")));
  }
  for (const std::string& request :
       {Post("/few", "0123456789a"), "POST /few" + chunked + "b\r\n0123456789a\r\n0\r\n\r\n",
        "POST /few" + chunked + "6\r\n012345\r\n5\r\n6789a\r\n0\r\n\r\n"}) {
    EXPECT_THAT(SlowConnection(port, request).ReadAll(), HasSubstr("RESOURCE_EXHAUSTED"));
  }
}

TEST_F(HttpServerTest, BodiesShareMemory) {
  options_.limits.max_total_body_bytes = 40000;
  options_.limits.body_timeout = absl::Hours(1);
  const int port = Start();
  auto half = std::make_unique<SlowConnection>(port);
  const std::string large = Post("/a", std::string(30000, 'x'));
  half->Send(large.substr(0, large.size() - 1));
  ASSERT_TRUE(PollUntil([this] { return server_->stats().body_bytes >= 29000; }));
  SlowConnection refused(port, large);
  EXPECT_THAT(refused.ReadAll(), AllOf(HasSubstr("503"), HasSubstr("UNAVAILABLE")));
  half.reset();
  EXPECT_TRUE(PollUntil([this] { return server_->stats().body_bytes == 0; }));
  SlowConnection client(port);
  client.Send(large);
  ReadUntil(&client, "x>");
}

TEST_F(HttpServerTest, BodiesThatDoNotEndMakeWayForOthers) {
  options_.limits.max_total_body_bytes = 40000;
  options_.limits.body_timeout = absl::Hours(1);
  const int port = Start();
  // 20,000 bytes each, on both loops, which fill the memory but lack a byte.
  const std::string large = Post("/a", std::string(20001, 'x'));
  std::vector<std::unique_ptr<SlowConnection>> held;
  for (int64_t bytes = 20000; bytes <= 40000; bytes += 20000) {
    held.push_back(std::make_unique<SlowConnection>(port, large.substr(0, large.size() - 1)));
    ASSERT_TRUE(PollUntil([&] { return server_->stats().body_bytes == bytes; }));
  }
  SlowConnection other(port, "", 0, "127.0.0.2");
  other.Send(Post("/a", "small"));
  EXPECT_THAT(ReadUntil(&other, ">"), HasSubstr("</a:small>"));
  // The oldest one made way, and its client is told.
  EXPECT_THAT(held[0]->ReadAll(),
              AllOf(HasSubstr("503"), HasSubstr("UNAVAILABLE"), HasSubstr("Connection: close")));
  EXPECT_TRUE(PollUntil([&] { return server_->stats().body_bytes == 20000; }));

  // The address with fewer bytes keeps its body while the first address takes what is left, and
  // more.
  const std::string few = Post("/a", std::string(11, 'y'));
  other.Send(few.substr(0, few.size() - 1));
  ASSERT_TRUE(PollUntil([&] { return server_->stats().body_bytes == 20010; }));
  held.push_back(std::make_unique<SlowConnection>(port, large.substr(0, large.size() - 1)));
  EXPECT_THAT(held[1]->ReadAll(), HasSubstr("503"));
  ASSERT_TRUE(PollUntil([&] { return server_->stats().body_bytes == 20010; }));
  other.Send("y");
  EXPECT_THAT(ReadUntil(&other, ">"), HasSubstr("yyy>"));
  // The one that is left goes on.
  held[2]->Send("x");
  ReadUntil(held[2].get(), "x>");
  EXPECT_TRUE(PollUntil([&] { return server_->stats().body_bytes == 0; }));
}

// Bodies that are whole wait for their answers, and so does their memory.
TEST_F(HttpServerTest, WholeBodiesDoNotMakeWay) {
  options_.limits.max_total_body_bytes = 40000;
  options_.limits.body_timeout = absl::Hours(1);
  const int port = Start();
  SlowConnection whole(port, Post("/hold", std::string(40000, 'x')));
  const std::shared_ptr<HttpCall> call = Held(0);
  SlowConnection refused(port, "", 0, "127.0.0.2");
  refused.Send(Post("/a", "small"));
  EXPECT_THAT(refused.ReadAll(), AllOf(HasSubstr("503"), HasSubstr("UNAVAILABLE")));
  EXPECT_EQ(server_->stats().body_bytes, 40000);
  call->Reply(PageResponse());
  ReadUntil(&whole, "200 OK");
}

TEST_F(HttpServerTest, NoCallIsLongerThanTheBound) {
  options_.limits.max_call = absl::Milliseconds(100);
  const int port = Start();
  SlowConnection client(port, Get("/hold"));
  EXPECT_THAT(client.ReadAll(),
              AllOf(StartsWith("HTTP/1.1 504 "), HasSubstr("--max_call_s allows, which is 100ms")));
  EXPECT_TRUE(PollUntil([this] { return gone_ == 1; }));
  EXPECT_TRUE(Held(0)->gone());
  // An answer in parts ends with its connection.
  SlowConnection parts(port, Get("/hold"));
  const auto stream = Held(1)->ReplyInParts(PageResponse());
  EXPECT_THAT(parts.ReadAll(), ::testing::Not(HasSubstr("\r\n0\r\n")));
  EXPECT_TRUE(PollUntil([this] { return gone_ == 2; }));
}

// Answers a call when the thread has looked at all connections.
class LateReply final : public TurnWork {
 public:
  explicit LateReply(std::shared_ptr<HttpCall> call) : call_(std::move(call)) {}
  void RunInTurn(bool /*in_time*/) override { call_->Reply(PageResponse()); }

 private:
  const std::shared_ptr<HttpCall> call_;
};

TEST_F(HttpServerTest, ItsThreadsRunWhatCallsPutOff) {
  functions_.handle = [](const std::shared_ptr<HttpCall>& call) {
    TurnWorkList::OfThisThread()->Add(std::make_shared<LateReply>(call));
  };
  auto server = HttpServer::Start("http_listen", {"127.0.0.1", 0}, options_);
  ASSERT_TRUE(server.ok());
  SlowConnection client((*server)->address().port);
  for (int i = 0; i < 3; ++i) {
    client.Send(Get("/"));
    ReadUntil(&client, "Content-Length: 0");
  }
}

TEST_F(HttpServerTest, ABodyHasToGoOn) {
  options_.limits.body_timeout = absl::Hours(1);
  options_.limits.progress_timeout = absl::Milliseconds(300);
  SlowConnection client(Start());
  const std::string large = Post("/a", std::string(60000, 'x'));
  for (size_t at = 0; at + 20000 < large.size(); at += 20000) {
    client.Send(large.substr(at, 20000));
    EXPECT_EQ(client.ReadSome(), "");
    absl::SleepFor(absl::Milliseconds(200));  // together more than its time
  }
  EXPECT_THAT(client.ReadAll(), HasSubstr("less than 16384 bytes of the body came within 300ms"));
}

TEST_F(HttpServerTest, BodiesInChunksAreBounded) {
  options_.limits.max_body_bytes = 10;
  SlowConnection client(Start());
  client.Send(
      "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("10 bytes")));
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  options_.limits.idle_timeout = absl::Milliseconds(100);
  options_.limits.header_timeout = absl::Hours(1);
  SlowConnection client(Start());
  client.Send(Get("/a"));
  ReadUntil(&client, "</a:>");
  EXPECT_LT(client.TimeUntilClosed(kLong), kLong);
}

TEST_F(HttpServerTest, ADrainEndsConnectionsAfterTheirAnswers) {
  SlowConnection client(Start());
  client.Send(Get("/hold"));
  const std::shared_ptr<HttpCall> call = Held(0);
  server_->BeginDrain();
  call->Reply(PageResponse());
  EXPECT_THAT(client.ReadAll(), AllOf(HasSubstr("200 OK"), HasSubstr("Connection: close")));
}

TEST_F(HttpServerTest, ABodyThatIsOnItsWayWhenTheServerStopsIsAnswered) {
  SlowConnection client(Start());
  client.Send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\nha");
  ReadUntil(&client, "100 Continue");
  server_->BeginDrain();
  std::thread stop([this] { server_->Stop(); });
  const std::string answer = ReadUntil(&client, "shutting down>");
  EXPECT_THAT(answer, AllOf(HasSubstr("503"), HasSubstr("Connection: close")));
  // The client is still sending, which does not cost it the answer.
  client.Send("lf");
  EXPECT_EQ(client.ReadAll(), "");
  stop.join();
}

TEST_F(HttpServerTest, RoomIsMadeAndCounted) {
  std::atomic<int> refused{0};
  options_.limits.max_connections = 4;
  options_.on_refused = [&](absl::string_view reason, const std::string& peer) {
    EXPECT_EQ(reason, transport::kTooManyOpen);
    EXPECT_THAT(peer, HasSubstr("ipv4:127.0.0.1:"));
    ++refused;
  };
  const int port = Start();
  SlowConnection busy(port, Get("/hold"));
  Held(0);
  std::vector<std::unique_ptr<SlowConnection>> idle;
  for (int i = 0; i < 6; ++i) {
    idle.push_back(std::make_unique<SlowConnection>(port));
    idle.back()->Send(Get("/a"));
    ReadUntil(idle.back().get(), "</a:>");
  }
  EXPECT_EQ(refused, 3);
  EXPECT_LT(idle[0]->TimeUntilClosed(kLong), kLong);
  // Whoever waits for an answer stays.
  Held(0)->Reply(PageResponse());
  ReadUntil(&busy, "200 OK");
  server_.reset();
}

TEST_F(HttpServerTest, AnAnswerThatIsNotTakenIsCounted) {
  std::atomic<int> noted{0};
  options_.limits.answer_timeout = absl::Milliseconds(200);
  options_.on_not_taken = [&](absl::string_view path, const std::string& peer) {
    EXPECT_EQ(path, "/hold");
    EXPECT_THAT(peer, HasSubstr("ipv4:127.0.0.1:"));
    ++noted;
  };
  const int port = Start();
  PageResponse large;
  large.body = std::string(8 << 20, 'x');
  SlowConnection whole(port, Get("/hold"), /*receive_buffer=*/4096);
  Held(0)->Reply(large);
  EXPECT_TRUE(PollUntil([&] { return noted == 1; }));
  SlowConnection in_parts(port, Get("/hold"), /*receive_buffer=*/4096);
  std::unique_ptr<PageStream> stream = Held(1)->ReplyInParts(PageResponse());
  stream->AsyncWrite(large.body, [](bool /*ok*/) {});
  EXPECT_TRUE(PollUntil([&] { return noted == 2; }));
  stream.reset();
  EXPECT_EQ(server_->stats().not_taken, 2);
  server_.reset();
}

TEST_F(HttpServerTest, FewConnectionsOfAnAddressWaitToBegin) {
  // Few of them begin while the loops take the others in.
  constexpr size_t kConnections = 2 * transport::Loop::kMostWaiting + 500;
  transport::RaiseFileLimit();
  std::atomic<int> refused{0};
  options_.limits.max_connections = kConnections;
  options_.limits.header_timeout = absl::Hours(1);
  options_.on_refused = [&](absl::string_view reason, const std::string& /*peer*/) {
    EXPECT_EQ(reason, transport::kTooManyWaiting);
    ++refused;
  };
  const int port = Start();
  absl::Notification go;
  for (const auto& loop : loops_.loops()) loop->Post([&go] { go.WaitForNotification(); });
  std::vector<std::unique_ptr<SlowConnection>> waiting;
  while (waiting.size() < kConnections) waiting.push_back(std::make_unique<SlowConnection>(port));
  EXPECT_TRUE(PollUntil([&] { return NumOpenFiles() > 2 * kConnections; }));  // all are accepted
  go.Notify();
  EXPECT_TRUE(PollUntil([&] { return server_->stats().connections + refused == kConnections; }))
      << server_->stats().connections << " + " << refused;
  EXPECT_GT(refused, 0);
  server_.reset();
}

}  // namespace
}  // namespace sru::server::http
