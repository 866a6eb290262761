#include "server/door/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <chrono>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/log.h"

namespace sru::server::door {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a peer may take for its TLS handshake, and for its HTTP/2 preface with its SETTINGS and
// the ACK of ours.
constexpr seconds kHandshakeTimeout(10);
constexpr seconds kPrefaceTimeout(10);
// A peer that has said nothing for this long is asked, and has so long to answer.
constexpr seconds kKeepaliveTime(60);
constexpr seconds kKeepaliveTimeout(20);
// Until the final GOAWAY follows the first one, if the peer acknowledges no ping.
constexpr seconds kGoAwayTimeout(1);
// How long a connection that ends waits for its peer to close it, so that what was sent last
// arrives.
constexpr seconds kLingerTimeout(1);
// A client that has given up its first call before it left opens a stream within this, or its
// connection ends.
constexpr milliseconds kOpenTimeout(500);

constexpr seconds kTimesLeftWindow(1);
constexpr milliseconds kRefusalsWindow(100);
constexpr int kMaxPingStrikes = 2;
// A header list far beyond its limit counts as so many resets: a frame of some kilobytes can become
// megabytes of fields.
constexpr double kEndlessHeadersResets = 100;
constexpr size_t kSmallData = 64;
// Of all streams of a connection together; what the streams hold is bounded by themselves.
constexpr int32_t kConnectionWindow = 4 << 20;
constexpr int32_t kStreamWindow = 65535;  // as HTTP/2 has it
constexpr size_t kMostStreamWindow = 1 << 20;
// This part of what an address may take is for the answers of one connection that its peer does not
// take.
constexpr int64_t kAnswersPart = 4;
// Bytes that are framed and written in one turn: on the loopback device, where writing is receiving
// too, they take a third of a millisecond.
constexpr size_t kGatheredBytes = 64 << 10;
// How many pieces of less than a portion are read in one turn: TLS gives records, and may hold more
// than the socket shows.
constexpr int kReadsPerTurn = 4;
// Read at a time where messages may be packed: they become a thousand times as much, 2 MB, which
// takes a loop milliseconds.
constexpr size_t kPackedReadBytes = 2 << 10;
// A peer that does not take its answers is read up to this many bytes.
constexpr size_t kReadWhileBlocked = 64 << 10;

// How much of an unread answer of HTTP/1.1 the kernel keeps. By default it would be megabytes.
constexpr int kHttp1SendBuffer = 64 << 10;

constexpr char kKeepalivePing[] = "keepaliv";
constexpr char kGoAwayPing[] = "goodbye.";
constexpr size_t kPingBytes = 8;
constexpr absl::string_view kHttp2Name = "h2";
// The first bytes of HTTP/2's preface, which no request of HTTP/1.1 begins with.
constexpr absl::string_view kPrefaceVerb = "PRI ";
// By which gRPC's clients know that they are to ping less often.
constexpr absl::string_view kTooManyPings = "too_many_pings";

// Logs why the peer's connection is closed.
void SayClosed(DoorContext* context, const PeerInfo& peer, absl::string_view reason) {
  int64_t dropped = 0;
  const absl::string_view address(reinterpret_cast<const char*>(peer.key.data()), peer.key.size());
  if (!context->closed_lines.Take(SteadyNow(), address, &dropped)) return;
  Log(LogLevel::kWarning, "connection closed",
      {{"reason", reason}, {"peer", peer.name}, {"lines_dropped", dropped}});
}

void SayFlood(DoorContext* context, const PeerInfo& peer, Flood flood) {
  context->options.metrics->OnFlood(flood);
  SayClosed(context, peer, kFloodNames[static_cast<size_t>(flood)]);
}

SteadyTime After(SteadyTime time, absl::Duration duration) {
  if (time == SteadyTime::max() || duration >= absl::Hours(24 * 365)) return SteadyTime::max();
  return time + absl::ToChronoNanoseconds(duration);
}

}  // namespace

// nghttp2 is C: no exception may pass it. Only a lack of memory throws; it ends the connection.
struct Reactions {
  template <typename React>
  static int Guard(const React& react) {
    try {
      return react();
    } catch (const std::exception&) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
  static Connection& Of(void* user) { return *static_cast<Connection*>(user); }

  static int BeginHeaders(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    return Guard([&] { return Of(user).OnBeginHeaders(frame->hd.stream_id); });
  }
  static int Header(nghttp2_session* /*session*/, const nghttp2_frame* frame, const uint8_t* name,
                    size_t name_size, const uint8_t* value, size_t value_size, uint8_t /*flags*/,
                    void* user) {
    return Guard([&] {
      if (Stream* const stream = Of(user).Find(frame->hd.stream_id)) {
        const bool goes_on = stream->OnHeader({reinterpret_cast<const char*>(name), name_size},
                                              {reinterpret_cast<const char*>(value), value_size});
        if (!goes_on) return Of(user).OnEndlessHeaders();
      }
      return 0;
    });
  }
  static int Frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    return Guard([&] { return Of(user).OnFrame(*frame); });
  }
  static int Data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t id, const uint8_t* data,
                  size_t size, void* user) {
    return Guard([&] { return Of(user).OnData(id, {reinterpret_cast<const char*>(data), size}); });
  }
  static int FrameSent(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    return Guard([&] { return Of(user).OnFrameSent(*frame); });
  }
  static int StreamClosed(nghttp2_session* /*session*/, int32_t id, uint32_t /*code*/, void* user) {
    return Guard([&] {
      Of(user).OnStreamClosed(id);
      return 0;
    });
  }

  static const nghttp2_session_callbacks* All() {
    static const nghttp2_session_callbacks* const all = [] {
      nghttp2_session_callbacks* callbacks = nullptr;
      nghttp2_session_callbacks_new(&callbacks);
      nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, BeginHeaders);
      nghttp2_session_callbacks_set_on_header_callback(callbacks, Header);
      nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Frame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Data);
      nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, FrameSent);
      nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, StreamClosed);
      return callbacks;
    }();
    return all;
  }
  static const nghttp2_option* Option() {
    static const nghttp2_option* const option = [] {
      nghttp2_option* made = nullptr;
      nghttp2_option_new(&made);
      nghttp2_option_set_no_auto_window_update(made, 1);
      nghttp2_option_set_no_closed_streams(made, 1);
      nghttp2_option_set_max_settings(made, 32);
      // RequestHead looks at it, and lets "authorization: Bearer " pass.
      nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(made, 1);
      // FloodGuard's bound comes first, and is counted.
      nghttp2_option_set_stream_reset_rate_limit(made, 1 << 20, 1 << 20);
      return made;
    }();
    return option;
  }
};

