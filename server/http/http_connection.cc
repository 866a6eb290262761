#include "server/http/http_connection.h"

#include <algorithm>
#include <atomic>
#include <boost/beast/http/status.hpp>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/http/answer_fields.h"

namespace sru::server::http {

using door::CloseCause;

namespace {

// How much of an answer in parts may wait to be sent.
constexpr size_t kMaxUnsentBytes = 64 << 10;
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

class HttpConnection::Call final : public HttpCall, public std::enable_shared_from_this<Call> {
 public:
  Call(PageRequest request, std::weak_ptr<HttpConnection> connection, std::weak_ptr<HttpJobs> jobs)
      : request_(std::move(request)), connection_(std::move(connection)), jobs_(std::move(jobs)) {}

  const PageRequest& request() const override { return request_; }
  bool gone() const override { return gone_; }

  void OnGone(std::function<void()> on_gone) override {
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      if (!gone_) {
        on_gone_ = std::move(on_gone);
        return;
      }
    }
    on_gone();
  }

  void Reply(std::shared_ptr<const PageResponse> response) override {
    Post([response = std::move(response)](Call* self, HttpConnection* open) {
      open->Reply(self, response);
    });
  }

  std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head) override {
    PageResponse copy;
    copy.status = head.status;
    copy.content_type = head.content_type;
    copy.headers = head.headers;
    Post([head = std::move(copy)](Call* self, HttpConnection* open) {
      open->BeginParts(self, head);
    });
    return std::make_unique<Stream>(shared_from_this());
  }

  // On the connection's thread: its answer has left, or nobody will get it.
  void End(bool gone) {
    std::function<void()> on_gone;
    std::function<void(bool)> written;
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      gone_ = gone;
      on_gone = std::exchange(on_gone_, nullptr);
      written = std::exchange(written_, nullptr);
    }
    if (gone && on_gone != nullptr) on_gone();
    if (written != nullptr) written(!gone);
  }

  // The connection has written so much of what the stream was given.
  void OnSent(size_t bytes) {
    std::function<void(bool)> written;
    {
      MutexLock lock(&mutex_);
      unsent_bytes_ -= bytes;
      if (unsent_bytes_ < kMaxUnsentBytes) written = std::exchange(written_, nullptr);
    }
    if (written != nullptr) written(true);
  }

 private:
  class Stream final : public PageStream {
   public:
    explicit Stream(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Stream() override {
      call_->Post([](Call* self, HttpConnection* open) { open->EndParts(self); });
    }
    // A chunk without bytes would be the last one.
    void AsyncWrite(std::string part, std::function<void(bool)> written) override {
      if (part.empty()) return written(!call_->gone());
      call_->AsyncSend(std::move(part), std::move(written));
    }

   private:
    const std::shared_ptr<Call> call_;
  };

  void AsyncSend(std::string part, std::function<void(bool)> written) {
    bool more = false;
    {
      MutexLock lock(&mutex_);
      if (!ended_) {
        unsent_bytes_ += part.size();
        more = unsent_bytes_ < kMaxUnsentBytes;
        if (!more) written_ = std::exchange(written, nullptr);
      }
    }
    Post([part = std::move(part)](Call* self, HttpConnection* open) { open->AddPart(self, part); });
    if (written != nullptr) written(more);
  }

  using Job = std::function<void(Call* self, HttpConnection* open)>;

  // Runs `job` on the connection's thread if it is still open, after those that were posted before.
  // What threads hand to a loop comes in any order (late_wakes.h), so what is handed over only says
  // that there is a job.
  void Post(Job job) {
    const std::shared_ptr<HttpJobs> jobs = jobs_.lock();
    if (jobs == nullptr || gone_) return;
    {
      MutexLock lock(&mutex_);
      posted_.push_back(std::move(job));
    }
    jobs->Post([self = shared_from_this()] { self->RunPosted(); });
  }

  void RunPosted() {
    while (true) {
      Job job;
      {
        MutexLock lock(&mutex_);
        if (posted_.empty()) return;
        job = std::move(posted_.front());
        posted_.pop_front();
      }
      if (const auto open = connection_.lock()) job(this, open.get());
    }
  }

  const PageRequest request_;
  const std::weak_ptr<HttpConnection> connection_;
  const std::weak_ptr<HttpJobs> jobs_;
  std::atomic<bool> gone_{false};
  Mutex mutex_;
  std::deque<Job> posted_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_gone_ ABSL_GUARDED_BY(mutex_);
  std::function<void(bool)> written_ ABSL_GUARDED_BY(mutex_);  // of a part that is not sent yet
};

