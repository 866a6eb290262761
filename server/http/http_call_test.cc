#include "server/http/http_call.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/function_call.h"

namespace sru::server::http {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::Pair;

// A transport that does only what a test tells it to.
class PuppetHttpExchange final : public calls::HttpExchange {
 public:
  std::string method_text = "POST";
  std::string target = "/a?b=c";
  std::string peer_name = "ipv4:10.0.0.1:4711";
  calls::Metadata fields;

  int status = 0;
  calls::Metadata head;
  std::vector<std::string> parts;
  bool ended = false;
  bool accepted = false;
  size_t max_body = 1;

  absl::string_view verb() const override { return method_text; }
  void VisitHeaders(const std::function<void(absl::string_view name, absl::string_view value)>&
                        visit) const override {
    for (const auto& [name, value] : fields) visit(name, value);
  }
  void OnChecked(const void* caller, size_t most) override {
    accepted = caller != nullptr;
    max_body = most;
  }
  void SetHead(int given, calls::Metadata headers) override {
    status = given;
    head = std::move(headers);
  }
  absl::string_view FindHeader(absl::string_view /*name*/) const override { return {}; }
  std::string peer() const override { return peer_name; }
  absl::string_view method() const override { return target; }
  absl::Duration time_left() const override { return absl::InfiniteDuration(); }
  bool is_cancelled() const override { return false; }
  void Read() override {}
  void Write(absl::Cord message) override { parts.emplace_back(message); }
  void Finish(calls::CallEnd /*end*/) override { ended = true; }
  void WriteAndFinish(absl::Cord message, calls::CallEnd end) override {
    Write(std::move(message));
    Finish(std::move(end));
  }
};

class HttpCallTest : public ::testing::Test {
 protected:
  HttpCallTest() {
    functions_.check = [](const PageRequest& request) -> HttpCall::Verdict {
      if (request.path != "/forbidden") return {};
      return {std::make_shared<const PageResponse>(TextResponse(401, "no"))};
    };
    functions_.handle = [this](const std::shared_ptr<HttpCall>& call) { call_ = call; };
    functions_.on_gone = [this] { ++gone_; };
  }
  void Start() {
    const auto call = std::make_shared<::sru::testing::FunctionCall>(
        &exchange_, RequestOf(exchange_), functions_);
    call->Begin(&counts_);
    handler_ = call.get();
  }
  void TearDown() override {
    call_ = nullptr;
    EXPECT_TRUE(exchange_.ended);
    handler_->OnDone();
  }
  static PageResponse Text(std::string text) {
    PageResponse response;
    response.content_type = "text/html";
    response.body = std::move(text);
    response.headers.emplace_back("Retry-After", "1");
    return response;
  }