Connection::Connection(DoorContext* context, Loop* loop, Owner* owner, AcceptedSocket socket)
    : context_(*context),
      loop_(*loop),
      owner_(*owner),
      memory_(context->memory.Of(socket.key())),
      socket_(socket.release()),
      descriptor_(loop->io(), socket_),
      started_(ClockNow()),
      deadline_(started_ + kHandshakeTimeout),
      last_read_(started_),
      last_ping_(started_ - std::chrono::hours(1)) {
  auto peer = std::make_shared<PeerInfo>();
  peer->name = socket.peer();
  peer->key = socket.key();
  peer_ = std::move(peer);
  // By up to 10%, so that connections that began together do not end together.
  const auto vary = static_cast<double>(std::hash<std::string>()(peer_->name) % 201) / 1000 + 0.9;
  age_at_ = After(started_, context_.options.limits.max_age * vary);
  Count(Protocol::kNotBegun);
}

Connection::~Connection() {
  if (session_ != nullptr) nghttp2_session_del(session_);
}

// The life of the connection.

void Connection::Start() {
  const auto self = shared_from_this();
  const auto enter = [this, &self](ConnectionTable* table, transport::TablePlace* place,
                                   absl::string_view reason) {
    const ConnectionTable::Entry entry = table->Enter(place, self, peer_->key);
    if (entry != ConnectionTable::Entry::kEntered) {
      context_.options.on_refused(reason, peer_->name);
    }
    return entry != ConnectionTable::Entry::kFull;
  };
  if (!enter(&context_.connections, &place_, transport::kTooManyOpen)) {
    return Close(CloseCause::kMadeWay);
  }
  CheckBy(deadline_);
  if (context_.options.tls_context == nullptr) {
    bytes_ = transport::MakePlainStream(socket_);
    if (context_.options.methods == nullptr) return StartHttp1("");
    return context_.options.start_http1 == nullptr ? StartSession("") : Sniff();
  }
  if (!enter(&loop_.handshakes(), &handshake_place_, transport::kTooManyHandshakes)) {
    return Close(CloseCause::kMadeWay);
  }
  tls_context_ = context_.options.tls_context();
  const bool both = context_.options.start_http1 != nullptr;
  bytes_ = transport::MakeTlsStream(
      socket_, tls_context_.get(),
      both ? transport::AlpnOffer::kHttp2AndHttp1 : transport::AlpnOffer::kHttp2);
  if (bytes_ == nullptr) return Close(CloseCause::kHandshake);
  AwaitReadable();  // not at once: in a flood, who makes way goes before others take memory
}

void Connection::HandshakeInTurn() {
  loop_.RunInTurn(peer_->key, [self = shared_from_this()] {
    if (self->state_ == State::kHandshake) self->Handshake();
  });
}

void Connection::Handshake() {
  switch (bytes_->Handshake()) {
    case ByteStream::Outcome::kWantsRead:
      return AwaitReadable();
    case ByteStream::Outcome::kWantsWrite:
      return AwaitWritable();
    case ByteStream::Outcome::kEnd:
      return FailHandshake(bytes_->HandshakeError());
    case ByteStream::Outcome::kDone:
      break;
  }
  loop_.handshakes().Leave(&handshake_place_);
  if (!IsTrusted()) return FailHandshake("the client's certificate is no longer accepted");
  auto peer = std::make_shared<PeerInfo>(*peer_);
  peer->certificate = bytes_->CertificateName();
  peer_ = std::move(peer);
  if (bytes_->protocol() == kHttp2Name) return StartSession("");
  if (context_.options.start_http1 == nullptr) {
    return FailHandshake("the client did not offer HTTP/2 (ALPN)");
  }
  if (bytes_->protocol().empty()) return Sniff();
  StartHttp1("");
}

bool Connection::IsTrusted() const {
  if (context_.options.tls_context == nullptr) return true;
  const std::shared_ptr<ssl_ctx_st> newest = context_.options.tls_context();
  return newest == tls_context_ || bytes_->IsTrustedBy(newest.get());
}

