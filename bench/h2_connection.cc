#include "bench/h2_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::bench {
namespace {

constexpr size_t kGrpcPrefix = 5;
// So large that this client never makes the server wait.
constexpr int32_t kWindow = 0x7fffffff;
constexpr absl::Duration kHandshakeTime = absl::Seconds(5);

absl::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// libnghttp2 copies the bytes only if `flags` says so.
nghttp2_nv Header(absl::string_view name, absl::string_view value,
                  uint8_t flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE) {
  const auto bytes = [](absl::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), flags};
}

// grpc-message is percent-encoded.
std::string PercentDecode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, 2);
    if (text[i] == '%' && digits.size() == 2 && absl::ascii_isxdigit(digits[0]) &&
        absl::ascii_isxdigit(digits[1])) {
      decoded += absl::HexStringToBytes(digits);
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

int ConnectTo(const SocketAddress& address) {
  const auto* socket_address = reinterpret_cast<const sockaddr*>(address.data());
  const int fd = socket(socket_address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, socket_address, static_cast<socklen_t>(address.size())) != 0) {
    close(fd);
    return -1;
  }
  const int on = 1;
  if (socket_address->sa_family != AF_UNIX) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return fd;
}

// Makes TLS's handshake on a socket that blocks; null: `*error` says why there is none.
std::shared_ptr<ssl_st> StartTls(int fd, const H2Connection::Tls& tls, std::string* error) {
  std::shared_ptr<ssl_st> session(SSL_new(tls.context.get()), SSL_free);
  const char* const name = tls.server_name.c_str();
  const timeval time = absl::ToTimeval(kHandshakeTime);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.get()), name) != 1) {
    SSL_set1_host(session.get(), name);
    SSL_set_tlsext_host_name(session.get(), name);
  }
  SSL_set_mode(session.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ERR_clear_error();
  if (SSL_set_fd(session.get(), fd) == 1 && SSL_connect(session.get()) == 1) return session;
  const auto verified = SSL_get_verify_result(session.get());
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  *error = verified != X509_V_OK
               ? absl::StrCat("expected a certificate of --tls_ca for ", name,
                              ", found: ", X509_verify_cert_error_string(verified))
           : reason != nullptr ? reason
                               : "the server closed the connection or is silent";
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<H2Connection>> H2Connection::Open(
    const std::vector<SocketAddress>& addresses, const std::string& method, Done done,
    bool keep_answers, const std::string& token, const Tls& tls) {
  for (const SocketAddress& address : addresses) {
    const int fd = ConnectTo(address);
    if (fd < 0) continue;
    Session session;
    std::string error;
    if (tls.context != nullptr && (session = StartTls(fd, tls, &error)) == nullptr) {
      close(fd);
      return absl::UnavailableError(absl::StrCat("cannot connect with TLS: ", error));
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    std::unique_ptr<H2Connection> connection(
        new H2Connection(fd, session, method, token, done, keep_answers));
    if (connection->Handshake()) return connection;
    if (session != nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot connect with TLS: ", connection->why_lost_,
                       absl::StrContains(connection->why_lost_, "certificate required")
                           ? "; give --tls_cert and --tls_key"
                           : ""));
    }
    return absl::UnavailableError(
        "cannot connect: what listens there does not speak HTTP/2; a server with TLS needs "
        "--tls_ca");
  }
  return absl::UnavailableError("cannot connect");
}

