#include "server/door/stream.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/interruption.h"
#include "server/base/retry.h"
#include "server/door/connection.h"
#include "server/door/deflate.h"
#include "server/door/response_head.h"

namespace sru::server::door {
namespace {

// A client that sends less than this at a time has to send it in time.
constexpr uint32_t kProgressBytes = 16 << 10;
// Beside its name and value (RFC 9113, 6.5.2).
constexpr size_t kBesideField = 32;
// How much longer than its bound a list of fields may be to be refused with a reason. Each byte of
// it is looked at.
constexpr size_t kMostIgnoredFields = 256 << 10;
// Bodies without a token may have the memory of calls without one divided by this; the rest is for
// those of the health service.
constexpr int64_t kOpenBodiesPart = 2;
// An address may take so much of it in any case.
constexpr int64_t kFewOpenBytes = 16 * Stream::kStreamBytes;
// The rest of a request that was answered has to come within this.
constexpr std::chrono::seconds kRestTimeout(1);
// To parse a message of this size would hold up the other connections of the loop: one of 64 KiB
// takes more than 1 ms on a slow core.
constexpr size_t kLongMessage = 32 << 10;
// Heads and answers up to this size are part of what a stream takes.
constexpr int64_t kUnchargedBytes = 1 << 10;
// To free so many bytes would hold them up too: it takes a millisecond for each 10 MiB.
constexpr size_t kCostlyBytes = 1 << 20;
// Smaller messages are sent as they are, which is cheaper for both sides.
constexpr size_t kLeastCompressedBytes = 1 << 10;

absl::Status DeadlinePassed() { return absl::DeadlineExceededError("Deadline Exceeded"); }

// A refusal of what may fit a little later.
absl::Status TryAgain(absl::string_view message) {
  return RetryAfter(absl::ResourceExhaustedError(message), kMemoryRetryAfter);
}

absl::Status NoMemoryForAnswer() {
  return TryAgain("there is no memory for the answer until other answers are taken; try again");
}

ssize_t GiveAnswer(nghttp2_session* /*session*/, int32_t /*id*/, uint8_t* to, size_t size,
                   uint32_t* flags, nghttp2_data_source* source, void* /*connection*/) {
  return static_cast<Stream*>(source->ptr)->ReadAnswer(to, size, flags);
}

nghttp2_data_provider ProviderOf(Stream* stream) {
  nghttp2_data_provider provider;
  provider.source.ptr = stream;
  provider.read_callback = GiveAnswer;
  return provider;
}

}  // namespace

template <typename Bytes>
void Stream::Free(Bytes bytes) {
  if (bytes.size() <= kCostlyBytes) return;
  try {
    context_.side.Post(SideThreads::KeyOf(caller_.get()),
                       [freed = std::make_shared<Bytes>(std::move(bytes))] {});
  } catch (const std::exception&) {  // nghttp2 asks for bytes, and is C
  }
}

Stream::Stream(Connection* connection, int32_t id)
    : connection_(connection),
      context_(connection->context()),
      loop_(connection->loop()),
      peer_(connection->peer()),
      memory_(connection->memory()),
      id_(id),
      reader_(context_.options.max_message_bytes, memory_.get()) {
  context_.streams.fetch_add(1, std::memory_order_relaxed);
}

Stream::~Stream() {
  loop_.timers().Clear(this);
  DropHeld();
  ClearMessage();
  if (reader_.in_message()) Free(reader_.TakeMessage());
  memory_->Give(body_bytes_);
  memory_->Give(kStreamBytes + head_bytes_);
  GiveOpen(0);
  context_.streams.fetch_sub(1, std::memory_order_relaxed);
}

absl::Duration Stream::time_left() const {
  if (deadline_ == SteadyTime::max()) return absl::InfiniteDuration();
  return absl::FromChrono(deadline_ - ClockNow());
}

// The beginning.

bool Stream::OnHeader(absl::string_view name, absl::string_view value) {
  const auto most = static_cast<size_t>(context_.options.limits.max_metadata_bytes);
  field_bytes_ += name.size() + value.size() + kBesideField;
  // Trailers say nothing to a server.
  if (state_.request == Request::kHead) head_.Add(name, value, most);
  return field_bytes_ <= most + kMostIgnoredFields;
}

void Stream::OnHead() {
  state_.Reach(Request::kFirst);
  if (connection_->is_revoked()) return connection_->Reset(id_, NGHTTP2_REFUSED_STREAM);
  if (head_.is_malformed()) return connection_->Reset(id_, NGHTTP2_PROTOCOL_ERROR);
  if (head_.is_grpc()) {
    head_.JoinRepeated();
    // Calls take turns in sending their answers, as clients of gRPC expect, who give no priorities.
    const nghttp2_extpri in_turn = {NGHTTP2_EXTPRI_DEFAULT_URGENCY, /*inc=*/1};
    nghttp2_session_change_extpri_stream_priority(connection_->session(), id_, &in_turn,
                                                  /*ignore_client_signal=*/0);
  }
  // A handler makes a copy of its own.
  const auto bytes = 2 * static_cast<int64_t>(head_.memory_bytes());
  if (bytes > kUnchargedBytes) {
    if (!memory_->Take(bytes)) return connection_->Reset(id_, NGHTTP2_REFUSED_STREAM);
    head_bytes_ = bytes;
  }
  Begin();
  // Until its stream ends, also while the answer is not taken, what a stranger sends has the memory
  // of strangers.
  const bool is_stranger = context_.options.asks_for_tokens && !is_accepted_;
  if (is_stranger && open_bytes_ == 0 && !TakeOpen(kStreamBytes + head_bytes_, 1)) {
    Cancel();
    connection_->Reset(id_, NGHTTP2_REFUSED_STREAM);
  }
}

void Stream::Begin() {
  const absl::Duration most = context_.options.limits.max_call;
  const SteadyTime now = ClockNow();
  if (most != absl::InfiniteDuration()) last_at_ = now + absl::ToChronoNanoseconds(most);
  if (!head_.is_grpc() && context_.options.start_http != nullptr) {
    if (!HeadIsWhole()) return SendHttpStatus("431");
    SetTimer();
    state_.reading = Reading::kYes;
    WaitForBytes();
    handler_ = http_ = context_.options.start_http(this);
    state_.Reach(CallState::kRunning);
    // Not to one that the handler has answered at its head already.
    const bool is_answered = (asked_.load(std::memory_order_relaxed) & kFinish) != 0;
    if (!is_answered && max_body_ == 0) {
      GiveBody(absl::OkStatus());
    } else if (!is_answered && absl::EqualsIgnoreCase(head_.Find("expect"), "100-continue")) {
      HeaderList head;
      head.AddConstant(":status", "100");
      nghttp2_submit_headers(connection_->session(), NGHTTP2_FLAG_NONE, id_, nullptr, head.data(),
                             head.size(), nullptr);
      connection_->WriteSoon();
    }
    return;
  }
  if (RefuseHead()) return;
  if (head_.timeout() <= absl::ZeroDuration()) return Fail(DeadlinePassed());
  if (head_.timeout() != absl::InfiniteDuration()) {
    deadline_ = now + absl::ToChronoNanoseconds(std::min(head_.timeout(), absl::Hours(24 * 365)));
    came_late_ = connection_->CameLate(head_.timeout());
  }
  SetTimer();
  reader_.set_encoding(head_.encoding());
  row_ = context_.options.methods->Find(head_.path());
  if (row_ != nullptr && !row_->needs_token && caller_ == nullptr) {
    if (!TakeOpen(kStreamBytes + head_bytes_, 1)) {
      return Fail(TryAgain("too many such calls are open; try again"));
    }
    reader_.set_max_bytes(
        std::min(calls::Method::kMostOpenMessage, context_.options.max_message_bytes));
  }
  absl::Status refusal;
  if (row_ != nullptr && row_->id.has_value()) {
    refusal = lease_.Enter(caller_, *row_->id);
  }
  one_request_ = refusal.ok() && row_ != nullptr && row_->kind != calls::MethodKind::kBidirectional;
  WaitForBytes();
  if (one_request_) {
    state_.reading = Reading::kYes;
    return;
  }
  if (!refusal.ok()) {
    handler_ = context_.options.refused(this, *row_->id, refusal);
  } else {
    handler_ = row_ == nullptr ? context_.options.unknown(this) : row_->start(this);
    SetBusy(row_ != nullptr && row_->needs_token);
  }
  state_.Reach(CallState::kRunning);
}

bool Stream::TakeOpen(int64_t bytes, int64_t part) {
  open_memory_ = connection_->open_memory();
  if (open_memory_->used() + bytes > open_memory_->limit() / part) return false;
  if (!open_memory_->Take(bytes)) return false;
  open_bytes_ += bytes;
  MemoryCount& all = context_.open_memory;
  if (all.used() + bytes <= all.limit() / part && all.Take(bytes)) {
    all_open_bytes_ += bytes;
    return true;
  }
  // Whatever others hold, an address may ask for the server's health.
  return open_memory_->used() <= kFewOpenBytes;
}

void Stream::GiveOpen(int64_t left) {
  const auto give = [left](MemoryCount* count, int64_t* bytes) {
    if (*bytes > left) count->Give(std::exchange(*bytes, left) - left);
  };
  if (open_memory_ != nullptr) give(open_memory_.get(), &open_bytes_);
  give(&context_.open_memory, &all_open_bytes_);
}

void Stream::SetBusy(bool busy) {
  if (std::exchange(is_busy_, busy) != busy) connection_->OnBusy(busy ? 1 : -1);
}

bool Stream::HeadIsWhole() const {
  return head_.list_bytes() <= static_cast<size_t>(context_.options.limits.max_metadata_bytes);
}

bool Stream::RefuseHead() {
  const bool is_whole = HeadIsWhole();
  if (is_whole && head_.verb() != "POST") {
    SendHttpStatus("405");
    return true;
  }
  if (is_whole && !head_.is_grpc()) {
    SendHttpStatus("415");
    return true;
  }
  absl::Status status = CheckHead();
  if (status.ok()) return false;
  calls::Metadata trailers;
  if (absl::IsUnimplemented(status)) {  // says how the client may send its messages
    trailers.emplace_back("grpc-accept-encoding", context_.options.allow_compression
                                                      ? "identity,deflate,gzip"
                                                      : "identity");
  }
  Fail(std::move(status), std::move(trailers));
  return true;
}

absl::Status Stream::CheckHead() {
  const DoorOptions& options = context_.options;
  transport::CallVerdict verdict = CheckCaller();
  is_accepted_ = verdict.refusal == nullptr;
  if (!HeadIsWhole()) {
    return absl::ResourceExhaustedError(absl::StrCat("received metadata size exceeds limit (",
                                                     head_.list_bytes(), " vs. ",
                                                     options.limits.max_metadata_bytes, ")"));
  }
  if (head_.has_bad_binary()) {
    return absl::InternalError("a header whose name ends with -bin is not base64");
  }
  if (!is_accepted_) return absl::UnauthenticatedError(verdict.refusal);
  caller_ = std::move(verdict.caller);
  connection_->OnCaller(caller_.get());
  const bool unknown = head_.encoding() == Encoding::kUnknown;
  if (unknown || (head_.encoding() != Encoding::kIdentity && !options.allow_compression)) {
    return absl::UnimplementedError(
        absl::StrCat("Compression algorithm '", head_.encoding_name(),
                     unknown ? "' is not supported." : "' is disabled."));
  }
  return absl::OkStatus();
}

transport::CallVerdict Stream::CheckCaller() const {
  if (context_.options.check_call == nullptr) return {};
  transport::CallToCheck call;
  call.path = head_.path();
  call.authorizations = head_.Count("authorization");
  call.headers.authorization = head_.Find("authorization");
  call.headers.request_id = head_.Find("x-request-id");
  call.headers.traceparent = head_.Find("traceparent");
  call.headers.user_agent = head_.Find("user-agent");
  call.x_forwarded_for = head_.Find("x-forwarded-for");
  call.peer = peer_->name;
  call.certificate = [this] { return peer_->certificate; };
  return context_.options.check_call(call);
}

void Stream::Recheck(bool trusted) {
  // One answer that is on its way is that of a call that was accepted.
  const bool may_be_stream =
      http_ != nullptr || (row_ != nullptr && row_->kind != calls::MethodKind::kUnary);
  if (!may_be_stream || !can_answer()) return;
  const char* const refusal =
      trusted ? CheckCaller().refusal : "the client's certificate is no longer accepted";
  // An answer of HTTP that has not begun may become either.
  is_refused_ = refusal != nullptr;
  if (is_refused_ && (http_ == nullptr || state_.answer == Answer::kBegun)) {
    Fail(absl::UnauthenticatedError(refusal));
  }
}

// The client's bytes.

void Stream::WaitForBytes() {
  progress_ = 0;
  waits_since_ = ClockNow();
  StreamHook<WaitingStreams>::unlink();
  connection_->AwaitBytes(this);
}

void Stream::OnData(absl::string_view bytes) {
  if (state_.answer == Answer::kFramed && http_ != nullptr) {
    progress_ += static_cast<uint32_t>(bytes.size());
    if (progress_ > kProgressBytes) connection_->Reset(id_, NGHTTP2_NO_ERROR);
  }
  const auto takes_more = [this] {
    return can_answer() && !(one_request_ && state_.request == Request::kMore);
  };
  if (!takes_more()) return;  // its window stays closed
  if (http_ != nullptr) return TakeBody(bytes);
  if (state_.is_reading() && held_begin_ == held_.size()) bytes.remove_prefix(TakeBytes(bytes));
  if (bytes.empty() || !takes_more()) return;
  if (!state_.is_reading()) StreamHook<WaitingStreams>::unlink();  // the call is what is waited for
  Hold(bytes);
}

size_t Stream::TakeBytes(absl::string_view bytes) {
  size_t all = 0;
  if (!bytes.empty()) idle_at_ = SteadyTime::max();  // the timer comes for nothing
  while (state_.is_reading() && all < bytes.size()) {
    size_t taken = 0;
    absl::Status status = reader_.Take(bytes.substr(all), &taken);
    all += taken;
    progress_ += static_cast<uint32_t>(taken);
    connection_->OpenWindow(id_, taken);
    if (!status.ok()) {
      Fail(std::move(status));
      return bytes.size();
    }
    if (reader_.has_message()) {
      Deliver(reader_.TakeMessage());
    } else if (progress_ >= kProgressBytes || !StreamHook<WaitingStreams>::is_linked()) {
      WaitForBytes();
    }
  }
  if (reader_.missing_bytes() > 0) connection_->WidenWindow(id_, reader_.missing_bytes());
  return all;
}

void Stream::Hold(absl::string_view bytes) {
  TakenMemory taken(memory_.get(), static_cast<int64_t>(bytes.size()));
  if (!taken) return Fail(NoMemoryToReceive());
  held_.append(bytes.data(), bytes.size());
  taken.Keep();
}

void Stream::DropHeld() {
  memory_->Give(static_cast<int64_t>(held_.size() + body_.size()));
  Free(std::exchange(body_, absl::Cord()));
  Free(std::exchange(held_, std::string()));
  held_begin_ = 0;
}

void Stream::TakeHeld() {
  held_begin_ += TakeBytes(absl::string_view(held_).substr(held_begin_));
  if (held_begin_ >= held_.size()) return DropHeld();
  if (held_begin_ <= held_.size() / 2) return;
  // A client that stays ahead of its call never lets it become empty.
  std::string(held_, held_begin_).swap(held_);
  memory_->Give(static_cast<int64_t>(std::exchange(held_begin_, 0)));
}

void Stream::OnEnd() {
  state_.Reach(Request::kEnded);
  if (http_ != nullptr) return GiveBody(absl::OkStatus());
  if (!state_.is_reading()) StreamHook<WaitingStreams>::unlink();
  if (state_.is_reading() && held_.empty()) EndInput();
}

void Stream::EndInput() {
  idle_at_ = SteadyTime::max();
  SetTimer();
  if (reader_.in_message()) {
    return Fail(absl::InternalError("Incomplete message: the call's data ended within it"));
  }
  Deliver(std::nullopt);
}

void Stream::AwaitNext() {
  const absl::Duration most = context_.options.limits.max_stream_idle;
  if (most == absl::InfiniteDuration()) return;
  idle_at_ = ClockNow() + absl::ToChronoNanoseconds(most);
  SetTimer();
}

bool Stream::RefuseQuickly(const absl::Cord& message) {
  if (handler_ != nullptr || row_->refuse == nullptr) return false;
  std::optional<calls::CallEnd> end = row_->refuse(*this, message);
  if (!end.has_value()) return false;
  state_.Reach(Request::kMore);
  connection_->OnMessage();
  connection_->OnRefused();
  Cancel();
  lease_.Leave();
  SendEnd(*std::move(end));
  return true;
}

void Stream::Deliver(std::optional<absl::Cord> message) {
  const bool is_long = message.has_value() && message->size() >= kLongMessage;
  if (message.has_value() && !is_long && RefuseQuickly(*message)) return;
  // The reader has given its memory back, so another loop may have taken it. The call still waits
  // for the message then.
  if (is_long && !memory_->Take(static_cast<int64_t>(message->size()))) {
    return Fail(NoMemoryToReceive());
  }
  state_.reading = Reading::kNo;
  state_.Reach(Request::kMore);
  StreamHook<WaitingStreams>::unlink();
  if (message.has_value()) connection_->OnMessage();
  if (handler_ == nullptr) {
    handler_ = row_->start(this);
    state_.Reach(CallState::kRunning);
    // A stranger may leave a call open that has several answers.
    SetBusy(row_->needs_token || row_->kind == calls::MethodKind::kUnary);
  }
  if (!is_long) return handler_->OnMessage(std::move(message));
  away_bytes_ = static_cast<int64_t>(message->size());
  std::shared_ptr<absl::Cord> bytes;
  try {
    bytes = std::make_shared<absl::Cord>(*std::move(message));
    context_.side.Post(SideThreads::KeyOf(caller_.get()), [this, bytes] {
      const Interruption interruption([this] { return is_cancelled(); });
      handler_->OnMessage(std::move(*bytes));
      Ask(kBack);
    });
  } catch (const std::bad_alloc&) {  // what holds up others is better than no answer
    memory_->Give(std::exchange(away_bytes_, 0));
    handler_->OnMessage(bytes == nullptr ? *std::move(message) : std::move(*bytes));
  }
}

void Stream::TakeBody(absl::string_view bytes) {
  const size_t most = std::min<size_t>(context_.options.max_message_bytes, max_body_);
  if (body_.size() + bytes.size() > most) {
    return GiveBody(absl::ResourceExhaustedError(absl::StrCat(
        "the body has more than ", most, " bytes, which is the most that the server takes")));
  }
  // A route may ask for a token in the body.
  const auto size = static_cast<int64_t>(bytes.size());
  const bool is_open = context_.options.asks_for_tokens && !is_accepted_;
  if (is_open) {
    const int64_t open_part = connection_->open_memory()->limit() / kOpenBodiesPart;
    if (static_cast<int64_t>(body_.size()) + size > open_part) {
      return GiveBody(absl::ResourceExhaustedError(
          absl::StrCat("the body may have at most ", open_part,
                       " bytes without the header Authorization; send the header")));
    }
  }
  TakenMemory taken(memory_.get(), size);
  if (!taken || (is_open && !TakeOpen(size, kOpenBodiesPart))) {
    return GiveBody(absl::UnavailableError(
        "the requests that the server is reading hold all the memory that they may; try again"));
  }
  body_.Append(bytes);
  taken.Keep();
  progress_ += static_cast<uint32_t>(bytes.size());
  connection_->OpenWindow(id_, bytes.size());
  connection_->WidenWindow(id_, body_.size());
  if (progress_ >= kProgressBytes) WaitForBytes();
}

void Stream::GiveBody(absl::Status status) {
  if (!can_answer() || !state_.StopReading()) return;
  state_.Reach(Request::kMore);
  StreamHook<WaitingStreams>::unlink();
  GiveOpen(kStreamBytes + head_bytes_);
  if (!status.ok()) {
    DropHeld();
    return http_->OnBody(std::move(status));
  }
  connection_->OnMessage();
  SetBusy(true);
  body_bytes_ = static_cast<int64_t>(body_.size());  // counted until the stream ends
  http_->OnBody(std::exchange(body_, absl::Cord()));
}

void Stream::OnTooSlow() {
  StopWaiting(absl::DeadlineExceededError(http_ != nullptr
                                              ? "the body did not come in time"
                                              : "the call's message did not arrive in time"));
}

void Stream::RefuseRest() {
  if (!StreamHook<WaitingStreams>::is_linked()) return;
  StopWaiting(absl::UnavailableError("the server is shutting down"));
}

void Stream::StopWaiting(absl::Status reason) {
  StreamHook<WaitingStreams>::unlink();
  return http_ != nullptr ? GiveBody(std::move(reason)) : Fail(std::move(reason));
}

// What ends a call early.

void Stream::OnTimer(SteadyTime now) {
  if (state_.answer == Answer::kFramed) return connection_->Reset(id_, NGHTTP2_NO_ERROR);
  if (!can_answer()) return now < last_at_ ? EndsAtLast() : connection_->Reset(id_, NGHTTP2_CANCEL);
  if (now >= last_at_) {
    last_at_ = now + kRestTimeout;  // for the end
    return Fail(absl::DeadlineExceededError(
        absl::StrCat("the call took longer than --max_call_s allows, which is ",
                     absl::FormatDuration(context_.options.limits.max_call))));
  }
  if (now >= deadline_) return Fail(DeadlinePassed());
  if (now < idle_at_) return SetTimer();
  state_.Reach(Request::kEnded);
  EndInput();
}

void Stream::Fail(absl::Status status, calls::Metadata trailers) {
  if (!can_answer()) return;
  // A request that is no call has no trailers to say it in.
  const bool half_sent =
      state_.answer == Answer::kBegun &&
      (http_ != nullptr || ((prefix_left_ + message_left_ > 0) && prefix_left_ < prefix_.size()));
  Cancel();
  if (half_sent) return connection_->Reset(id_, NGHTTP2_CANCEL);
  // The handler may be about to set a head of its own.
  if (http_ != nullptr && absl::IsDeadlineExceeded(status)) {
    return SendHttpStatus("504", verb() == "HEAD" ? "" : status.message());
  }
  if (http_ != nullptr) SetHead(absl::IsUnauthenticated(status) ? 401 : 503, {});
  // A handler counts its call, and the check of callers what it refuses.
  calls::CallEnd end;
  if (handler_ != nullptr || !is_accepted_ || context_.options.on_failed == nullptr) {
    end.status = std::move(status);
  } else {
    end = context_.options.on_failed(*this, status);
  }
  for (auto& trailer : trailers) end.trailers.push_back(std::move(trailer));
  SendEnd(std::move(end));
}

void Stream::Cancel() {
  const bool was_cancelled = cancelled_.exchange(true, std::memory_order_acq_rel);
  loop_.timers().Clear(this);
  StreamHook<WaitingStreams>::unlink();
  DropHeld();
  const bool was_reading = state_.StopReading();
  const bool was_writing = std::exchange(state_.writing, Writing::kNothing) != Writing::kNothing;
  prefix_left_ = message_left_ = 0;
  ClearMessage();
  if (!state_.is_running()) return;
  if (!was_cancelled) handler_->OnCancel();
  if (was_reading && http_ != nullptr) {
    http_->OnBody(absl::CancelledError("the client is gone"));
  } else if (was_reading) {
    handler_->OnMessage(std::nullopt);
  }
  if (was_writing) handler_->OnWritten(false);
}

// What the call asks for.

void Stream::Ask(uint32_t asked) {
  if (asked_.fetch_or(asked, std::memory_order_acq_rel) == 0) loop_.Wake(this);
}

void Stream::AddHeader(std::string name, std::string value) {
  if (name == calls::kEncodingRequest) {
    asked_for_gzip_ = value == "gzip";
  } else {
    given_headers_.emplace_back(std::move(name), std::move(value));
  }
}

bool Stream::compresses() const {
  return context_.options.allow_compression && head_.is_grpc() && head_.accepts_gzip() &&
         (asked_for_gzip_ || head_.encoding() == Encoding::kGzip);
}

void Stream::GiveMessage(absl::Cord message) {
  given_is_compressed_ = false;
  const auto bytes = static_cast<int64_t>(message.size());
  // Without the memory for both forms, the message goes as it is.
  if (message.size() >= kLeastCompressedBytes && compresses() && !is_cancelled() &&
      memory_->Take(bytes)) {
    given_is_compressed_ = Gzip(&message);
    memory_->Give(bytes);
  }
  given_message_ = std::move(message);
}

void Stream::Write(absl::Cord message) {
  GiveMessage(std::move(message));
  Ask(kWrite);
}

void Stream::Finish(calls::CallEnd end) {
  given_end_ = std::move(end);
  Ask(kFinish);
}

void Stream::WriteAndFinish(absl::Cord message, calls::CallEnd end) {
  GiveMessage(std::move(message));
  given_end_ = std::move(end);
  Ask(kWrite | kFinish);
}

void Stream::OnChecked(const void* caller, size_t max_body) {
  is_accepted_ = caller != nullptr;
  max_body_ = max_body;
}

void Stream::SetHead(int status, calls::Metadata headers) {
  http_status_ = status;
  http_headers_ = std::move(headers);
  for (auto& [name, value] : http_headers_) absl::AsciiStrToLower(&name);
}

void Stream::ReadNext() {
  if (away_bytes_ > 0) {  // a call gets one message at a time
    state_.reading = Reading::kLater;
    return;
  }
  state_.reading = can_answer() ? Reading::kYes : Reading::kNo;
  if (!can_answer()) return handler_->OnMessage(std::nullopt);
  TakeHeld();
  if (state_.is_reading() && state_.request == Request::kEnded) EndInput();
  if (!state_.is_reading()) return;
  if (state_.request == Request::kMore) {
    AwaitNext();
  } else if (!StreamHook<WaitingStreams>::is_linked()) {
    WaitForBytes();
  }
}

void Stream::RunOnLoop() {
  uint32_t asked = asked_.exchange(0, std::memory_order_acq_rel);
  if ((asked & kBack) != 0) {
    memory_->Give(std::exchange(away_bytes_, 0));
    if (state_.call == CallState::kLeaving) return EndCall();
    if (state_.reading == Reading::kLater) asked |= kRead;
  }
  const bool finishes = (asked & kFinish) != 0;
  if (finishes) {
    state_.Reach(CallState::kFinished);
    SetBusy(false);
    lease_.Leave();
    state_.reading = Reading::kNo;
    StreamHook<WaitingStreams>::unlink();
  } else if ((asked & kRead) != 0) {
    ReadNext();
  }
  if ((asked & (kWrite | kFinish)) != 0 && state_.answer == Answer::kNone) {
    headers_.swap(given_headers_);
  }
  if ((asked & kWrite) != 0) {
    absl::Cord message = std::exchange(given_message_, absl::Cord());
    const bool is_refused = is_refused_ && !finishes;  // the first part of a stream
    const bool fits = can_answer() && !is_refused && Charge(static_cast<int64_t>(message.size()));
    if (fits) {
      SetMessage(std::move(message), given_is_compressed_);
      SetUnsent();
      if (!finishes) {
        state_.writing = Writing::kMessage;
        Send();
      }
    } else {
      Free(std::move(message));
    }
    if (!fits && !finishes) {
      headers_.clear();
      handler_->OnWritten(false);
      Fail(is_refused ? absl::UnauthenticatedError("the caller is no longer accepted")
                      : NoMemoryForAnswer());
    } else if (!fits && can_answer()) {
      headers_.clear();
      given_end_ = {NoMemoryForAnswer(), {}, std::move(given_end_.trailers)};
      if (http_ != nullptr) SetHead(503, {});
    }
  }
  if (!finishes) return;
  calls::CallEnd end = std::exchange(given_end_, calls::CallEnd());
  if (!can_answer()) return EndCall();
  DropHeld();
  SendEnd(std::move(end));
}

// The answer.

bool Stream::Charge(int64_t bytes) {
  if (bytes <= kUnchargedBytes) return true;
  if (!connection_->TakeForAnswer(bytes)) return false;
  charged_ = bytes;
  return true;
}

void Stream::ClearMessage() {
  Free(std::exchange(message_, absl::Cord()));
  if (charged_ > 0) connection_->GiveForAnswer(std::exchange(charged_, 0));
}

void Stream::SetMessage(absl::Cord message, bool compressed) {
  const size_t size = message.size();
  prefix_ = {compressed ? '\1' : '\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
             static_cast<char>(size >> 8), static_cast<char>(size)};
  prefix_left_ = http_ == nullptr ? prefix_.size() : 0;
  message_ = std::move(message);
  message_at_ = message_.char_begin();
  message_left_ = size;
}

void Stream::SendEnd(calls::CallEnd end) {
  end_ = std::move(end);
  EndsAtLast();
  SetUnsent();
  Send(Answer::kComplete);
}

void Stream::Send(Answer reaches) {
  nghttp2_session* const session = connection_->session();
  const bool is_begun = state_.answer >= Answer::kBegun;
  state_.Reach(reaches);
  if (is_begun) {
    nghttp2_session_resume_data(session, id_);
    return connection_->WriteSoon();
  }
  HeaderList head;
  if (http_ == nullptr) {
    head.AddGrpcHead();
  } else {
    head.AddHttpHead(http_status_, http_headers_);
  }
  const bool has_message = prefix_left_ + message_left_ > 0;
  head.AddMetadata(headers_);
  if (!can_answer()) head.AddMetadata(end_.headers);
  if (has_message) {
    if (compresses()) head.AddConstant("grpc-encoding", "gzip");
    const nghttp2_data_provider provider = ProviderOf(this);
    nghttp2_submit_response(session, id_, head.data(), head.size(), &provider);
  } else if (headers_.empty() && end_.headers.empty()) {
    if (http_ == nullptr) head.AddEnd(end_);
    nghttp2_submit_response(session, id_, head.data(), head.size(), nullptr);
  } else {
    nghttp2_submit_headers(session, NGHTTP2_FLAG_NONE, id_, nullptr, head.data(), head.size(),
                           nullptr);
    HeaderList trailers;
    trailers.AddEnd(end_);
    nghttp2_submit_trailer(session, id_, trailers.data(), trailers.size());
  }
  connection_->WriteSoon();
}

ssize_t Stream::ReadAnswer(uint8_t* to, size_t size, uint32_t* flags) {
  size_t used = std::min(size, prefix_left_);
  std::memcpy(to, prefix_.data() + prefix_.size() - prefix_left_, used);
  prefix_left_ -= used;
  while (used < size && message_left_ > 0) {
    const absl::string_view chunk = absl::Cord::ChunkRemaining(message_at_);
    const size_t part = std::min({chunk.size(), size - used, message_left_});
    std::memcpy(to + used, chunk.data(), part);
    absl::Cord::Advance(&message_at_, part);
    used += part;
    message_left_ -= part;
  }
  if (prefix_left_ > 0 || message_left_ > 0) return static_cast<ssize_t>(used);
  ClearMessage();
  if (!can_answer()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (http_ != nullptr) return static_cast<ssize_t>(used);
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    HeaderList trailers;
    trailers.AddEnd(end_);
    nghttp2_submit_trailer(connection_->session(), id_, trailers.data(), trailers.size());
  } else if (used > 0) {
    state_.writing = Writing::kFramed;
    connection_->FlushLater(this);
  } else {
    return NGHTTP2_ERR_DEFERRED;
  }
  return static_cast<ssize_t>(used);
}

void Stream::SendHttpStatus(absl::string_view status, absl::string_view text) {
  state_.Reach(Answer::kComplete);
  HeaderList head;
  head.AddConstant(":status", status);
  const nghttp2_data_provider provider = ProviderOf(this);
  if (!text.empty()) {
    head.AddConstant("content-type", "text/plain");
    SetMessage(absl::Cord(text), /*compressed=*/false);
  }
  EndsAtLast();
  SetUnsent();
  nghttp2_submit_response(connection_->session(), id_, head.data(), head.size(),
                          text.empty() ? nullptr : &provider);
  connection_->WriteSoon();
}

void Stream::SetUnsent() {
  if (StreamHook<UnsentStreams>::is_linked()) return;
  unsent_since_ = rate_.BeginPart(ClockNow(), message_left_);
  connection_->AwaitTaken(this);
  context_.unsent.fetch_add(1, std::memory_order_relaxed);
}

void Stream::SetSent() {
  if (!StreamHook<UnsentStreams>::is_linked()) return;
  StreamHook<UnsentStreams>::unlink();
  if (can_answer()) rate_.EndPart(ClockNow());
  context_.unsent.fetch_sub(1, std::memory_order_relaxed);
}

// The end.

bool Stream::OnEndFramed() {
  state_.Reach(Answer::kFramed);
  // Calls of gRPC are reset. Other clients may not expect a reset: curl takes it for a failure and
  // does not show the answer. A short rest costs little, and has the memory of strangers.
  const bool may_go_on = http_ != nullptr && state_.request < Request::kEnded;
  if (!may_go_on || !TakeOpen(kStreamBytes, 1)) return false;
  connection_->FlushLater(this);  // it stays open after its answer was taken
  progress_ = 0;
  loop_.timers().Set(this, ClockNow() + kRestTimeout);
  return true;
}

void Stream::OnClosed() {
  StreamHook<AllStreams>::unlink();
  SetBusy(false);
  if (state_.answer < Answer::kFramed) {
    Cancel();
    SetSent();
  }
  loop_.timers().Clear(this);
  state_.Reach(Answer::kClosed);
  connection_->FlushLater(this);
}

void Stream::OnFlushed(bool ok) {
  if (state_.writing == Writing::kFramed) {
    state_.writing = Writing::kNothing;
    if (can_answer()) SetSent();
    if (state_.is_running()) handler_->OnWritten(ok);
  }
  if (state_.answer >= Answer::kFramed) SetSent();
  if (state_.answer < Answer::kClosed) return;
  state_.Reach(Answer::kGone);
  if (state_.has_finished()) return EndCall();
  DeleteIfOver();
}

void Stream::EndCall() {
  state_.Reach(away_bytes_ > 0 ? CallState::kLeaving : CallState::kOver);
  if (state_.call == CallState::kLeaving) return;
  handler_->OnDone();
  DeleteIfOver();
}

void Stream::DeleteIfOver() {
  if (state_.is_over()) delete this;
}

}  // namespace sru::server::door