void Connection::FailHandshake(const std::string& error) {
  // Who connects and leaves, as a load balancer's probe, has failed at nothing.
  if (bytes_->PeerHasSent()) context_.options.on_handshake_failure(error, peer_->name);
  Close(CloseCause::kHandshake);
}

void Connection::Sniff() {
  if (state_ != State::kSniffing) {
    state_ = State::kSniffing;
    deadline_ = ClockNow() + kPrefaceTimeout;
    CheckBy(deadline_);
  }
  const absl::string_view bytes = ReadNow();
  if (bytes.empty()) {
    // A drain closes it only if nothing has come that is to be answered.
    if (context_.draining.load() && sniffed_.empty()) Close(CloseCause::kDrain);
    return;
  }
  sniffed_.append(bytes.data(), bytes.size());
  const absl::string_view begin = absl::string_view(sniffed_).substr(0, kPrefaceVerb.size());
  if (!absl::StartsWith(kPrefaceVerb, begin)) return StartHttp1(std::exchange(sniffed_, ""));
  if (begin.size() < kPrefaceVerb.size()) return Sniff();
  StartSession(std::exchange(sniffed_, ""));
}

void Connection::StartHttp1(std::string received) {
  const auto self = shared_from_this();
  if (!IsTrusted()) return Close(CloseCause::kRevoked);
  state_ = State::kHttp1;
  loop_.timers().Clear(this);
  Count(Protocol::kHttp1);
  context_.sessions.fetch_add(1, std::memory_order_relaxed);
  context_.options.metrics->OnRead(received.size());
  setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kHttp1SendBuffer, sizeof(kHttp1SendBuffer));
  sniffed_ = std::move(received);
  http1_ = context_.options.start_http1(this, *peer_);
  http1_->Start();
}

void Connection::StartSession(absl::string_view received) {
  state_ = State::kOpen;
  Count(Protocol::kHttp2);
  deadline_ = ClockNow() + kPrefaceTimeout;
  CheckBy(deadline_);
  if (nghttp2_session_server_new2(&session_, Reactions::All(), this, Reactions::Option()) != 0) {
    return Close(CloseCause::kProtocol);
  }
  const transport::ConnectionLimits& limits = context_.options.limits;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
       static_cast<uint32_t>(limits.max_concurrent_streams)},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(limits.max_metadata_bytes)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
  CheckBy(age_at_);
  CheckBy(last_read_ + kKeepaliveTime);
  if (context_.draining.load()) BeginGoAway(CloseCause::kDrain);
  WriteSoon();
  if (received.empty() || Receive(received)) ReadSome();
}

void Connection::Close(CloseCause cause) {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  if (state_ != State::kLingering) cause_ = cause;
  state_ = State::kClosed;
  if (std::exchange(go_away_, GoAway::kFinal) == GoAway::kAnnounced)
    context_.announced.fetch_sub(1);
  EndStreams();
  Leave(cause_);
  memory_->Give(std::exchange(out_bytes_, 0));
  if (const auto http1 = std::exchange(http1_, nullptr)) {
    context_.sessions.fetch_sub(1, std::memory_order_relaxed);
    http1->OnClosed();
  }
  bytes_.reset();
  error_code ignored;
  descriptor_.close(ignored);
}

void Connection::MakeWay() {
  loop_.Post([self = shared_from_this()] { self->Close(CloseCause::kMadeWay); });
}

void Connection::Count(Protocol protocol) {
  if (counted_ != nullptr) counted_->Decrement();
  const bool tls = context_.options.tls_context != nullptr;
  counted_ = &context_.options.metrics->Connections(tls, protocol);
  counted_->Increment();
}

void Connection::Leave(CloseCause cause) {
  counted_->Decrement();
  context_.options.metrics->OnClosed(cause);
  context_.connections.Leave(&place_);
  loop_.handshakes().Leave(&handshake_place_);
  loop_.Forget(this);
  loop_.timers().Clear(this);
  owner_.OnClosed(this);
}

void Connection::EndStreams() {
  while (!streams_.empty()) streams_.front().OnClosed();
  num_streams_ = 0;
  while (!to_flush_.empty()) CallFlushed(/*ok=*/false);
}

void Connection::Terminate(uint32_t code, CloseCause cause) {
  const absl::string_view text = ping_strikes_ > kMaxPingStrikes ? kTooManyPings : "";
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), code,
                        reinterpret_cast<const uint8_t*>(text.data()), text.size());
  cause_ = cause;
  if (cause != CloseCause::kFlood)
    SayClosed(&context_, *peer_, kCloseCauseNames[static_cast<size_t>(cause)]);
  if (!Flush()) FrameGoAway();
  BeginLinger(cause);
}

void Connection::FrameGoAway() {
  if (state_ != State::kOpen) return;
  const auto unsent = static_cast<ptrdiff_t>(out_begin_);
  out_.erase(out_.begin(), out_.begin() + unsent);
  out_begin_ = 0;
  // It comes before data.
  framed_go_away_ = false;
  while (!framed_go_away_ && out_.size() < 2 * kGatheredBytes) {
    const uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &data);
    if (size <= 0) return;
    out_.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  }
}

void Connection::BeginLinger(CloseCause cause) {
  if (state_ != State::kOpen) return;
  cause_ = cause;
  state_ = State::kLingering;
  EndStreams();
  if (out_.empty()) bytes_->EndSending();
  deadline_ = ClockNow() + kLingerTimeout;
  CheckBy(deadline_);
  AwaitReadable();
}