HttpConnection::HttpConnection(door::SessionHost* host, const door::PeerInfo& peer, Owner* owner)
    : owner_(*owner),
      jobs_(owner->jobs()),
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
    const auto& check = owner_.options().check_headers;
    PageRequest request = (call_ == nullptr ? parser_.request() : call_->request()).Head();
    const auto refusal = check == nullptr ? nullptr : check(&request);
    is_refused_ = refusal != nullptr;
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
      return Dispatch(SlowBody());
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
  while (!closed_ && !answered_ && Step(&in)) {
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
  PageRequest& request = parser_.request();
  SetRequestId(&request);
  request.peer = peer_;
  request.certificate = certificate_;
  is_head_ = request.method == "HEAD";
  complete_ = length == 0 && !parser_.chunked();
  close_after_ = !options.keep_alive || !parser_.keep_alive();
  std::shared_ptr<const PageResponse> refusal;
  if (options.check_headers != nullptr) refusal = options.check_headers(&request);
  if (request.caller != nullptr) caller_ = request.caller;
  if (refusal != nullptr || request.max_body == 0) {
    // A client that was not told to go on may send the body or not, so its end is unknown. The
    // parser reads no body that is over its bound.
    if (!complete_ && (parser_.chunked() || parser_.expects_continue() ||
                       length > std::min<uint64_t>(kMaxRestBytes, options.limits.max_body_bytes))) {
      close_after_ = true;
    }
    return refusal == nullptr ? Dispatch(absl::Cord()) : Write(std::move(refusal));
  }
  if (!options.keep_alive && !parser_.content_length().has_value()) {
    complete_ = true;  // it is not read
    return Dispatch(absl::InvalidArgumentError("Content-Length: expected the size of the body"));
  }
  const size_t most = std::min(options.limits.max_body_bytes, request.max_body);
  parser_.set_max_body_bytes(most);
  if (length > most) {
    close_after_ = true;
    return Dispatch(absl::ResourceExhaustedError(
        absl::StrCat("the body has ", length, " bytes, expected at most ", most)));
  }
  if (complete_) return Dispatch(absl::Cord());
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
        Dispatch(absl::ResourceExhaustedError(
            absl::StrCat(parser_.error(), ", which is the most that the server takes")));
      } else {
        Refuse(parser_.error_status(), parser_.error());
      }
      return true;
    case HttpRequestParser::Result::kDone:
      break;
  }
  complete_ = true;
  Dispatch(std::exchange(body_, absl::Cord()));
  return true;
}

void HttpConnection::DropBody() {
  close_after_ = true;
  body_.Clear();
  Dispatch(absl::UnavailableError(
      "the requests that the server is reading hold all the memory that they may; try again"));
}

void HttpConnection::OnBodyMadeWay() {
  if (const std::shared_ptr<HttpJobs> jobs = jobs_.lock()) {
    jobs->Post([self = shared_from_this()] {
      if (!self->closed_ && self->stage_ == Stage::kBody) self->DropBody();
    });
  }
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

const PageRequest& HttpConnection::request() {
  return call_ == nullptr ? parser_.request() : call_->request();
}

void HttpConnection::Dispatch(absl::StatusOr<absl::Cord> body) {
  PageRequest request = std::move(parser_.request());
  request.SetBody(std::move(body));
  call_ = std::make_shared<Call>(std::move(request), weak_from_this(), jobs_);
  stage_ = Stage::kHandling;
  host_.SetIdle(false);
  AwaitHandler();
  const std::shared_ptr<Call> call = call_;
  owner_.Handle(call);
}

// The handler limits its own time.
void HttpConnection::AwaitHandler() {
  EndsIn(peer_closed_ && !close_after_ ? kHalfClosedTime : absl::InfiniteDuration());
}

void HttpConnection::Refuse(int status, const std::string& text) {
  close_after_ = true;
  SetRequestId(&parser_.request());
  const auto& make_error = owner_.options().make_error;
  Write(std::make_shared<const PageResponse>(make_error == nullptr
                                                 ? TextResponse(status, absl::StrCat(text, "\n"))
                                                 : make_error(status, text)));
}

std::string HttpConnection::HeadOf(const PageResponse& response, bool in_parts) {
  const auto reason = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(response.status)));
  close_after_ = close_after_ || owner_.draining() || is_too_old();
  std::string head = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nDate: ", HttpDate(), "\r\nX-Request-Id: ", *request().headers.Find(kRequestIdField));
  if (response.has_body()) {
    absl::StrAppend(&head, "\r\nContent-Type: ", response.content_type);
    if (!in_parts) {
      absl::StrAppend(&head, "\r\nContent-Length: ", response.body.size());
    } else if (chunked_) {
      head += "\r\nTransfer-Encoding: chunked";
    }
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&head, "\r\n", name, ": ", value);
  }
  if (close_after_) {
    head += "\r\nConnection: close";
  } else if (parser_.is_http_1_0()) {
    head += "\r\nConnection: keep-alive";
  }
  head += "\r\n\r\n";
  return head;
}

void HttpConnection::Reply(const Call* call, std::shared_ptr<const PageResponse> response) {
  if (!closed_ && stage_ == Stage::kHandling && call_.get() == call) Write(std::move(response));
}

