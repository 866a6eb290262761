#include "server/transport/byte_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
namespace sru::server::transport {
namespace {

// Reads of the socket within one call of OpenSSL, which would go on as long as something comes; a
// record takes two. What is left waits for the next call.
constexpr int kReadsPerCall = 16;

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(int socket) : socket_(socket) {}

  Result Read(absl::Span<char> buffer) override {
    for (;;) {
      const ssize_t size = recv(socket_, buffer.data(), buffer.size(), 0);
      if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
      if (size == 0) return {Outcome::kEnd};
      if (errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? Outcome::kWantsRead : Outcome::kEnd};
    }
  }
  Result Write(absl::string_view bytes) override {
    for (;;) {
      const ssize_t size = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
      if (size < 0 && errno == EINTR) continue;
      return {errno == EAGAIN || errno == EWOULDBLOCK ? Outcome::kWantsWrite : Outcome::kEnd};
    }
  }
  void EndSending() override { shutdown(socket_, SHUT_WR); }

 private:
  const int socket_;
};

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

struct StoreFree {
  void operator()(X509_STORE_CTX* check) const { X509_STORE_CTX_free(check); }
};

class TlsStream final : public ByteStream {
 public:
  TlsStream(int socket, std::unique_ptr<SSL, SslFree> ssl) : socket_(socket), ssl_(std::move(ssl)) {
    SSL_set_msg_callback(ssl_.get(), CountRecord);
    SSL_set_msg_callback_arg(ssl_.get(), this);
    BIO* const bio = SSL_get_rbio(ssl_.get());
    BIO_set_callback_arg(bio, reinterpret_cast<char*>(this));
    BIO_set_callback_ex(bio, BoundReads);
  }

  Outcome Handshake() override {
    BeginCall();
    const int result = SSL_accept(ssl_.get());
    records_ = 0;
    if (result == 1) return Outcome::kDone;
    const Outcome outcome = OutcomeOf(result);
    if (outcome == Outcome::kEnd) {
      if (const unsigned long code = ERR_peek_error();
          code != 0 && ERR_GET_REASON(code) != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        std::array<char, 256> text{};
        ERR_error_string_n(code, text.data(), text.size());
        error_ = absl::StrCat("SSL_ERROR_SSL: ", text.data());
      }
      ERR_clear_error();
    }
    return outcome;
  }
  std::string HandshakeError() const override { return error_; }
  bool PeerHasSent() const override { return BIO_number_read(SSL_get_rbio(ssl_.get())) > 0; }
  absl::string_view protocol() const override { return AgreedProtocol(ssl_.get()); }
  std::string CertificateName() const override {
    const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    return certificate == nullptr ? "" : OwnerOf(*certificate);
  }
  bool IsTrustedBy(SSL_CTX* context) const override {
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if ((SSL_CTX_get_verify_mode(context) & SSL_VERIFY_PEER) == 0 || certificate == nullptr)
      return true;
    const std::unique_ptr<X509_STORE_CTX, StoreFree> check(X509_STORE_CTX_new());
    ERR_clear_error();
    const bool trusted =
        check != nullptr &&
        X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context), certificate,
                            SSL_get_peer_cert_chain(ssl_.get())) == 1 &&
        X509_STORE_CTX_set_default(check.get(), "ssl_client") == 1 &&
        X509_verify_cert(check.get()) == 1;
    ERR_clear_error();
    return trusted;
  }
  Result Read(absl::Span<char> buffer) override {
    BeginCall();
    const int size = SSL_read(ssl_.get(), buffer.data(),
                              static_cast<int>(std::min<size_t>(buffer.size(), INT_MAX)));
    // The last one has the data, or has not come whole.
    empty_records_ += std::max(0, records_ - 1);
    records_ = size > 0 ? 0 : std::min(records_, 1);
    if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
    return {OutcomeOf(size)};
  }
  int TakeEmptyRecords() override { return std::exchange(empty_records_, 0); }
  bool MayHoldMore() const override { return true; }
  Result Write(absl::string_view bytes) override {
    BeginCall();
    const int size = SSL_write(ssl_.get(), bytes.data(),
                               static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)));
    if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
    return {OutcomeOf(size)};
  }
  void EndSending() override {
    BeginCall();
    SSL_shutdown(ssl_.get());  // "close notify"
    ERR_clear_error();
    shutdown(socket_, SHUT_WR);
  }

 private:
  void BeginCall() {
    ERR_clear_error();
    reads_left_ = kReadsPerCall;
  }
  static void CountRecord(int is_sent, int /*version*/, int type, const void* /*bytes*/,
                          size_t /*size*/, SSL* /*ssl*/, void* stream) {
    if (is_sent == 0 && type == SSL3_RT_HEADER) ++static_cast<TlsStream*>(stream)->records_;
  }
  static long BoundReads(BIO* bio, int operation, const char* /*bytes*/, size_t /*size*/,
                         int /*argument*/, long /*argument*/, int result, size_t* /*done*/) {
    if (operation != BIO_CB_READ) return result;
    auto* const stream = reinterpret_cast<TlsStream*>(BIO_get_callback_arg(bio));
    if (stream->reads_left_-- > 0) return result;
    BIO_set_retry_read(bio);
    return -1;
  }
  Outcome OutcomeOf(int result) const {
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Outcome::kWantsRead;
      case SSL_ERROR_WANT_WRITE:
        return Outcome::kWantsWrite;
      default:
        return Outcome::kEnd;
    }
  }

  const int socket_;
  const std::unique_ptr<SSL, SslFree> ssl_;
  std::string error_;
  int reads_left_ = 0;
  int records_ = 0;  // that have begun, and whose data was not read
  int empty_records_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> MakePlainStream(int socket) {
  return std::make_unique<PlainStream>(socket);
}

std::unique_ptr<ByteStream> MakeTlsStream(int socket, ssl_ctx_st* context, AlpnOffer offer) {
  std::unique_ptr<SSL, SslFree> ssl(SSL_new(context));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket) != 1) return nullptr;
  SSL_set_mode(ssl.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A read ends at each record, also at one that has no data.
  SSL_clear_mode(ssl.get(), SSL_MODE_AUTO_RETRY);
  OfferProtocols(ssl.get(), offer);
  return std::make_unique<TlsStream>(socket, std::move(ssl));
}

}  // namespace sru::server::transport
