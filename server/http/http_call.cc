#include "server/http/http_call.h"

#include <exception>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/http/answer_fields.h"

namespace sru::server::http {

class HttpCall::PartsOfAnswer final : public PageStream {
 public:
  PartsOfAnswer(std::shared_ptr<HttpCall> call, bool has_begun)
      : call_(std::move(call)), has_begun_(has_begun) {}
  ~PartsOfAnswer() override {
    if (has_begun_) call_->EndParts();
  }
  void AsyncWrite(std::string part, std::function<void(bool)> written) override {
    call_->WritePart(std::move(part), std::move(written));
  }

 private:
  const std::shared_ptr<HttpCall> call_;
  const bool has_begun_;  // else the client was gone
};

void CountAnswer(int status, AnswerCounts* counts) {
  const auto digit = static_cast<size_t>(status / 100);
  if (digit < counts->size()) (*counts)[digit].fetch_add(1, std::memory_order_relaxed);
}

PageRequest RequestOf(const calls::HttpExchange& exchange) {
  PageRequest request;
  request.method = std::string(exchange.verb());
  const absl::string_view target = exchange.method();
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != absl::string_view::npos) request.query = std::string(target.substr(question + 1));
  request.peer = exchange.peer();
  request.certificate = exchange.certificate();
  exchange.VisitHeaders([&request](absl::string_view name, absl::string_view value) {
    request.headers.Add(name, value);
  });
  SetRequestId(&request);
  return request;
}

void HttpCall::Begin(AnswerCounts* counts) {
  self_ = shared_from_this();
  counts_ = counts;
  Verdict verdict = CheckHead();
  exchange_->OnChecked(verdict.caller, verdict.max_body);
  if (verdict.refusal != nullptr) Reply(std::move(verdict.refusal));
}

bool HttpCall::gone() const {
  MutexLock lock(&mutex_);
  return gone_;
}

absl::StatusOr<std::string> HttpCall::TakeBody() {
  if (!body_.ok()) return body_.status();
  return std::string(std::exchange(*body_, absl::Cord()));
}

void HttpCall::Reply(std::shared_ptr<const PageResponse> response) {
  if (!BeginAnswer(*response, /*has_length=*/true)) return;
  if (response->body.empty() || request_.method == "HEAD") return exchange_->Finish({});
  const absl::string_view body = response->body;
  exchange_->WriteAndFinish(
      absl::MakeCordFromExternal(body, [kept = std::move(response)](absl::string_view) {}), {});
}

std::unique_ptr<PageStream> HttpCall::ReplyInParts(const PageResponse& head) {
  const bool begins = BeginAnswer(head, /*has_length=*/false);
  return std::make_unique<PartsOfAnswer>(shared_from_this(), begins);
}

void HttpCall::OnBody(absl::StatusOr<absl::Cord> body) {
  {
    MutexLock lock(&mutex_);
    if (answered_) return;
  }
  body_ = std::move(body);
  // The exchange has to end, so whoever drops the call without an answer gives one.
  const std::shared_ptr<HttpCall> handed(
      this, [self = shared_from_this()](HttpCall* /*call*/) mutable {
        const std::shared_ptr<HttpCall> last = std::move(self);  // weak pointers keep this function
        last->Reply(TextResponse(503, "there is no answer; try again\n"));
      });
  try {
    OnRequest(handed);
  } catch (const std::bad_alloc&) {
    Reply(TextResponse(503, "no memory to answer; try again\n"));
  } catch (const std::exception& error) {
    Reply(TextResponse(500, absl::StrCat(error.what(), "\n")));
  }
}

void HttpCall::OnWritten(bool ok) {
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
void HttpCall::OnCancel() {
  const std::shared_ptr<HttpCall> self = shared_from_this();  // Finish() may bring OnDone()
  bool ends = false;
  {
    MutexLock lock(&mutex_);
    gone_ = true;
    ends = !std::exchange(answered_, true);
  }
  if (ends) exchange_->Finish({});
  OnGone();
}

// False if there is an answer already. One that could not begin leaves room for another.
bool HttpCall::BeginAnswer(const PageResponse& head, bool has_length) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(answered_, true)) return false;
  }
  absl::Cleanup undo = [this] {
    MutexLock lock(&mutex_);
    answered_ = gone_;
  };
  exchange_->SetHead(head.status,
                     FieldsOf(head, *request_.headers.Find(kRequestIdField), has_length));
  std::move(undo).Cancel();
  CountAnswer(head.status, counts_);
  return true;
}

void HttpCall::WritePart(std::string part, std::function<void(bool)> written) {
  absl::Cord bytes(std::move(part));
  {
    MutexLock lock(&mutex_);
    writing_ = !gone_ && !bytes.empty() && request_.method != "HEAD";
    if (writing_) written_ = std::exchange(written, nullptr);
  }
  if (written != nullptr) return written(!gone());
  absl::Cleanup undo = [this] {
    std::function<void(bool)> dropped;  // may keep the stream, which keeps this
    MutexLock lock(&mutex_);
    writing_ = false;
    dropped = std::exchange(written_, nullptr);
  };
  exchange_->Write(std::move(bytes));
  std::move(undo).Cancel();
}

void HttpCall::EndParts() {
  {
    MutexLock lock(&mutex_);
    parts_ended_ = true;
    if (writing_) return;  // OnWritten() ends the answer
  }
  exchange_->Finish({});
}

}  // namespace sru::server::http