void HttpConnection::Write(std::shared_ptr<const PageResponse> response) {
  owner_.OnAnswer(response->status);
  stage_ = Stage::kWriting;
  host_.SetIdle(true);
  response_ = std::move(response);
  EndsIn(owner_.options().limits.answer_timeout);
  if (sends_) return;  // after "100 Continue", which is still on its way
  head_ = HeadOf(*response_, /*in_parts=*/false);
  Send(head_, is_head_ ? absl::string_view() : absl::string_view(response_->body));
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
    if (stage_ == Stage::kWriting) {
      head_ = HeadOf(*response_, /*in_parts=*/false);
      Send(head_, is_head_ ? absl::string_view() : absl::string_view(response_->body));
    } else if (stage_ == Stage::kParts) {
      WriteParts();
    }
    return;
  }
  OnSent();
}

void HttpConnection::OnSent() {
  if (stage_ == Stage::kWriting) return EndRequest();
  if (stage_ != Stage::kParts) return;
  sending_.clear();
  const size_t bytes = std::exchange(sending_bytes_, 0);
  EndsAt(parts_deadline_);
  const std::shared_ptr<Call> call = call_;
  if (bytes > 0) call->OnSent(bytes);
  if (closed_) return;
  if (!unsent_.empty()) return WriteParts();
  if (parts_ended_) EndRequest();
}

// The answer has been written.
void HttpConnection::EndRequest() {
  answered_ = true;
  if (call_ != nullptr) std::exchange(call_, nullptr)->End(/*gone=*/false);
  response_ = nullptr;
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
  is_refused_ = false;
  chunked_ = true;
  EndsAt(std::min(In(owner_.options().limits.idle_timeout), too_old_at_));
  Process();
}

void HttpConnection::ReleaseBody() {
  body_.Clear();
  if (std::exchange(reserved_, false)) owner_.ReleaseBody(&body_place_);
}

void HttpConnection::BeginParts(const Call* call, const PageResponse& head) {
  if (closed_ || stage_ != Stage::kHandling || call_.get() != call) return;
  if (is_refused_) return Close(CloseCause::kRevoked, /*reset=*/true);
  if (peer_closed_ && !close_after_) return Close(CloseCause::kPeer, /*reset=*/true);
  owner_.OnAnswer(head.status);
  // Clients of HTTP/1.0 know no chunks: for them the end of the connection is the end.
  chunked_ = !parser_.is_http_1_0();
  if (!chunked_) close_after_ = true;
  stage_ = Stage::kParts;
  host_.SetIdle(true);
  const absl::Duration grace = owner_.options().limits.max_age_grace;
  if (grace != absl::InfiniteDuration() && too_old_at_ != SteadyTime::max()) {
    parts_deadline_ = too_old_at_ + absl::ToChronoNanoseconds(grace);
  }
  EndsAt(parts_deadline_);
  unsent_ = HeadOf(head, /*in_parts=*/true);
  WriteParts();
}

void HttpConnection::AddPart(const Call* call, std::string part) {
  if (closed_ || stage_ != Stage::kParts || call_.get() != call || parts_ended_) return;
  unsent_bytes_ += part.size();
  if (is_head_) {
    // Nothing is sent.
  } else if (chunked_) {
    absl::StrAppend(&unsent_, absl::Hex(part.size()), "\r\n", part, "\r\n");
  } else {
    unsent_ += part;
  }
  WriteParts();
}

void HttpConnection::EndParts(const Call* call) {
  if (closed_ || stage_ != Stage::kParts || call_.get() != call || parts_ended_) return;
  parts_ended_ = true;
  if (chunked_ && !is_head_) unsent_ += "0\r\n\r\n";
  if (!sends_ && unsent_.empty()) return EndRequest();
  WriteParts();
}

void HttpConnection::WriteParts() {
  if (sends_ || (unsent_.empty() && unsent_bytes_ == 0)) return;
  sending_ = std::exchange(unsent_, std::string());
  sending_bytes_ = std::exchange(unsent_bytes_, 0);
  EndsAt(std::min(In(owner_.options().limits.answer_timeout), parts_deadline_));
  Send(sending_, {});
}

void HttpConnection::OnDeadline() {
  if (stage_ == Stage::kBody && !sends_) {
    // The handler tells the client, which may not have seen that it is late.
    close_after_ = true;
    return Dispatch(SlowBody());
  }
  const bool in_parts = stage_ == Stage::kParts && deadline_ < parts_deadline_;
  const bool is_taken = !sends_ || (stage_ != Stage::kWriting && !in_parts);
  if (!is_taken) owner_.OnNotTaken(request().path, peer_);
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
  Dispatch(absl::UnavailableError("the server is shutting down"));
}

void HttpConnection::Close(CloseCause cause, bool reset) {
  if (!closed_) host_.End(cause, reset);
}

void HttpConnection::OnClosed() {
  closed_ = true;
  owner_.timers().Clear(this);
  ReleaseBody();
  owner_.OnClosed();
  if (call_ != nullptr) std::exchange(call_, nullptr)->End(/*gone=*/true);
}

}  // namespace sru::server::http
