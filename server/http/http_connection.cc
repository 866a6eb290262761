#include "server/http/http_connection.h"

#include <algorithm>
#include <atomic>
#include <boost/beast/http/status.hpp>
#include <exception>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/http/answer_fields.h"

namespace sru::server::http {

using door::CloseCause;

namespace {

// How much a client may still send while it does not take its answer.
constexpr size_t kMaxIgnoredBytes = 256 << 10;
// Later requests are read while one is answered until there is so much of them, and a piece of the
// socket's more.
constexpr size_t kMaxPipelinedBytes = 1 << 10;
// A buffer that has grown beyond this is given back.
constexpr size_t kKeptBytes = 16 << 10;
// The rest of a refused request is read up to this size, to keep the connection.
constexpr uint64_t kMaxRestBytes = 64 << 10;
// So much of a body has to come within Limits::progress_timeout.
constexpr size_t kProgressBytes = 16 << 10;
// Who closes his side without having said that he will has left, if he has no answer after this.
constexpr absl::Duration kHalfClosedTime = absl::Seconds(3);
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

HttpConnection::SteadyTime In(absl::Duration duration) {
  return duration == absl::InfiniteDuration()
             ? HttpConnection::SteadyTime::max()
             : std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
}

}  // namespace

// A request as an exchange. Threads leave what they give for the connection's thread. It is deleted
// when its handler has given the end and its answer has left, or nobody gets that.
class HttpConnection::Request final : public calls::HttpExchange, private transport::LoopWork {
 public:
  Request(HttpConnection* connection, PageRequest head)
      : connection_(connection), owner_(connection->owner_), head_(std::move(head)) {
    target_ = head_.query.empty() ? head_.path : absl::StrCat(head_.path, "?", head_.query);
    owner_.CountRequests(1);
  }

  const PageRequest& head() const { return head_; }
  bool IsAccepted() const { return handler_->IsAccepted(); }

  // On the connection's thread.

  // Returns whether the handler has answered at once.
  bool Start() {
    handler_ = owner_.Start(this);
    return (asked_.load(std::memory_order_relaxed) & kFinish) != 0;
  }
  void GiveBody(absl::StatusOr<absl::Cord> body) {
    awaits_body_ = false;
    handler_->OnBody(std::move(body));
  }
  // What was given last has been written.
  void OnPartWritten() {
    is_writing_ = false;
    handler_->OnWritten(true);
  }
  // The answer has left.
  void End() {
    owner_.CountRequests(-1);
    if (handler_ != nullptr) handler_->OnDone();  // else there was no memory to make it
    delete this;
  }
  // The connection is closed, or has answered by itself.
  void Abandon() {
    connection_ = nullptr;
    if (ends_ || handler_ == nullptr) return End();
    is_cancelled_.store(true, std::memory_order_release);
    handler_->OnCancel();
    if (std::exchange(awaits_body_, false)) {
      handler_->OnBody(absl::CancelledError("the client is gone"));
    }
    if (std::exchange(is_writing_, false)) handler_->OnWritten(false);
  }

  // CallOrigin, Exchange and HttpExchange:
  absl::string_view FindHeader(absl::string_view name) const override {
    const std::string* const value = head_.headers.Find(name);
    return value == nullptr ? absl::string_view() : *value;
  }
  std::string peer() const override { return head_.peer; }
  std::string certificate() const override { return head_.certificate; }
  absl::string_view method() const override { return target_; }
  absl::Duration time_left() const override { return absl::InfiniteDuration(); }
  bool is_cancelled() const override { return is_cancelled_.load(std::memory_order_acquire); }
  void Read() override {}
  void Write(absl::Cord part) override {
    given_ = std::move(part);
    Ask(kWrite);
  }
  void Finish(calls::CallEnd /*end*/) override { Ask(kFinish); }
  void WriteAndFinish(absl::Cord body, calls::CallEnd /*end*/) override {
    given_ = std::move(body);
    Ask(kWrite | kFinish);
  }
  absl::string_view verb() const override { return head_.method; }
  void VisitHeaders(const std::function<void(absl::string_view name, absl::string_view value)>&
                        visit) const override {
    for (const auto& [name, value] : head_.headers) visit(name, value);
  }
  void OnChecked(const void* caller, size_t max_body) override {
    if (caller != nullptr) connection_->caller_ = caller;
    connection_->max_body_ = max_body;
  }
  void SetHead(int status, calls::Metadata fields) override {
    given_status_ = status;
    given_fields_ = std::move(fields);
  }