struct H2Connection::Callbacks {
  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                      void* self) {
    // Only the last header block of a call has anything that is needed here.
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    const absl::string_view header = View(name, name_size);
    const bool is_status = header == "grpc-status";
    if (!is_status && header != "grpc-message") return 0;
    Call* call = static_cast<H2Connection*>(self)->Find(frame->hd.stream_id);
    if (call == nullptr) return 0;
    const absl::string_view text = View(value, value_size);
    if (!is_status) {
      call->text = PercentDecode(text);
    } else if (!absl::SimpleAtoi(text, &call->code)) {
      call->code = -1;
    }
    return 0;
  }

  static int OnAnswerBytes(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes,
                           size_t size, void* self) {
    Call* call = static_cast<H2Connection*>(self)->Find(stream);
    if (call != nullptr) call->answer.append(reinterpret_cast<const char*>(bytes), size);
    return 0;
  }

  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
    auto* connection = static_cast<H2Connection*>(self);
    const bool headers = frame->hd.type == NGHTTP2_HEADERS;
    if (frame->hd.type == NGHTTP2_SETTINGS) {
      connection->got_settings_ = true;
    } else if ((headers || frame->hd.type == NGHTTP2_DATA) &&
               (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      connection->EndAnswered(frame->hd.stream_id, headers);
    }
    return 0;
  }

  // Answered calls have been ended already, so this call was reset: by the server, by libnghttp2
  // because the server broke the protocol, or by a GOAWAY of a server that it had not reached yet.
  static int OnStreamClose(nghttp2_session*, int32_t stream, uint32_t error, void* self) {
    const absl::StatusCode code = error == NGHTTP2_REFUSED_STREAM ? absl::StatusCode::kUnavailable
                                  : error == NGHTTP2_CANCEL       ? absl::StatusCode::kCancelled
                                                                  : absl::StatusCode::kInternal;
    static_cast<H2Connection*>(self)->End(
        stream, code,
        absl::StrCat("the call was reset with HTTP/2 error ", nghttp2_http2_strerror(error)));
    return 0;
  }

  static ssize_t ReadRequest(nghttp2_session*, int32_t stream, uint8_t* buffer, size_t size,
                             uint32_t* flags, nghttp2_data_source*, void* self) {
    Call* call = static_cast<H2Connection*>(self)->Find(stream);
    if (call == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const auto length = static_cast<uint32_t>(call->request->size());
    const std::array<uint8_t, kGrpcPrefix> prefix = {
        0,  // not compressed
        static_cast<uint8_t>(length >> 24), static_cast<uint8_t>(length >> 16),
        static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)};
    size_t filled = 0;
    while (call->sent < kGrpcPrefix && filled < size) buffer[filled++] = prefix[call->sent++];
    if (call->sent >= kGrpcPrefix) {
      const size_t copied = call->request->copy(reinterpret_cast<char*>(buffer) + filled,
                                                size - filled, call->sent - kGrpcPrefix);
      call->sent += copied;
      filled += copied;
    }
    if (call->sent == kGrpcPrefix + call->request->size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(filled);
  }
};

H2Connection::H2Connection(int fd, Session tls, const std::string& method, const std::string& token,
                           Done done, bool keep_answers)
    : fd_(fd),
      tls_(std::move(tls)),
      method_(method),
      authorization_(token.empty() ? "" : absl::StrCat("Bearer ", token)),
      done_(std::move(done)),
      session_(nullptr, nghttp2_session_del) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session* session = nullptr;
  // These fail only if there is no memory.
  if (nghttp2_session_callbacks_new(&callbacks) != 0) std::abort();
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::OnHeader);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::OnStreamClose);
  if (keep_answers) {
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::OnAnswerBytes);
  }
  if (nghttp2_session_client_new(&session, callbacks, this) != 0) std::abort();
  nghttp2_session_callbacks_del(callbacks);
  session_.reset(session);
}

H2Connection::~H2Connection() { close(fd_); }

bool H2Connection::Handshake() {
  const std::array<nghttp2_settings_entry, 2> settings = {
      {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow}}};
  if (nghttp2_submit_settings(session_.get(), NGHTTP2_FLAG_NONE, settings.data(),
                              settings.size()) != 0 ||
      nghttp2_session_set_local_window_size(session_.get(), NGHTTP2_FLAG_NONE, 0, kWindow) != 0) {
    return false;
  }
  const absl::Time deadline = absl::Now() + kHandshakeTime;
  while (alive_ && !got_settings_) {
    Flush();
    pollfd descriptor = {fd_, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0 || poll(&descriptor, 1, static_cast<int>(left_ms)) == 0) return false;
    ReadAnswers();
  }
  return alive_;
}