void Connection::BeginGoAway(CloseCause cause) {
  if (go_away_ != GoAway::kNot || state_ == State::kLingering || state_ == State::kClosed) return;
  if (state_ == State::kHttp1) return;  // its answers say so
  if (session_ == nullptr) {
    if (state_ == State::kSniffing && cause == CloseCause::kDrain) return Sniff();
    return Close(cause);
  }
  cause_ = cause;
  go_away_ = GoAway::kAnnounced;
  context_.announced.fetch_add(1);
  // What the client sends before it knows arrives before the ping's acknowledgement.
  nghttp2_submit_shutdown_notice(session_);
  SubmitPing(kGoAwayPing);
  go_away_at_ = ClockNow() + kGoAwayTimeout;
  CheckBy(go_away_at_);
  WriteSoon();
}

void Connection::Recheck() {
  const auto self = shared_from_this();
  if (state_ == State::kHttp1) return http1_->Recheck(IsTrusted());
  // A handshake's end looks for itself.
  if (state_ != State::kOpen && state_ != State::kSniffing) return;
  const bool trusted = IsTrusted();
  is_revoked_ = !trusted;
  // The end of one stream may end others.
  std::vector<int32_t> ids;
  for (const Stream& stream : streams_) ids.push_back(stream.id());
  for (const int32_t id : ids) {
    if (Stream* const stream = Find(id)) stream->Recheck(trusted);
  }
  if (!trusted) BeginGoAway(CloseCause::kRevoked);
}

void Connection::RefuseRest() {
  if (state_ != State::kOpen) return;
  const auto self = shared_from_this();
  std::vector<int32_t> ids;
  for (const Stream& stream : waiting_) ids.push_back(stream.id());
  for (const int32_t id : ids) {
    if (Stream* const stream = Find(id)) stream->RefuseRest();
  }
}

void Connection::StopHttp1() {
  const auto self = shared_from_this();
  if (state_ == State::kHttp1) http1_->BeginStop();
}

void Connection::FinishGoAway() {
  if (go_away_ != GoAway::kAnnounced) return;
  go_away_ = GoAway::kFinal;
  context_.announced.fetch_sub(1);
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  WriteSoon();
}

void Connection::CloseIfDone() {
  if (state_ != State::kOpen || nghttp2_session_want_write(session_) != 0) return;
  if (go_away_ == GoAway::kFinal && num_streams_ == 0) return BeginLinger(cause_);
  // nghttp2 has ended the session for an error, or the client has said goodbye. Without streams, it
  // also wants nothing after the door's own.
  if ((go_away_ == GoAway::kNot || num_streams_ > 0) && nghttp2_session_want_read(session_) == 0) {
    if (got_goodbye_ && !framed_go_away_) return BeginLinger(CloseCause::kPeer);
    SayClosed(&context_, *peer_, "protocol");
    BeginLinger(CloseCause::kProtocol);
  }
}

// Time.

void Connection::CheckBy(SteadyTime due) {
  if (due < this->due()) loop_.timers().Set(this, due);
}

void Connection::OnTimer(SteadyTime now) {
  const auto self = shared_from_this();
  const DoorOptions& options = context_.options;
  if (state_ == State::kHandshake) {
    if (now < deadline_) return CheckBy(deadline_);
    if (bytes_->PeerHasSent()) options.on_handshake_failure("", peer_->name);
    return Close(CloseCause::kTooSlow);
  }
  if (state_ == State::kSniffing) {
    if (now < deadline_) return CheckBy(deadline_);
    return CloseAsTooSlow();
  }
  if (state_ == State::kLingering) {
    if (now < deadline_) return CheckBy(deadline_);
    return Close(cause_);
  }
  if (!has_settings_ || !has_ack_) {
    if (now >= deadline_) return Terminate(NGHTTP2_SETTINGS_TIMEOUT, CloseCause::kTooSlow);
    CheckBy(deadline_);
  }
  if (now >= open_by_) {
    open_by_ = SteadyTime::max();
    if (filter_.has_only_reset()) return Terminate(NGHTTP2_PROTOCOL_ERROR, CloseCause::kProtocol);
  }
  CheckBy(open_by_);
  // Until a header block has ended, nothing else can be read, whether a stream waits for it or not.
  if (filter_.in_header_block()) {
    const SteadyTime block_by = After(block_since_, options.bytes_timeout);
    if (now >= block_by) return Terminate(NGHTTP2_NO_ERROR, CloseCause::kTooSlow);
    CheckBy(block_by);
  }
  while (!waiting_.empty() && After(waiting_.front().waits_since(), options.bytes_timeout) <= now) {
    waiting_.front().OnTooSlow();
  }
  if (!waiting_.empty()) CheckBy(After(waiting_.front().waits_since(), options.bytes_timeout));

  SteadyTime not_taken = After(blocked_since_, options.send_timeout);
  if (!unsent_.empty()) {
    not_taken = std::min(not_taken, After(unsent_.front().unsent_since(), options.send_timeout));
  }
  if (now >= not_taken) {
    context_.not_taken.fetch_add(1, std::memory_order_relaxed);
    options.on_not_taken(unsent_.empty() ? absl::string_view() : unsent_.front().method(),
                         peer_->name);
    return Close(CloseCause::kNotTaken);
  }
  CheckBy(not_taken);

  // Its age bounds a connection that goes for another reason, too.
  if (now < age_at_) {
    CheckBy(age_at_);
  } else if (age_grace_at_ == SteadyTime::max()) {
    age_grace_at_ = After(now, options.limits.max_age_grace);
    BeginGoAway(CloseCause::kAge);
  }
  if (go_away_ == GoAway::kAnnounced) {
    if (now >= go_away_at_) {
      FinishGoAway();
    } else {
      CheckBy(go_away_at_);
    }
  }
  if (now >= age_grace_at_) return Close(CloseCause::kAge);
  CheckBy(age_grace_at_);

  if (ping_sent_ != SteadyTime::max() && last_read_ < ping_sent_) {
    if (now >= ping_sent_ + kKeepaliveTimeout) return CloseAsTooSlow();
    CheckBy(ping_sent_ + kKeepaliveTimeout);
  } else if (now >= last_read_ + kKeepaliveTime) {
    ping_sent_ = now;
    SubmitPing(kKeepalivePing);
    CheckBy(ping_sent_ + kKeepaliveTimeout);
    WriteSoon();
  } else {
    CheckBy(last_read_ + kKeepaliveTime);
  }
}

