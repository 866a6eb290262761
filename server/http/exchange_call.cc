#include "server/http/exchange_call.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "base/mutex.h"
#include "server/http/answer_fields.h"

namespace sru::server::http {
namespace {

// Handles the exchange, until it ends, and is the call.
class ExchangeCall final : public calls::HttpHandler,
                           public HttpCall,
                           public std::enable_shared_from_this<ExchangeCall> {
 public:
  ExchangeCall(calls::HttpExchange* exchange, const ExchangeHooks& hooks)
      : exchange_(exchange), hooks_(hooks) {}

  void Start() {
    self_ = shared_from_this();
    request_.method = std::string(exchange_->verb());
    const absl::string_view target = exchange_->method();
    const size_t question = target.find('?');
    request_.path = std::string(target.substr(0, question));
    if (question != absl::string_view::npos) {
      request_.query = std::string(target.substr(question + 1));
    }
    request_.peer = exchange_->peer();
    request_.certificate = exchange_->certificate();
    exchange_->VisitHeaders([this](absl::string_view name, absl::string_view value) {
      request_.headers.Add(name, value);
    });
    SetRequestId(&request_);
    std::shared_ptr<const PageResponse> refusal;
    if (hooks_.check_headers != nullptr) refusal = hooks_.check_headers(&request_);
    exchange_->OnChecked(request_.caller, request_.max_body);
    if (refusal != nullptr) Reply(std::move(refusal));
  }

  // HttpHandler:
  void OnBody(absl::StatusOr<absl::Cord> body) override {
    {
      MutexLock lock(&mutex_);
      if (answered_) return;
    }
    request_.SetBody(std::move(body));
    // The exchange has to end, so whoever drops the call without an answer gives one.
    hooks_.handle(std::shared_ptr<HttpCall>(
        static_cast<HttpCall*>(this), [self = shared_from_this()](HttpCall* /*call*/) {
          self->HttpCall::Reply(TextResponse(503, "there is no answer; try again\n"));
        }));
  }
  bool IsAccepted() const override {
    PageRequest request = request_.Head();
    return hooks_.check_headers == nullptr || hooks_.check_headers(&request) == nullptr;
  }
  void OnWritten(bool ok) override {
    std::function<void(bool)> written;
    bool ends = false;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      written = std::exchange(written_, nullptr);
      ends = parts_ended_;
    }
    if (ends) return exchange_->Finish({});
    if (written != nullptr) written(ok);
  }
  // Whoever has the call may keep it, so the exchange does not wait for an answer.
  void OnCancel() override {
    std::function<void()> on_gone;
    bool ends = false;
    {
      MutexLock lock(&mutex_);
      gone_ = true;
      ends = !std::exchange(answered_, true);
      on_gone = std::exchange(on_gone_, nullptr);
    }
    if (ends) exchange_->Finish({});
    if (on_gone != nullptr) on_gone();
  }
  void OnDone() override { const std::shared_ptr<ExchangeCall> last = std::move(self_); }

  // HttpCall:
  const PageRequest& request() const override { return request_; }
  bool gone() const override {
    MutexLock lock(&mutex_);
    return gone_;
  }
  void OnGone(std::function<void()> on_gone) override {
    {
      MutexLock lock(&mutex_);
      if (!gone_) {
        on_gone_ = std::move(on_gone);
        return;
      }
    }
    on_gone();
  }

  std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head) override;
  void Reply(std::shared_ptr<const PageResponse> response) override {
    if (!BeginAnswer(*response, /*has_length=*/true)) return;
    if (response->body.empty() || request_.method == "HEAD") return exchange_->Finish({});
    const absl::string_view body = response->body;
    exchange_->WriteAndFinish(
        absl::MakeCordFromExternal(body, [kept = std::move(response)](absl::string_view) {}), {});
  }

  // False if there is an answer already.
  bool BeginAnswer(const PageResponse& head, bool has_length) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(answered_, true)) return false;
    }
    hooks_.on_answer(head.status);
    exchange_->SetHead(head.status,
                       FieldsOf(head, *request_.headers.Find(kRequestIdField), has_length));
    return true;
  }

  void WritePart(std::string part, std::function<void(bool)> written) {
    {
      MutexLock lock(&mutex_);
      writing_ = !gone_ && !part.empty() && request_.method != "HEAD";
      if (writing_) written_ = std::exchange(written, nullptr);
    }
    if (written != nullptr) return written(!gone());
    exchange_->Write(absl::Cord(std::move(part)));
  }

  void EndParts() {
    {
      MutexLock lock(&mutex_);
      parts_ended_ = true;
      if (writing_) return;  // OnWritten() ends the answer
    }
    exchange_->Finish({});
  }

 private:
  calls::HttpExchange* const exchange_;
  const ExchangeHooks& hooks_;
  std::shared_ptr<ExchangeCall> self_;  // until OnDone()
  PageRequest request_;
  mutable Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool parts_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
  std::function<void(bool)> written_ ABSL_GUARDED_BY(mutex_);
};

class PartsOfAnswer final : public PageStream {
 public:
  PartsOfAnswer(std::shared_ptr<ExchangeCall> call, bool has_begun)
      : call_(std::move(call)), has_begun_(has_begun) {}
  ~PartsOfAnswer() override {
    if (has_begun_) call_->EndParts();
  }
  void AsyncWrite(std::string part, std::function<void(bool)> written) override {
    call_->WritePart(std::move(part), std::move(written));
  }

 private:
  const std::shared_ptr<ExchangeCall> call_;
  const bool has_begun_;  // else the client was gone
};

std::unique_ptr<PageStream> ExchangeCall::ReplyInParts(const PageResponse& head) {
  const bool begins = BeginAnswer(head, /*has_length=*/false);
  return std::make_unique<PartsOfAnswer>(shared_from_this(), begins);
}

}  // namespace

calls::HttpHandler* StartExchangeCall(calls::HttpExchange* exchange, const ExchangeHooks& hooks) {
  const auto call = std::make_shared<ExchangeCall>(exchange, hooks);
  call->Start();
  return call.get();
}

}  // namespace sru::server::http