 private:
  enum Asked : uint32_t { kWrite = 1, kFinish = 2 };

  ~Request() = default;

  void Ask(uint32_t asked) {
    if (asked_.fetch_or(asked, std::memory_order_acq_rel) == 0) owner_.Wake(this);
  }
  // LoopWork:
  void RunOnLoop() override {
    const uint32_t asked = asked_.exchange(0, std::memory_order_acq_rel);
    ends_ = (asked & kFinish) != 0;
    is_writing_ |= (asked & kWrite) != 0 && !ends_;
    if (connection_ == nullptr) {
      if (std::exchange(is_writing_, false)) handler_->OnWritten(false);
      if (ends_) End();
      return;
    }
    const auto connection = connection_->shared_from_this();
    if (given_status_ != 0) {
      connection->status_ = std::exchange(given_status_, 0);
      connection->fields_ = std::move(given_fields_);
    }
    connection->TakeAnswer(std::exchange(given_, absl::Cord()), ends_);
  }

  HttpConnection* connection_;  // null: nobody gets the answer
  Owner& owner_;
  const PageRequest head_;
  std::string target_;
  calls::HttpHandler* handler_ = nullptr;
  bool awaits_body_ = true;
  bool is_writing_ = false;  // a part that is not the end
  bool ends_ = false;        // the handler has given the end
  std::atomic<bool> is_cancelled_{false};
  // What a thread has left:
  std::atomic<uint32_t> asked_{0};
  int given_status_ = 0;
  calls::Metadata given_fields_;
  absl::Cord given_;
};

HttpConnection::HttpConnection(door::SessionHost* host, const door::PeerInfo& peer, Owner* owner)
    : owner_(*owner),
      host_(*host),
      peer_(peer.name),
      certificate_(peer.certificate),
      parser_(owner->options().limits.max_header_bytes, owner->options().limits.max_body_bytes),
      too_old_at_(In(owner->options().limits.max_age)) {
  body_place_.key = peer.key;
}

HttpConnection::~HttpConnection() { ReleaseBody(); }

void HttpConnection::EndsAt(SteadyTime deadline) {
  deadline_ = deadline;
  if (!closed_ && deadline < due()) owner_.timers().Set(this, deadline);
}

void HttpConnection::EndsIn(absl::Duration duration) { EndsAt(In(duration)); }

void HttpConnection::OnTimer(SteadyTime now) {
  const auto self = shared_from_this();
  if (now < deadline_) return EndsAt(deadline_);  // which was moved meanwhile
  OnDeadline();
}

void HttpConnection::Recheck(bool trusted) {
  bool accepted = trusted;
  // An answer that has not begun may become one in parts.
  const bool begins = stage_ == Stage::kBody || stage_ == Stage::kHandling;
  if (accepted && (begins || stage_ == Stage::kParts)) {
    is_refused_ = !request_->IsAccepted();
    accepted = begins || !is_refused_;
  }
  if (!accepted) Close(CloseCause::kRevoked, /*reset=*/true);
}

void HttpConnection::Start() {
  body_place_.connection = weak_from_this();
  started_request_ = true;  // the first one has to come within the time of the headers
  EndsIn(owner_.options().limits.header_timeout);
  Process();
}

bool HttpConnection::WantsToRead() const {
  switch (stage_) {
    case Stage::kHeader:
    case Stage::kBody:
    case Stage::kRest:
    case Stage::kClosing:
      return true;
    case Stage::kHandling:
    case Stage::kWriting:
    case Stage::kParts:
      // To hear when the client goes away.
      return owner_.options().keep_alive && in_.size() < kMaxPipelinedBytes;
  }
  return false;
}

void HttpConnection::OnRead(bool ok, absl::string_view data) {
  reading_ = false;
  if (closed_) return;
  if (!ok) {
    peer_closed_ = true;
    if (stage_ == Stage::kBody && !owner_.options().keep_alive) {
      return GiveBody(SlowBody());
    }
    if (!close_after_ && stage_ == Stage::kParts) return Close(CloseCause::kPeer, /*reset=*/false);
    if (stage_ == Stage::kHandling) AwaitHandler();
    return Process();
  }
  if (stage_ == Stage::kClosing) {
    ignored_bytes_ += data.size();
    if (ignored_bytes_ > kMaxIgnoredBytes) return Close(CloseCause::kNotTaken, /*reset=*/true);
    return Process();
  }
  in_.append(data.data(), data.size());
  Process();
}

void HttpConnection::Process() {
  if (processing_) return;  // whoever does goes on
  processing_ = true;
  answered_ = false;
  absl::string_view in = in_;
  try {
    while (!closed_ && !answered_ && Step(&in)) {
    }
  } catch (const std::exception&) {  // there is no memory
    Close(CloseCause::kPeer, /*reset=*/true);
  }
  processing_ = false;
  if (closed_) return;
  in_.erase(0, in_.size() - in.size());
  if (in_.empty() && in_.capacity() > kKeptBytes) in_ = std::string();
  if (answered_ && !in_.empty()) {
    if (std::exchange(in_turn_, true)) return;
    return owner_.RunInTurn(turn_key(), [self = shared_from_this()] {
      self->in_turn_ = false;
      if (!self->closed_) self->Process();
    });
  }
  const bool is_answering =
      stage_ == Stage::kHandling || stage_ == Stage::kWriting || stage_ == Stage::kParts;
  if (peer_closed_ && !is_answering) {
    return Close(stage_ == Stage::kClosing ? CloseCause::kAnswered : CloseCause::kPeer,
                 /*reset=*/false);
  }
  if (reading_ || peer_closed_ || !WantsToRead()) return;
  reading_ = true;
  host_.Read(caller_);
}

bool HttpConnection::Step(absl::string_view* in) {
  switch (stage_) {
    case Stage::kHeader:
      return StepHeader(in);
    case Stage::kBody:
      return StepBody(in);
    case Stage::kRest:
      return StepRest(in);
    default:
      return false;
  }
}

bool HttpConnection::StepHeader(absl::string_view* in) {
  if (in->empty()) return false;
  if (!started_request_) {
    started_request_ = true;
    EndsIn(owner_.options().limits.header_timeout);
  }
  switch (parser_.ReadHeader(in)) {
    case HttpRequestParser::Result::kNeedMore:
      return false;
    case HttpRequestParser::Result::kError:
      Refuse(parser_.error_status(), parser_.error());
      return true;
    case HttpRequestParser::Result::kDone:
      break;
  }
  OnHeader();
  return true;
}

void HttpConnection::OnHeader() {
  const HttpServer::Options& options = owner_.options();
  const uint64_t length = parser_.content_length().value_or(0);
  PageRequest& head = parser_.request();
  head.peer = peer_;
  head.certificate = certificate_;
  is_head_ = head.method == "HEAD";
  complete_ = length == 0 && !parser_.chunked();
  close_after_ = !options.keep_alive || !parser_.keep_alive();
  max_body_ = options.limits.max_body_bytes;
  request_ = new Request(this, std::move(head));  // deletes itself
  const bool is_answered = request_->Start();
  if (is_answered || max_body_ == 0) {
    // A client that was not told to go on may send the body or not, so its end is unknown. The
    // parser reads no body that is over its bound.
    if (!complete_ && (parser_.chunked() || parser_.expects_continue() ||
                       length > std::min<uint64_t>(kMaxRestBytes, options.limits.max_body_bytes))) {
      close_after_ = true;
    }
    if (!is_answered) return GiveBody(absl::Cord());
    stage_ = Stage::kHandling;
    return AwaitHandler();
  }
  if (!options.keep_alive && !parser_.content_length().has_value()) {
    complete_ = true;  // it is not read
    return GiveBody(absl::InvalidArgumentError("Content-Length: expected the size of the body"));
  }
  const size_t most = std::min(options.limits.max_body_bytes, max_body_);
  parser_.set_max_body_bytes(most);
  if (length > most) {
    close_after_ = true;
    return GiveBody(absl::ResourceExhaustedError(
        absl::StrCat("the body has ", length, " bytes, expected at most ", most)));
  }
  if (complete_) return GiveBody(absl::Cord());
  stage_ = Stage::kBody;
  EndsIn(options.limits.body_timeout);
  body_deadline_ = deadline_;
  AwaitProgress();
  if (!parser_.expects_continue() || parser_.is_http_1_0()) return;
  // Nothing else is being written, and these few bytes fit into the kernel's buffer.
  head_ = kContinue;
  sends_ = host_.Write(head_, {}) == door::SessionHost::Sent::kLater;
  if (!sends_) head_.clear();
}

void HttpConnection::AwaitProgress() {
  progress_ = 0;
  EndsAt(std::min(body_deadline_, In(owner_.options().limits.progress_timeout)));
}

absl::Status HttpConnection::SlowBody() const {
  const HttpServer::Limits& limits = owner_.options().limits;
  if (std::chrono::steady_clock::now() < body_deadline_ && !peer_closed_) {
    return absl::DeadlineExceededError(absl::StrCat("less than ", kProgressBytes,
                                                    " bytes of the body came within ",
                                                    absl::FormatDuration(limits.progress_timeout)));
  }
  return absl::DeadlineExceededError(absl::StrCat("the body did not come whole within ",
                                                  absl::FormatDuration(limits.body_timeout)));
}

bool HttpConnection::StepBody(absl::string_view* in) {
  if (in->empty()) return false;
  const size_t before = in->size();
  const HttpRequestParser::Result result = parser_.ReadBody(in, &body_);
  progress_ += before - in->size();
  if (progress_ >= kProgressBytes) AwaitProgress();
  reserved_ = true;
  if (!owner_.ReserveBody(&body_place_, body_.size(), result == HttpRequestParser::Result::kDone)) {
    DropBody();
    return true;
  }
  switch (result) {
    case HttpRequestParser::Result::kNeedMore:
      return false;
    case HttpRequestParser::Result::kError:
      if (parser_.error_status() == 413) {
        close_after_ = true;
        GiveBody(absl::ResourceExhaustedError(
            absl::StrCat(parser_.error(), ", which is the most that the server takes")));
      } else {
        Refuse(parser_.error_status(), parser_.error());
      }
      return true;
    case HttpRequestParser::Result::kDone:
      break;
  }
  complete_ = true;
  GiveBody(std::exchange(body_, absl::Cord()));
  return true;
}

void HttpConnection::DropBody() {
  close_after_ = true;
  body_.Clear();
  GiveBody(absl::UnavailableError(
      "the requests that the server is reading hold all the memory that they may; try again"));
}

void HttpConnection::OnBodyMadeWay() {
  owner_.Post([self = shared_from_this()] {
    if (!self->closed_ && self->stage_ == Stage::kBody) self->DropBody();
  });
}

bool HttpConnection::StepRest(absl::string_view* in) {
  body_.Clear();
  switch (parser_.ReadBody(in, &body_)) {
    case HttpRequestParser::Result::kNeedMore:
      return false;
    case HttpRequestParser::Result::kError:
      Close(CloseCause::kProtocol, /*reset=*/false);
      return true;
    case HttpRequestParser::Result::kDone:
      break;
  }
  complete_ = true;
  EndRequest();
  return true;
}

void HttpConnection::GiveBody(absl::StatusOr<absl::Cord> body) {
  stage_ = Stage::kHandling;
  host_.SetIdle(false);
  call_ends_ = In(owner_.options().limits.max_call);
  AwaitHandler();
  request_->GiveBody(std::move(body));
}

void HttpConnection::AwaitHandler() {
  EndsAt(peer_closed_ && !close_after_ ? std::min(In(kHalfClosedTime), call_ends_) : call_ends_);
}

void HttpConnection::Refuse(int status, const std::string& text) {
  close_after_ = true;
  const PageRequest& head = request_ == nullptr ? parser_.request() : request_->head();
  std::string id = head.header(kRequestIdField);
  if (!telemetry::IsValidRequestId(id)) id = telemetry::MakeRequestId();
  if (request_ != nullptr) std::exchange(request_, nullptr)->Abandon();
  const auto& make_error = owner_.options().make_error;
  PageResponse refusal = make_error == nullptr ? TextResponse(status, absl::StrCat(text, "\n"))
                                               : make_error(status, text);
  owner_.OnAnswer(refusal.status);
  calls::Metadata fields = FieldsOf(refusal, id);
  Write(refusal.status, std::move(fields), absl::Cord(std::move(refusal.body)));
}

std::string HttpConnection::HeadOf(int status, const calls::Metadata& fields, bool in_parts) {
  const auto reason = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  close_after_ = close_after_ || owner_.draining() || is_too_old();
  std::string head =
      absl::StrCat("HTTP/1.1 ", status, " ", absl::string_view(reason.data(), reason.size()));
  for (const auto& [name, value] : fields) {
    absl::StrAppend(&head, "\r\n", name, ": ", value);
    if (in_parts && chunked_ && name == "Content-Type") head += "\r\nTransfer-Encoding: chunked";
  }
  if (close_after_) {
    head += "\r\nConnection: close";
  } else if (parser_.is_http_1_0()) {
    head += "\r\nConnection: keep-alive";
  }
  head += "\r\n\r\n";
  return head;
}

void HttpConnection::TakeAnswer(absl::Cord part, bool ends) {
  if (stage_ == Stage::kHandling) {
    const bool has_length = std::any_of(fields_.begin(), fields_.end(), [](const auto& field) {
      return field.first == "Content-Length";
    });
    if (has_length || status_ == 204) {
      return Write(status_, std::exchange(fields_, {}), std::move(part));
    }
    BeginParts();
    if (closed_) return;
  }
  part_is_unsent_ = !ends;
  if (!part.empty()) AddPart(part);
  if (ends) EndParts();
}

void HttpConnection::Write(int status, calls::Metadata fields, absl::Cord body) {
  stage_ = Stage::kWriting;
  host_.SetIdle(true);
  status_ = status;
  fields_ = std::move(fields);
  answer_ = std::move(body);
  EndsIn(owner_.options().limits.answer_timeout);
  if (!sends_) SendWhole();  // else after "100 Continue", which is still on its way
}

void HttpConnection::SendWhole() {
  head_ = HeadOf(status_, fields_, /*in_parts=*/false);
  Send(head_, is_head_ ? absl::string_view() : answer_.Flatten());
}

void HttpConnection::Send(absl::string_view first, absl::string_view second) {
  sends_ = true;
  if (host_.Write(first, second) == door::SessionHost::Sent::kAll) {
    sends_ = false;
    OnSent();
  }
}

void HttpConnection::OnWritten(bool ok) {
  sends_ = false;
  if (closed_) return;
  if (!ok) return Close(CloseCause::kPeer, /*reset=*/false);
  if (head_ == kContinue) {
    head_.clear();
    if (stage_ == Stage::kWriting) SendWhole();
    if (stage_ == Stage::kParts) SendParts();
    return;
  }
  OnSent();
}

void HttpConnection::OnSent() {
  if (stage_ == Stage::kWriting) return EndRequest();
  if (stage_ != Stage::kParts) return;
  sending_.clear();
  rate_.EndPart(std::chrono::steady_clock::now());
  EndsAt(parts_deadline_);
  if (std::exchange(part_is_sending_, false)) request_->OnPartWritten();
  if (!unsent_.empty()) return SendParts();
  if (parts_ended_) EndRequest();
}

// The answer has been written.
void HttpConnection::EndRequest() {
  answered_ = true;
  if (request_ != nullptr) std::exchange(request_, nullptr)->End();
  answer_.Clear();
  head_.clear();
  if (close_after_ || owner_.draining()) {
    ReleaseBody();
    host_.EndSending();
    if ((owner_.draining() && complete_) || peer_closed_) {
      return Close(CloseCause::kAnswered, /*reset=*/false);
    }
    // If this closed at once and more data came, the kernel would reset the connection, and the
    // client might lose the answer.
    stage_ = Stage::kClosing;
    in_.clear();
    EndsIn(owner_.options().limits.answer_timeout);
    return Process();
  }
  if (!complete_) {
    stage_ = Stage::kRest;
    EndsIn(owner_.options().limits.body_timeout);
    return Process();
  }
  ReleaseBody();
  parser_.Reset();
  parser_.set_max_body_bytes(owner_.options().limits.max_body_bytes);
  stage_ = Stage::kHeader;
  started_request_ = false;
  parts_ended_ = false;
  rate_ = {};
  is_refused_ = false;
  chunked_ = true;
  EndsAt(std::min(In(owner_.options().limits.idle_timeout), too_old_at_));
  Process();
}

void HttpConnection::ReleaseBody() {
  body_.Clear();
  if (std::exchange(reserved_, false)) owner_.ReleaseBody(&body_place_);
}

void HttpConnection::BeginParts() {
  if (is_refused_) return Close(CloseCause::kRevoked, /*reset=*/true);
  if (peer_closed_ && !close_after_) return Close(CloseCause::kPeer, /*reset=*/true);
  // Clients of HTTP/1.0 know no chunks: for them the end of the connection is the end.
  chunked_ = !parser_.is_http_1_0();
  if (!chunked_) close_after_ = true;
  stage_ = Stage::kParts;
  host_.SetIdle(true);
  const absl::Duration grace = owner_.options().limits.max_age_grace;
  parts_deadline_ = call_ends_;
  if (grace != absl::InfiniteDuration() && too_old_at_ != SteadyTime::max()) {
    parts_deadline_ = std::min(call_ends_, too_old_at_ + absl::ToChronoNanoseconds(grace));
  }
  EndsAt(parts_deadline_);
  unsent_ = HeadOf(status_, std::exchange(fields_, {}), /*in_parts=*/true);
}

void HttpConnection::AddPart(const absl::Cord& part) {
  if (chunked_) absl::StrAppend(&unsent_, absl::Hex(part.size()), "\r\n");
  for (const absl::string_view chunk : part.Chunks()) absl::StrAppend(&unsent_, chunk);
  if (chunked_) unsent_ += "\r\n";
  SendParts();
}

void HttpConnection::EndParts() {
  parts_ended_ = true;
  if (chunked_ && !is_head_) unsent_ += "0\r\n\r\n";
  if (!sends_ && unsent_.empty()) return EndRequest();
  SendParts();
}

void HttpConnection::SendParts() {
  if (sends_ || unsent_.empty()) return;
  sending_ = std::exchange(unsent_, std::string());
  part_is_sending_ = std::exchange(part_is_unsent_, false);
  const SteadyTime now = std::chrono::steady_clock::now();
  const SteadyTime::duration owed = now - rate_.BeginPart(now, sending_.size());
  EndsAt(std::min(In(owner_.options().limits.answer_timeout) - owed, parts_deadline_));
  Send(sending_, {});
}

void HttpConnection::OnDeadline() {
  if (stage_ == Stage::kBody && !sends_) {
    // The handler tells the client, which may not have seen that it is late.
    close_after_ = true;
    return GiveBody(SlowBody());
  }
  if (stage_ == Stage::kHandling && std::chrono::steady_clock::now() >= call_ends_) {
    return Refuse(504, absl::StrCat("the call took longer than --max_call_s allows, which is ",
                                    absl::FormatDuration(owner_.options().limits.max_call)));
  }
  const bool in_parts = stage_ == Stage::kParts && deadline_ < parts_deadline_;
  const bool is_taken = !sends_ || (stage_ != Stage::kWriting && !in_parts);
  if (!is_taken) owner_.OnNotTaken(request_ == nullptr ? "" : request_->head().path, peer_);
  const bool idle = stage_ == Stage::kHeader && in_.empty() && !started_request_;
  const bool is_old = is_too_old() && (idle || stage_ == Stage::kParts);
  const CloseCause cause = !is_taken                   ? CloseCause::kNotTaken
                           : is_old                    ? CloseCause::kAge
                           : stage_ == Stage::kClosing ? CloseCause::kAnswered
                                                       : CloseCause::kTooSlow;
  Close(cause, /*reset=*/!idle);
}

void HttpConnection::BeginStop() {
  if (stage_ == Stage::kWriting || stage_ == Stage::kParts || stage_ == Stage::kClosing) return;
  if (stage_ != Stage::kBody || sends_) return Close(CloseCause::kDrain, /*reset=*/false);
  close_after_ = true;
  GiveBody(absl::UnavailableError("the server is shutting down"));
}

void HttpConnection::Close(CloseCause cause, bool reset) {
  if (!closed_) host_.End(cause, reset);
}

void HttpConnection::OnClosed() {
  closed_ = true;
  owner_.timers().Clear(this);
  ReleaseBody();
  owner_.OnClosed();
  if (request_ != nullptr) std::exchange(request_, nullptr)->Abandon();
}

}  // namespace sru::server::http