void Connection::SubmitPing(absl::string_view payload) {
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE,
                      reinterpret_cast<const uint8_t*>(payload.data()));
}

// Reading.

void Connection::AwaitReadable() {
  if (reading_ || state_ == State::kClosed || read_while_blocked_ >= kReadWhileBlocked) return;
  reading_ = true;
  descriptor_.async_wait(Descriptor::wait_read, [self = shared_from_this()](error_code error) {
    Loop::Turn turn(&self->loop_);
    self->reading_ = false;
    if (error || self->state_ == State::kClosed) return;
    self->OnReady();
  });
}

void Connection::ReadOn() {
  const bool may_read = read_while_blocked_ < kReadWhileBlocked;
  if (may_read && !reading_ && bytes_->MayHoldMore()) return ReadInTurn();
  AwaitReadable();
}

void Connection::OnReady() {
  if (state_ == State::kHandshake) return HandshakeInTurn();
  if (state_ == State::kSniffing) return Sniff();
  if (state_ == State::kHttp1 && !http1_reads_) return;
  if (in_turn_ || !loop_.MayReadNow({peer_->key, last_caller_})) return ReadInTurn();
  ReadSome();
}

absl::Span<char> Connection::ReadBuffer() {
  const absl::Span<char> buffer = loop_.read_buffer();
  const bool is_packed = context_.options.allow_compression && state_ != State::kHttp1;
  return is_packed ? buffer.first(kPackedReadBytes) : buffer;
}

absl::string_view Connection::ReadNow() {
  const absl::Span<char> buffer = ReadBuffer();
  const ByteStream::Result result = bytes_->Read(buffer);
  const int empty = bytes_->TakeEmptyRecords();
  if (empty > 0 && !Note(Flood::kEmptyRecords, empty)) {
    Close(CloseCause::kFlood);
    return {};
  }
  switch (result.outcome) {
    case ByteStream::Outcome::kDone:
      return {buffer.data(), result.bytes};
    case ByteStream::Outcome::kWantsRead:
      AwaitReadable();
      break;
    case ByteStream::Outcome::kWantsWrite:
      AwaitWritable();
      break;
    case ByteStream::Outcome::kEnd:
      if (std::exchange(http1_reads_, false)) {  // the client may still take its answer
        http1_->OnRead(/*ok=*/false, {});
      } else {
        Close(CloseCause::kPeer);
      }
      break;
  }
  return {};
}

void Connection::ReadSome() {
  if (state_ == State::kHttp1) return ReadForHttp1();
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const absl::string_view bytes = ReadNow();
    if (bytes.empty()) return;
    if (state_ == State::kLingering) continue;  // what comes now is for nobody
    if (!Receive(bytes)) return;
    if (read_while_blocked_ >= kReadWhileBlocked) return;
    if (bytes.size() == ReadBuffer().size()) break;
    if (!bytes_->MayHoldMore()) return AwaitReadable();
  }
  ReadInTurn();
}

void Connection::ReadInTurn() {
  if (in_turn_) return;
  // Over HTTP/1.1 a client waits for its answer, so seldom more than one request waits: the loop
  // has time to compute.
  const bool is_behind = state_ != State::kHttp1;
  loop_.RunInTurn({peer_->key, last_caller_}, [self = shared_from_this(), is_behind] {
    self->in_turn_ = false;
    if (is_behind) self->loop_.NoteBehind(false);
    if (self->state_ != State::kClosed) self->ReadSome();
  });
  in_turn_ = true;
  if (is_behind) loop_.NoteBehind(true);
}

bool Connection::Receive(absl::string_view bytes) {
  context_.options.metrics->OnRead(bytes.size());
  last_read_ = ClockNow();
  ping_sent_ = SteadyTime::max();
  if (out_begin_ < out_.size()) read_while_blocked_ += bytes.size();
  floods_.OnBytes(bytes.size());
  ssize_t used = 0;
  filter_.Pass(
      bytes,
      [this](uint32_t type, uint32_t flags, size_t length) {
        return OnFrameHead(type, flags, length);
      },
      [&](absl::string_view part) {
        used = nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(part.data()),
                                        part.size());
        return used >= 0;
      });
  if (flooded_) {
    Terminate(NGHTTP2_ENHANCE_YOUR_CALM, CloseCause::kFlood);
    return false;
  }
  if (filter_.error() != NGHTTP2_NO_ERROR) {
    Terminate(filter_.error(), CloseCause::kProtocol);
    return false;
  }
  if (filter_.has_only_reset() && open_by_ == SteadyTime::max()) {
    open_by_ = last_read_ + kOpenTimeout;
    CheckBy(open_by_);
  }
  if (used < 0) {
    // A peer that does not speak HTTP/2 gets no answer in HTTP/2.
    if (used == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
      Close(CloseCause::kProtocol);
    } else {
      Terminate(NGHTTP2_INTERNAL_ERROR, CloseCause::kProtocol);
    }
    return false;
  }
  WriteSoon();
  return true;
}

