#include "server/transport/byte_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"
namespace sru::server::transport {
namespace {

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
  TlsStream(int socket, std::unique_ptr<SSL, SslFree> ssl)
      : socket_(socket), ssl_(std::move(ssl)) {}

  Outcome Handshake() override {
    ERR_clear_error();
    const int result = SSL_accept(ssl_.get());
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
    ERR_clear_error();
    const int size = SSL_read(ssl_.get(), buffer.data(),
                              static_cast<int>(std::min<size_t>(buffer.size(), INT_MAX)));
    if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
    return {OutcomeOf(size)};
  }
  bool MayHoldMore() const override { return true; }
  Result Write(absl::string_view bytes) override {
    ERR_clear_error();
    const int size = SSL_write(ssl_.get(), bytes.data(),
                               static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)));
    if (size > 0) return {Outcome::kDone, static_cast<size_t>(size)};
    return {OutcomeOf(size)};
  }
  void EndSending() override {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // "close notify"
    ERR_clear_error();
    shutdown(socket_, SHUT_WR);
  }

 private:
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
};

}  // namespace

std::unique_ptr<ByteStream> MakePlainStream(int socket) {
  return std::make_unique<PlainStream>(socket);
}

std::unique_ptr<ByteStream> MakeTlsStream(int socket, ssl_ctx_st* context, AlpnOffer offer) {
  std::unique_ptr<SSL, SslFree> ssl(SSL_new(context));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket) != 1) return nullptr;
  SSL_set_mode(ssl.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  OfferProtocols(ssl.get(), offer);
  return std::make_unique<TlsStream>(socket, std::move(ssl));
}

}  // namespace sru::server::transport