bool H2Connection::usable() const {
  return alive() && calls_.size() < nghttp2_session_get_remote_settings(
                                        session_.get(), NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

bool H2Connection::alive() const {
  return alive_ && nghttp2_session_check_request_allowed(session_.get()) != 0;
}

uint32_t H2Connection::Start(const std::string& message, int64_t timeout_us) {
  std::array<nghttp2_nv, 8> headers = {
      Header(":method", "POST"), Header(":scheme", tls_ == nullptr ? "http" : "https"),
      Header(":path", method_),  Header(":authority", "localhost"),
      Header("te", "trailers"),  Header("content-type", "application/grpc"),
  };
  size_t num_headers = 6;
  if (!authorization_.empty()) headers[num_headers++] = Header("authorization", authorization_);
  std::string timeout;
  if (timeout_us > 0) {
    // At most 8 digits. The value differs from call to call, so it does not belong in the header
    // table.
    timeout = timeout_us < 100000000 ? absl::StrCat(timeout_us, "u")
                                     : absl::StrCat(timeout_us / 1000, "m");
    headers[num_headers++] =
        Header("grpc-timeout", timeout, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX);
  }
  nghttp2_data_provider provider = {};
  provider.read_callback = Callbacks::ReadRequest;
  const int32_t stream = nghttp2_submit_request(session_.get(), nullptr, headers.data(),
                                                num_headers, &provider, nullptr);
  // While usable(), it fails only if there is no memory.
  if (stream < 0) std::abort();
  calls_[static_cast<uint32_t>(stream)].request = &message;
  return static_cast<uint32_t>(stream);
}

void H2Connection::Cancel(uint32_t stream) {
  if (calls_.erase(stream) == 0) return;
  nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, static_cast<int32_t>(stream),
                            NGHTTP2_CANCEL);
}

H2Connection::Call* H2Connection::Find(uint32_t stream) {
  const auto call = calls_.find(stream);
  return call == calls_.end() ? nullptr : &call->second;
}

void H2Connection::FillOutput() {
  for (;;) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &bytes);
    if (size < 0) Lose(nghttp2_strerror(static_cast<int>(size)));
    if (size <= 0) return;
    out_.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

ssize_t H2Connection::Send(const char* bytes, size_t size) {
  if (tls_ == nullptr) return send(fd_, bytes, size, MSG_NOSIGNAL);
  ERR_clear_error();
  const int sent = SSL_write(tls_.get(), bytes, static_cast<int>(size));
  if (sent <= 0) errno = SSL_want(tls_.get()) != SSL_NOTHING ? EAGAIN : EPROTO;
  return sent > 0 ? sent : -1;
}

ssize_t H2Connection::Receive(char* bytes, size_t size) {
  if (tls_ == nullptr) return recv(fd_, bytes, size, 0);
  ERR_clear_error();
  const int got = SSL_read(tls_.get(), bytes, static_cast<int>(size));
  if (got > 0) return got;
  const int error = SSL_get_error(tls_.get(), got);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
  return -1;
}

bool H2Connection::Flush() {
  while (alive_) {
    if (out_begin_ == out_.size()) {
      out_.clear();
      out_begin_ = 0;
      FillOutput();
      if (out_.empty()) return false;
    }
    const ssize_t sent = Send(out_.data() + out_begin_, out_.size() - out_begin_);
    if (sent > 0) {
      out_begin_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      // The reader finds out, after it has read the server's last words.
      return false;
    }
  }
  return false;
}

void H2Connection::ReadAnswers() {
  if (!alive_) return;
  std::array<char, 1 << 16> chunk;
  ssize_t size;
  do {
    // Longer than a record of TLS, so that none of one stays with the session.
    size = Receive(chunk.data(), chunk.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  if (size <= 0) {
    const char* const alert = ERR_reason_error_string(ERR_peek_error());
    Lose(size == 0                             ? "the server closed the connection"
         : errno == EPROTO && alert != nullptr ? alert
                                               : std::strerror(errno));
    return;
  }
  // The rest, if any, is read next time, after these answers have been handled.
  const ssize_t parsed = nghttp2_session_mem_recv(
      session_.get(), reinterpret_cast<const uint8_t*>(chunk.data()), static_cast<size_t>(size));
  if (parsed < 0) {
    Lose(nghttp2_strerror(static_cast<int>(parsed)));
    return;
  }
  FillOutput();
  // libnghttp2 gives up if the server breaks the protocol.
  if (alive_ && nghttp2_session_want_read(session_.get()) == 0) {
    Lose("the server went away or does not speak HTTP/2");
  }
}

void H2Connection::EndAnswered(uint32_t stream, bool with_trailers) {
  Call* call = Find(stream);
  if (call == nullptr) return;
  if (call->sent < kGrpcPrefix + call->request->size()) {
    // The server did not wait for the rest of the request.
    nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, static_cast<int32_t>(stream),
                              NGHTTP2_NO_ERROR);
  }
  const int code = call->code;
  if (code == 0) {
    const std::string answer = std::move(call->answer);
    End(stream, absl::StatusCode::kOk,
        absl::string_view(answer).substr(std::min(answer.size(), kGrpcPrefix)));
  } else if (!with_trailers) {
    End(stream, absl::StatusCode::kInternal, "the answer ended without a status");
  } else if (code < 0 || code > 16) {
    End(stream, absl::StatusCode::kUnknown, "the answer has no grpc-status; is it a gRPC server?");
  } else {
    const std::string text = std::move(call->text);
    End(stream, static_cast<absl::StatusCode>(code), text);
  }
}

void H2Connection::End(uint32_t stream, absl::StatusCode code, absl::string_view message) {
  if (calls_.erase(stream) != 0) done_(stream, code, message);
}

void H2Connection::Lose(absl::string_view why) {
  alive_ = false;
  why_lost_ = std::string(why);
  const std::string message = absl::StrCat("the connection is lost: ", why);
  while (!calls_.empty()) {
    End(calls_.begin()->first, absl::StatusCode::kUnavailable, message);
  }
}

}  // namespace sru::bench