Stream* Connection::Find(int32_t id) {
  if (state_ != State::kOpen) return nullptr;
  return static_cast<Stream*>(nghttp2_session_get_stream_user_data(session_, id));
}

int Connection::OnBeginHeaders(int32_t id) {
  context_.options.metrics->OnStream();
  ++num_streams_;
  TakenMemory taken(memory_.get(), Stream::kStreamBytes);
  if (!taken) {
    return nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
  }
  auto* const stream = new Stream(this, id);  // gives it back
  taken.Keep();
  streams_.push_back(*stream);
  return nghttp2_session_set_stream_user_data(session_, id, stream);
}

bool Connection::OnFrameHead(uint32_t type, uint32_t flags, size_t length) {
  switch (type) {
    case NGHTTP2_DATA:
      if ((flags & NGHTTP2_FLAG_END_STREAM) != 0 || length >= kSmallData) return true;
      return Note(length == 0 ? Flood::kEmptyData : Flood::kSmallData);
    case NGHTTP2_HEADERS:
      block_since_ = last_read_;
      CheckBy(After(block_since_, context_.options.bytes_timeout));
      return true;
    case NGHTTP2_CONTINUATION:
      if ((flags & NGHTTP2_FLAG_END_HEADERS) != 0 || length >= kSmallData) return true;
      return Note(Flood::kOtherFrames);
    case NGHTTP2_RST_STREAM:
      return Note(Flood::kResets);
    case NGHTTP2_PING:
      return Note(Flood::kPings);
    case NGHTTP2_SETTINGS:
      return Note(Flood::kSettings);
    case NGHTTP2_WINDOW_UPDATE:
      return Note(Flood::kWindowUpdates);
    case NGHTTP2_PRIORITY:
      return Note(Flood::kPriorities);
    default:
      return Note(Flood::kOtherFrames);
  }
}

int Connection::OnEndlessHeaders() {
  Note(Flood::kResets, kEndlessHeadersResets);
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets the stream
}

bool Connection::Note(Flood flood, double times) {
  if (flooded_) return false;
  if (floods_.Note(flood, ClockNow(), times)) return true;
  OnFlood(flood);
  return false;
}

void Connection::OnFlood(Flood flood) {
  flooded_ = true;
  SayFlood(&context_, *peer_, flood);
}

void Connection::CloseAsTooSlow() {
  SayClosed(&context_, *peer_, kCloseCauseNames[static_cast<size_t>(CloseCause::kTooSlow)]);
  Close(CloseCause::kTooSlow);
}

int Connection::OnFrame(const nghttp2_frame& frame) {
  const bool ends = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
      if (Stream* const stream = Find(frame.hd.stream_id)) {
        if (frame.headers.cat == NGHTTP2_HCAT_REQUEST) stream->OnHead();
        if (ends) stream->OnEnd();
      }
      return 0;
    case NGHTTP2_DATA:
      if (!ends) return 0;
      if (Stream* const stream = Find(frame.hd.stream_id)) stream->OnEnd();
      return 0;
    case NGHTTP2_RST_STREAM:
      context_.options.metrics->OnReset(/*by_client=*/true, frame.rst_stream.error_code);
      return 0;
    case NGHTTP2_SETTINGS:
      ((frame.hd.flags & NGHTTP2_FLAG_ACK) != 0 ? has_ack_ : has_settings_) = true;
      return 0;
    case NGHTTP2_GOAWAY:
      got_goodbye_ = frame.goaway.error_code == NGHTTP2_NO_ERROR;
      return 0;
    case NGHTTP2_PING:
      return OnPing((frame.hd.flags & NGHTTP2_FLAG_ACK) != 0,
                    {reinterpret_cast<const char*>(frame.ping.opaque_data), kPingBytes});
    default:
      return 0;
  }
}