  ::sru::testing::FunctionCall::Functions functions_;
  PuppetHttpExchange exchange_;
  calls::HttpHandler* handler_ = nullptr;
  std::shared_ptr<HttpCall> call_;
  AnswerCounts counts_{};
  int gone_ = 0;
};

TEST_F(HttpCallTest, ARequestIsThatOfItsFields) {
  exchange_.fields = {{"x-a", "1"}, {"host", "h"}, {"x-a", "2"}};
  Start();
  handler_->OnBody(absl::Cord("body"));
  ASSERT_NE(call_, nullptr);
  const PageRequest& request = call_->request();
  EXPECT_EQ(request.method + " " + request.path + " " + request.query, "POST /a b=c");
  EXPECT_EQ(request.header("x-a") + " " + request.header("host"), "1, 2 h");
  EXPECT_EQ(request.peer, "ipv4:10.0.0.1:4711");
  EXPECT_EQ(request.remote_address(), "10.0.0.1");
  EXPECT_EQ(*call_->TakeBody(), "body");
  call_->Reply(Text("answer"));
  EXPECT_EQ(exchange_.status, 200);
  EXPECT_THAT(
      exchange_.head,
      ElementsAre(Pair("Date", ::testing::ContainsRegex("^[A-Z][a-z]{2}, [0-9]{2} .* GMT$")),
                  Pair("X-Request-Id", ::testing::SizeIs(32)), Pair("Content-Type", "text/html"),
                  Pair("Content-Length", "6"), Pair("Retry-After", "1")));
  EXPECT_THAT(exchange_.parts, ElementsAre("answer"));
  EXPECT_EQ(counts_[2], 1);
}

TEST_F(HttpCallTest, PeersHaveAddresses) {
  exchange_.peer_name = "ipv6:%5Bfe80::1%254%5D:80";
  Start();
  handler_->OnBody(absl::DeadlineExceededError("late"));
  EXPECT_EQ(call_->request().remote_address(), "fe80::1%4");
  EXPECT_EQ(call_->TakeBody().status(), absl::DeadlineExceededError("late"));
}

TEST_F(HttpCallTest, ARefusalNeedsNoBodyAndNoHandler) {
  exchange_.target = "/forbidden";
  Start();
  EXPECT_EQ(exchange_.status, 401);
  EXPECT_TRUE(exchange_.ended);
  handler_->OnBody(absl::Cord("body"));
  EXPECT_EQ(call_, nullptr);
}

TEST_F(HttpCallTest, TheExchangeLearnsWhatTheCheckHasFound) {
  const auto answer = [this] {
    Start();
    handler_->OnBody(absl::Cord());
    call_->Reply(Text("answer"));
    call_ = nullptr;
  };
  answer();
  EXPECT_FALSE(exchange_.accepted);
  EXPECT_GT(exchange_.max_body, 1U << 30);
  handler_->OnDone();
  functions_.check = [this](const PageRequest& /*request*/) -> HttpCall::Verdict {
    return {nullptr, this, 5};
  };
  answer();
  EXPECT_TRUE(exchange_.accepted);
  EXPECT_EQ(exchange_.max_body, 5U);
}

TEST_F(HttpCallTest, AnAnswerWithoutABodyDescribesNone) {
  Start();
  handler_->OnBody(absl::Cord());
  PageResponse response = Text("");
  response.status = 204;
  call_->Reply(std::move(response));
  EXPECT_EQ(exchange_.status, 204);
  EXPECT_THAT(exchange_.head,
              ElementsAre(Pair("Date", _), Pair("X-Request-Id", _), Pair("Retry-After", "1")));
  EXPECT_THAT(exchange_.parts, ElementsAre());
}

TEST_F(HttpCallTest, AHeadAsksForNoBody) {
  exchange_.method_text = "HEAD";
  Start();
  handler_->OnBody(absl::Cord());
  call_->Reply(Text("answer"));
  EXPECT_THAT(exchange_.head, ::testing::Contains(Pair("Content-Length", "6")));
  EXPECT_THAT(exchange_.parts, ElementsAre());
}

TEST_F(HttpCallTest, ACallThatIsDroppedIsAnswered) {
  Start();
  handler_->OnBody(absl::Cord());
  call_ = nullptr;
  EXPECT_EQ(exchange_.status, 503);
}

TEST_F(HttpCallTest, PartsLeaveOneByOne) {
  Start();
  handler_->OnBody(absl::Cord());
  PageResponse head;
  head.status = 206;
  auto stream = call_->ReplyInParts(head);
  call_ = nullptr;
  std::vector<bool> written;
  const auto note = [&written](bool ok) { written.push_back(ok); };
  stream->AsyncWrite("one", note);
  EXPECT_EQ(exchange_.status, 206);
  EXPECT_THAT(written, ElementsAre());
  handler_->OnWritten(true);
  stream->AsyncWrite("", note);
  EXPECT_THAT(written, ElementsAre(true, true));
  stream->AsyncWrite("two", note);
  stream.reset();  // while the part is on its way
  EXPECT_FALSE(exchange_.ended);
  handler_->OnWritten(true);
  EXPECT_THAT(exchange_.parts, ElementsAre("one", "two"));
}

TEST_F(HttpCallTest, AnAnswerInPartsLearnsThatNobodyReads) {
  Start();
  handler_->OnBody(absl::Cord());
  auto stream = call_->ReplyInParts(PageResponse());
  std::optional<bool> written;
  stream->AsyncWrite("one", [&written](bool ok) { written = ok; });
  handler_->OnCancel();
  handler_->OnWritten(false);
  EXPECT_EQ(gone_, 1);
  EXPECT_TRUE(call_->gone());
  EXPECT_EQ(written, false);
  stream->AsyncWrite("two", [&written](bool ok) { written = ok; });
  EXPECT_EQ(written, false);
  EXPECT_THAT(exchange_.parts, ElementsAre("one"));
}

}  // namespace
}  // namespace sru::server::http
