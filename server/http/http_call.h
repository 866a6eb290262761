// HttpCall: a request over HTTP, of any version and on any port, and its answer. It handles its
// HttpExchange; whoever answers requests derives from it.
//
//   class Echo final : public HttpCall {
//     void OnRequest(const std::shared_ptr<HttpCall>&) override { Reply(TextResponse(200, "hi")); }
//   };
//   options.start = [](calls::HttpExchange* exchange, PageRequest request) {
//     return std::make_shared<Echo>(exchange, std::move(request));
//   };
#ifndef SRU_SERVER_HTTP_HTTP_CALL_H_
#define SRU_SERVER_HTTP_HTTP_CALL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/mutex.h"
#include "server/calls/http_exchange.h"
#include "server/http/page_message.h"

namespace sru::server::http {

// How many answers there have been so far, by the first digit of their status.
using AnswerCounts = std::array<std::atomic<int64_t>, 6>;
void CountAnswer(int status, AnswerCounts* counts);

// The head of the exchange's request, with the header X-Request-Id.
PageRequest RequestOf(const calls::HttpExchange& exchange);

class HttpCall : public calls::HttpHandler, public std::enable_shared_from_this<HttpCall> {
 public:
  // The result of CheckHead(). The exchange's OnChecked() gets `caller` and `max_body`.
  struct Verdict {
    std::shared_ptr<const PageResponse> refusal = nullptr;  // null: the request may go on
    const void* caller = nullptr;                           // null: the sender is not known
    size_t max_body = std::numeric_limits<size_t>::max();   // bytes
  };

  // `exchange` calls OnDone() last of all.
  HttpCall(calls::HttpExchange* exchange, PageRequest request)
      : exchange_(exchange), request_(std::move(request)) {}
  virtual ~HttpCall() = default;
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  // Looks at the head. From now on the exchange owns the call. Answers are counted in `counts`,
  // which outlives the exchange.
  void Begin(AnswerCounts* counts);

  const PageRequest& request() const { return request_; }
  // True when the client is gone, so that nobody would get the answer.
  bool gone() const;
  // How many bytes TakeBody() returns.
  size_t body_bytes() const { return body_.ok() ? body_->size() : 0; }
  // In one piece; once, when OnRequest() has begun. kInvalidArgument: its length is not stated;
  // kResourceExhausted: it is too long; kDeadlineExceeded: it did not come in time; kUnavailable:
  // there is no memory for it.
  absl::StatusOr<std::string> TakeBody();
  // Sends the answer. May be called from any thread; what comes after the first is dropped. Calls
  // may share an answer.
  void Reply(std::shared_ptr<const PageResponse> response);
  void Reply(PageResponse response) {
    Reply(std::make_shared<const PageResponse>(std::move(response)));
  }
  // Sends the status and the headers of `head`, and as the body what is written to the stream until
  // that is destroyed. May be called from any thread, once and instead of Reply().
  std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head);

  // HttpHandler:
  void OnBody(absl::StatusOr<absl::Cord> body) final;
  void OnWritten(bool ok) final;
  void OnCancel() final;
  void OnDone() final { const std::shared_ptr<HttpCall> last = std::move(self_); }

 protected:
  // Before the body is read. Must return at once.
  virtual Verdict CheckHead() { return {}; }
  // The body, or the reason why it cannot be read, is there. Runs on a loop and must return at
  // once. If it throws, or the last copy of `self` goes without an answer, the answer is 503 or
  // 500.
  virtual void OnRequest(const std::shared_ptr<HttpCall>& self) = 0;
  // The client is gone before it has the answer. At most once, on any thread, maybe during
  // OnRequest(). Must return at once.
  virtual void OnGone() {}

 private:
  class PartsOfAnswer;

  bool BeginAnswer(const PageResponse& head, bool has_length);
  void WritePart(std::string part, std::function<void(bool)> written);
  void EndParts();

  calls::HttpExchange* const exchange_;
  const PageRequest request_;
  AnswerCounts* counts_ = nullptr;
  std::shared_ptr<HttpCall> self_;  // until OnDone()
  absl::StatusOr<absl::Cord> body_{absl::Cord()};
  mutable Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool parts_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(bool)> written_ ABSL_GUARDED_BY(mutex_);
};

// A request that a function answers, from its head alone or with its body.
class PageCall final : public HttpCall {
 public:
  using Handler = std::function<void(const std::shared_ptr<HttpCall>& call)>;

  PageCall(calls::HttpExchange* exchange, PageRequest request, Handler handler,
           size_t max_body = std::numeric_limits<size_t>::max())
      : HttpCall(exchange, std::move(request)), handler_(std::move(handler)), max_body_(max_body) {}

 private:
  Verdict CheckHead() override { return {nullptr, nullptr, max_body_}; }
  void OnRequest(const std::shared_ptr<HttpCall>& self) override { handler_(self); }

  const Handler handler_;
  const size_t max_body_;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_CALL_H_