int Connection::OnPing(bool ack, absl::string_view payload) {
  if (ack) {
    if (payload == kGoAwayPing) FinishGoAway();
    return 0;
  }
  const SteadyTime now = ClockNow();
  const bool early =
      now < After(last_ping_, context_.options.limits.min_ping_interval) && !sent_since_ping_;
  ping_strikes_ = early ? ping_strikes_ + 1 : 0;
  last_ping_ = now;
  sent_since_ping_ = false;
  if (ping_strikes_ <= kMaxPingStrikes) return 0;
  OnFlood(Flood::kPings);
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

int Connection::OnData(int32_t id, absl::string_view bytes) {
  nghttp2_session_consume_connection(session_, bytes.size());
  if (Stream* const stream = Find(id)) stream->OnData(bytes);
  return 0;
}

void Connection::OnStreamClosed(int32_t id) {
  --num_streams_;
  if (Stream* const stream = Find(id)) stream->OnClosed();
}

// What streams ask for.

void Connection::AwaitBytes(Stream* stream) {
  waiting_.push_back(*stream);
  CheckBy(After(stream->waits_since(), context_.options.bytes_timeout));
}

void Connection::AwaitTaken(Stream* stream) {
  // Nearly always the last one.
  auto at = unsent_.end();
  while (at != unsent_.begin() && std::prev(at)->unsent_since() > stream->unsent_since()) --at;
  unsent_.insert(at, *stream);
  CheckBy(After(stream->unsent_since(), context_.options.send_timeout));
}

void Connection::FlushLater(Stream* stream) {
  if (!std::exchange(stream->is_flush_listed, true)) to_flush_.push_back(stream);
  WriteSoon();
}

void Connection::OpenWindow(int32_t id, size_t bytes) {
  nghttp2_session_consume_stream(session_, id, bytes);
  WriteSoon();
}

void Connection::WidenWindow(int32_t id, size_t bytes) {
  const auto wanted = static_cast<int32_t>(std::min(kStreamWindow + bytes, kMostStreamWindow));
  // Little by little it would cost a frame each time.
  if (wanted < nghttp2_session_get_stream_effective_local_window_size(session_, id) * 2) return;
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, id, wanted);
}

void Connection::Reset(int32_t id, uint32_t code) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, code);
  WriteSoon();
}

bool Connection::TakeForAnswer(int64_t bytes) {
  // One answer may be as large as there is memory.
  const bool is_alone = answer_bytes_ == 0;
  if (!is_alone && answer_bytes_ + bytes > memory_->limit() / kAnswersPart) return false;
  if (!memory_->Take(bytes)) return false;
  answer_bytes_ += bytes;
  return true;
}

void Connection::GiveForAnswer(int64_t bytes) {
  answer_bytes_ -= bytes;
  memory_->Give(bytes);
}

void Connection::OnMessage() { floods_.OnMessage(); }

bool Connection::CameLate(absl::Duration left) {
  if (last_read_ - most_left_since_ > kTimesLeftWindow) {
    const bool is_next = last_read_ - most_left_since_ < 2 * kTimesLeftWindow;
    most_left_ = {absl::ZeroDuration(), is_next ? most_left_[0] : absl::ZeroDuration()};
    most_left_since_ = last_read_;
  }
  most_left_[0] = std::max(most_left_[0], left);
  return last_read_ - last_refused_ < kRefusalsWindow &&
         2 * left < std::max(most_left_[0], most_left_[1]);
}

// Writing.

void Connection::WriteNow() {
  const auto self = shared_from_this();
  if (state_ == State::kLingering && !out_.empty() && FlushFramed()) bytes_->EndSending();
  if (state_ != State::kOpen || !Flush()) return;
  if (flooded_) return Terminate(NGHTTP2_ENHANCE_YOUR_CALM, CloseCause::kFlood);
  CloseIfDone();
}

int Connection::OnFrameSent(const nghttp2_frame& frame) {
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA: {
      sent_since_ping_ = true;
      floods_.OnDataSent();
      if ((frame.hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
      floods_.OnAnswer();
      const int32_t id = frame.hd.stream_id;
      Stream* const stream = Find(id);
      const bool takes_rest = stream != nullptr && stream->OnEndFramed();
      // The client need not send the rest.
      if (!takes_rest && nghttp2_session_get_stream_remote_close(session_, id) == 0) {
        nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
      }
      return 0;
    }
    case NGHTTP2_RST_STREAM:
      context_.options.metrics->OnReset(/*by_client=*/false, frame.rst_stream.error_code);
      if (frame.rst_stream.error_code == NGHTTP2_NO_ERROR) return 0;
      Note(Flood::kResets);  // the turn's end looks at flooded_
      return 0;
    case NGHTTP2_GOAWAY:
      context_.options.metrics->OnGoAway();
      framed_go_away_ = true;
      return 0;
    default:
      return 0;
  }
}

bool Connection::WriteOut(absl::string_view bytes, size_t* written) {
  *written = 0;
  while (*written < bytes.size()) {
    const ByteStream::Result result = bytes_->Write(bytes.substr(*written));
    if (result.outcome == ByteStream::Outcome::kDone) {
      *written += result.bytes;
      continue;
    }
    if (result.outcome == ByteStream::Outcome::kEnd) {
      Close(CloseCause::kPeer);
    } else {
      // TLS may have to read the rest of a message of its own before it writes.
      AwaitWritable(result.outcome);
    }
    break;
  }
  context_.options.metrics->OnWritten(*written);
  return *written == bytes.size();
}

bool Connection::FlushFramed() {
  if (out_.empty()) return true;
  size_t written = 0;
  const bool all = WriteOut(absl::string_view(out_).substr(out_begin_), &written);
  out_begin_ += written;
  if (written > 0) blocked_since_ = ClockNow();
  if (!all) return false;
  std::string().swap(out_);
  out_begin_ = 0;
  memory_->Give(std::exchange(out_bytes_, 0));
  blocked_since_ = SteadyTime::max();
  read_while_blocked_ = 0;
  ReadOn();
  return true;
}

bool Connection::Flush() {
  const bool had_framed = !out_.empty();
  if (!FlushFramed()) return false;
  if (had_framed) CallFlushed(/*ok=*/true);
  std::vector<char>& buffer = loop_.write_buffer();
  buffer.clear();
  while (buffer.size() < kGatheredBytes) {
    const uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &data);
    if (size < 0) {
      Close(CloseCause::kProtocol);
      return false;
    }
    if (size == 0) break;
    buffer.insert(buffer.end(), data, data + size);
  }
  if (!buffer.empty()) {
    floods_.OnBytes(buffer.size());
    size_t written = 0;
    if (!WriteOut({buffer.data(), buffer.size()}, &written)) {
      if (state_ == State::kClosed) return false;
      out_.assign(buffer.data() + written, buffer.size() - written);
      out_begin_ = 0;
      if (!memory_->Take(static_cast<int64_t>(out_.size()))) {
        Close(CloseCause::kNotTaken);
        return false;
      }
      out_bytes_ = static_cast<int64_t>(out_.size());
      blocked_since_ = ClockNow();
      CheckBy(After(blocked_since_, context_.options.send_timeout));
      return false;
    }
  }
  const bool may_be_more = buffer.size() >= kGatheredBytes;
  if (may_be_more) AwaitWritable();  // others come first
  CallFlushed(/*ok=*/true);
  return !may_be_more;
}

