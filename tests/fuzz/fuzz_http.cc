// Connections of HTTP/1.1 on a host in memory: the same bytes must give the same
// requests however they are cut into pieces.
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/door/session.h"
#include "server/http/http_connection.h"
#include "server/http/http_server.h"
#include "server/http/page_message.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/testing/function_call.h"

namespace sru::fuzz {
namespace {

// What the client and the server have of the connection in common.
struct Wire {
  std::shared_ptr<server::http::HttpConnection> connection;
  bool reads = false;  // it waits for bytes
  std::string sent;    // by the server
  bool closed = false;
};

class MemoryHost final : public server::door::SessionHost {
 public:
  explicit MemoryHost(Wire* wire) : wire_(*wire) {}

  void Read(const void* /*caller*/) override {
    Require(!std::exchange(wire_.reads, true), "there is one read at a time");
  }
  Sent Write(absl::string_view first, absl::string_view second) override {
    Require(!wire_.closed, "nothing is written to a closed connection");
    absl::StrAppend(&wire_.sent, first, second);
    return Sent::kAll;
  }
  void EndSending() override {}
  void SetIdle(bool /*idle*/) override {}
  void End(server::door::CloseCause /*cause*/, bool /*reset*/) override {
    Require(!std::exchange(wire_.closed, true), "a connection is closed once");
    wire_.reads = false;
    wire_.connection->OnClosed();
  }

 private:
  Wire& wire_;
};

class Jobs {
 public:
  void Post(std::function<void()> job) { jobs_.push_back(std::move(job)); }
  void RunAll() {
    while (!jobs_.empty()) {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
  }

 private:
  std::deque<std::function<void()>> jobs_;
};

class Owner final : public server::http::HttpConnection::Owner {
 public:
  Owner() {
    options_.keep_alive = true;
    options_.limits.max_header_bytes = 8192;
    options_.limits.max_body_bytes = 64;
    functions_.check =
        [](const server::http::PageRequest& request) -> server::http::HttpCall::Verdict {
      if (request.path != "/forbidden") return {};
      return {std::make_shared<const server::http::PageResponse>()};
    };
    functions_.handle = [this](const std::shared_ptr<server::http::HttpCall>& call) {
      Handle(call);
    };
  }

  const server::http::HttpServer::Options& options() const override { return options_; }
  void Wake(server::transport::LoopWork* work) override {
    jobs_.Post([work] { work->RunOnLoop(); });
  }
  void Post(std::function<void()> job) override { jobs_.Post(std::move(job)); }
  server::calls::HttpHandler* Start(server::calls::HttpExchange* exchange) override {
    const auto call = std::make_shared<sru::testing::FunctionCall>(
        exchange, server::http::RequestOf(*exchange), functions_);
    call->Begin(&answers_);
    return call.get();
  }
  void CountRequests(int change) override { requests_open_ += change; }
  bool draining() const override { return false; }
  server::transport::TimerSet& timers() override { return timers_; }
  void Handle(const std::shared_ptr<server::http::HttpCall>& call) {
    const server::http::PageRequest& request = call->request();
    const absl::StatusOr<std::string> body = call->TakeBody();
    Require(!body.ok() || body->size() <= options_.limits.max_body_bytes, "a body has its bound");
    requests_.push_back(absl::StrCat(request.method, " ", request.path, "?", request.query, " ",
                                     body.ok() ? *body : body.status().ToString()));
    if (request.path == "/parts") {
      call->ReplyInParts(server::http::PageResponse())->AsyncWrite("part", [](bool) {});
    } else {
      call->Reply(server::http::PageResponse());
    }
  }
  void OnAnswer(int status) override {
    Require(status >= 200 && status < 600, "an answer has a status");
  }
  void OnNotTaken(absl::string_view /*path*/, const std::string& /*peer*/) override {}
  bool ReserveBody(server::http::BodyPlace* place, size_t bytes, bool /*whole*/) override {
    Require(bytes >= place->bytes, "a body does not shrink");
    reserved_ += bytes - place->bytes;
    place->bytes = bytes;
    return true;
  }
  void ReleaseBody(server::http::BodyPlace* place) override {
    reserved_ -= std::exchange(place->bytes, 0);
  }
  void RunInTurn(const server::transport::TurnKey& /*key*/, std::function<void()> job) override {
    jobs_.Post(std::move(job));
  }
  void OnClosed() override {}

  // What a client that sends `bytes` in pieces of `step` makes the handler see.
  static std::vector<std::string> Run(std::string_view bytes, size_t step) {
    Owner owner;
    Wire wire;
    {
      server::http::HttpConnection::Owner* const as_owner = &owner;
      MemoryHost host(&wire);
      wire.connection = std::make_shared<server::http::HttpConnection>(
          &host, server::door::PeerInfo{"ipv4:127.0.0.1:1", {}, ""}, as_owner);
      wire.connection->Start();
      for (size_t i = 0; i < bytes.size() && std::exchange(wire.reads, false); i += step) {
        const std::string_view piece = bytes.substr(i, step);
        wire.connection->OnRead(true, {piece.data(), piece.size()});
        owner.jobs_.RunAll();
      }
      Require(wire.closed || wire.reads, "an open connection is read");
      if (std::exchange(wire.reads, false)) wire.connection->OnRead(false, {});
      owner.jobs_.RunAll();
      Require(wire.closed, "a connection ends when its client goes");
      wire.connection.reset();
    }
    Require(owner.reserved_ == 0, "the memory of bodies is given back");
    Require(owner.requests_open_ == 0, "a request ends");
    Require(wire.sent.empty() || wire.sent.compare(0, 9, "HTTP/1.1 ") == 0, "an answer is HTTP");
    return owner.requests_;
  }

 private:
  server::http::HttpServer::Options options_;
  sru::testing::FunctionCall::Functions functions_;
  server::http::AnswerCounts answers_{};
  Jobs jobs_;
  server::transport::TimerSet timers_;
  std::vector<std::string> requests_;
  size_t reserved_ = 0;
  int requests_open_ = 0;
};

}  // namespace

void FuzzHttp(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t step = 1 + static_cast<unsigned char>(bytes[0]) % 64;
  // Beyond this, bounds on what is read ahead may show.
  const std::string_view sent = bytes.substr(1, 8000);
  Require(Owner::Run(sent, sent.size() + 1) == Owner::Run(sent, step),
          "a request does not depend on the pieces in which it comes");
}

}  // namespace sru::fuzz