void Connection::CallFlushed(bool ok) {
  std::vector<Stream*> flushed;
  flushed.swap(to_flush_);
  for (Stream* const stream : flushed) {
    stream->is_flush_listed = false;
    stream->OnFlushed(ok);
  }
  if (to_flush_.empty()) {
    flushed.clear();
    to_flush_.swap(flushed);  // keeps its memory
  }
}

void Connection::AwaitWritable(ByteStream::Outcome outcome) {
  if (writing_ || state_ == State::kClosed) return;
  writing_ = true;
  const Descriptor::wait_type event =
      outcome == ByteStream::Outcome::kWantsRead ? Descriptor::wait_read : Descriptor::wait_write;
  descriptor_.async_wait(event, [self = shared_from_this()](error_code error) {
    Loop::Turn turn(&self->loop_);
    self->writing_ = false;
    if (error || self->state_ == State::kClosed) return;
    if (self->state_ == State::kHandshake) return self->HandshakeInTurn();
    if (self->state_ == State::kSniffing) return self->Sniff();
    if (self->state_ == State::kHttp1) return self->WriteOnForHttp1();
    self->WriteSoon();
    self->ReadOn();
  });
}

// HTTP/1.1.

void Connection::Read(const void* caller) {
  http1_reads_ = true;
  last_caller_ = caller;
  if (sniffed_.empty() && !bytes_->MayHoldMore()) return AwaitReadable();
  ReadInTurn();
}

void Connection::ReadForHttp1() {
  if (!http1_reads_) return;
  const auto self = shared_from_this();
  if (!sniffed_.empty()) {
    http1_reads_ = false;
    return http1_->OnRead(/*ok=*/true, std::exchange(sniffed_, std::string()));
  }
  const absl::string_view bytes = ReadNow();
  if (bytes.empty()) return;
  http1_reads_ = false;
  context_.options.metrics->OnRead(bytes.size());
  http1_->OnRead(/*ok=*/true, bytes);
}

SessionHost::Sent Connection::Write(absl::string_view first, absl::string_view second) {
  http1_first_ = first;
  http1_second_ = second;
  if (!first.empty() && !second.empty() && first.size() + second.size() <= kGatheredBytes) {
    out_ = absl::StrCat(first, second);
    http1_first_ = out_;
    http1_second_ = {};
  }
  const ByteStream::Outcome outcome = WriteForHttp1();
  if (outcome == ByteStream::Outcome::kDone) return Sent::kAll;
  if (outcome == ByteStream::Outcome::kEnd) {
    loop_.Post([self = shared_from_this()] {
      if (self->state_ == State::kHttp1) self->http1_->OnWritten(/*ok=*/false);
    });
  } else {
    AwaitWritable(outcome);
  }
  return Sent::kLater;
}

ByteStream::Outcome Connection::WriteForHttp1() {
  for (size_t written = 0; !http1_first_.empty() || !http1_second_.empty();) {
    if (written >= kGatheredBytes) return ByteStream::Outcome::kWantsWrite;  // others come first
    absl::string_view& part = http1_first_.empty() ? http1_second_ : http1_first_;
    const ByteStream::Result result = bytes_->Write(part.substr(0, kGatheredBytes));
    if (result.outcome != ByteStream::Outcome::kDone) return result.outcome;
    context_.options.metrics->OnWritten(result.bytes);
    part.remove_prefix(result.bytes);
    written += result.bytes;
  }
  std::string().swap(out_);
  return ByteStream::Outcome::kDone;
}

void Connection::WriteOnForHttp1() {
  if (http1_reads_ && !reading_) ReadInTurn();  // TLS had to write before it reads
  if (http1_first_.empty() && http1_second_.empty()) return;
  const ByteStream::Outcome outcome = WriteForHttp1();
  if (outcome == ByteStream::Outcome::kDone || outcome == ByteStream::Outcome::kEnd) {
    http1_first_ = http1_second_ = {};
    return http1_->OnWritten(outcome == ByteStream::Outcome::kDone);
  }
  AwaitWritable(outcome);
}

void Connection::End(CloseCause cause, bool reset) {
  if (state_ == State::kClosed) return;
  const linger at_once{1, 0};
  if (reset) setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close(cause);
}

}  // namespace sru::server::door
