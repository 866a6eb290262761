#include "client/tls_diagnosis.h"

#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/address.h"
#include "client/channel_security.h"

namespace sru::client {
namespace {

struct OpenSslFree {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

Owned<BIO> ReadFrom(absl::string_view pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::vector<Owned<X509>> ReadCertificates(absl::string_view pem) {
  const Owned<BIO> bio = ReadFrom(pem);
  std::vector<Owned<X509>> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();
  return certificates;
}

// Null if there is no key, or one with a passphrase: OpenSSL must not ask for it.
Owned<EVP_PKEY> ReadKey(absl::string_view pem) {
  const Owned<BIO> bio = ReadFrom(pem);
  const auto no_passphrase = [](char* /*buffer*/, int /*size*/, int /*writing*/, void* /*asked*/) {
    return -1;
  };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

std::string NameOf(const X509_NAME* name) {
  char text[256] = "";
  X509_NAME_oneline(name, text, sizeof(text));
  return text;
}
std::string SubjectOf(const X509* certificate) {
  return NameOf(X509_get_subject_name(certificate));
}
std::string IssuerOf(const X509* certificate) { return NameOf(X509_get_issuer_name(certificate)); }

// Returns the text that `print` writes.
template <typename Print>
std::string Printed(const Print& print) {
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  print(out.get());
  char* text = nullptr;
  const auto size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<size_t>(size)};
}

bool HasExpired(const X509* certificate) {
  return X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}
std::string EndText(const X509* certificate) {
  return Printed([&](BIO* out) { ASN1_TIME_print(out, X509_get0_notAfter(certificate)); });
}

// The names that the certificate is for: "DNS:localhost, IP Address:127.0.0.1".
std::string HostsOf(const X509* certificate) {
  const int names = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  if (names < 0) return SubjectOf(certificate);
  return Printed([&](BIO* out) { X509V3_EXT_print(out, X509_get_ext(certificate, names), 0, 0); });
}

// Returns true if gRPC would connect to a proxy. Client::Create() forbids that for addresses of this
// machine.
bool UsesProxy(absl::string_view address) {
  if (StaysOnThisMachine(address)) return false;
  for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') return true;
  }
  return false;
}

// A socket that does not block.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// False if the deadline comes first.
bool Await(const Socket& socket, int16_t event, absl::Time deadline) {
  pollfd awaited = {socket.fd(), event, 0};
  int ready = -1;
  while (ready < 0) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    ready = poll(&awaited, 1, static_cast<int>(std::min<int64_t>(left_ms, INT_MAX)));
    if (ready < 0 && errno != EINTR) return false;
  }
  return ready > 0;
}

// Tries the addresses of the host in turn. Says why the last one failed.
absl::StatusOr<Socket> Connect(const HostPort& to, absl::Time deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found); code != 0) {
    return absl::UnavailableError(absl::StrCat("'", to.host, "': ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  absl::Status status = absl::UnknownError("no address");
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Socket connected(
        socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    int error = connect(connected.fd(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (!Await(connected, POLLOUT, deadline)) return absl::UnknownError("no answer in time");
      socklen_t size = sizeof(error);
      getsockopt(connected.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return connected;
    status = absl::UnavailableError(std::generic_category().message(error));
  }
  return status;
}

// The outcome of a handshake.
struct Outcome {
  enum class End {
    kAnswered,  // the handshake is done and the server has sent something after it
    kClosed,    // the server closed the connection without an alert
    kFailed,    // OpenSSL refused, or was refused
    kNoAnswer,  // there was no answer in time
  };
  End end = End::kNoAnswer;
  int reason = 0;                  // OpenSSL's, for kFailed
  bool wants_certificate = false;  // the server asked for a client certificate
  long verify_result = X509_V_OK;
  std::string alpn;
  Owned<X509> certificate;  // the server's, null if it sent none
};

int OnCertificateWanted(SSL* /*ssl*/, void* wanted) {
  *static_cast<bool*>(wanted) = true;
  return 1;
}

// Runs OpenSSL's own verification and keeps the certificate, which OpenSSL forgets if it refuses
// it.
int Verify(X509_STORE_CTX* verified, void* kept) {
  X509* const certificate = X509_STORE_CTX_get0_cert(verified);
  X509_up_ref(certificate);
  static_cast<Owned<X509>*>(kept)->reset(certificate);
  return X509_verify_cert(verified);
}

Outcome Handshake(SSL_CTX* context, const std::string& name, const Socket& socket,
                  absl::Time deadline) {
  Outcome outcome;
  SSL_CTX_set_cert_cb(context, OnCertificateWanted, &outcome.wants_certificate);
  SSL_CTX_set_cert_verify_callback(context, Verify, &outcome.certificate);
  const Owned<SSL> ssl(SSL_new(context));
  // The handshake is written to memory and sent from there, since OpenSSL's own sockets raise SIGPIPE.
  BIO* const outgoing = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new_socket(socket.fd(), BIO_NOCLOSE), outgoing);
  SSL_set_connect_state(ssl.get());
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
  X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(parameters, name.c_str()) != 1) {
    X509_VERIFY_PARAM_set1_host(parameters, name.c_str(), name.size());
    SSL_set_tlsext_host_name(ssl.get(), name.c_str());
  }
  int error = SSL_ERROR_WANT_READ;
  do {
    ERR_clear_error();
    // An HTTP/2 server speaks first; under TLS 1.3 it refuses a client's certificate only now.
    char byte = 0;
    error = SSL_get_error(ssl.get(), SSL_read(ssl.get(), &byte, 1));
    char* data = nullptr;
    const auto size = BIO_get_mem_data(outgoing, &data);
    if (size > 0) send(socket.fd(), data, static_cast<size_t>(size), MSG_NOSIGNAL);
    BIO_reset(outgoing);
  } while (error == SSL_ERROR_WANT_READ && Await(socket, POLLIN, deadline));
  outcome.reason = ERR_GET_REASON(ERR_peek_error());
  const bool closed = error == SSL_ERROR_ZERO_RETURN || error == SSL_ERROR_SYSCALL ||
                      outcome.reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  outcome.end = error == SSL_ERROR_NONE        ? Outcome::End::kAnswered
                : error == SSL_ERROR_WANT_READ ? Outcome::End::kNoAnswer
                : closed                       ? Outcome::End::kClosed
                                               : Outcome::End::kFailed;
  ERR_clear_error();
  outcome.verify_result = SSL_get_verify_result(ssl.get());
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl.get(), &protocol, &size);
  outcome.alpn.assign(reinterpret_cast<const char*>(protocol), size);
  return outcome;
}

// This client's side of the handshake, as the options ask for it.
struct ClientContext {
  Owned<SSL_CTX> ssl;
  std::vector<Owned<X509>> own;  // this client's certificate and those of its issuers
};

absl::StatusOr<ClientContext> MakeContext(const ConnectOptions& options) {
  SRU_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(options));
  ClientContext context;
  context.ssl.reset(SSL_CTX_new(TLS_client_method()));
  if (context.ssl == nullptr) return absl::UnknownError("OpenSSL cannot do TLS here");
  SSL_CTX_set_min_proto_version(context.ssl.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.ssl.get(), SSL_VERIFY_PEER, nullptr);
  for (const Owned<X509>& authority : ReadCertificates(files.ca)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.ssl.get()), authority.get());
  }
  context.own = ReadCertificates(files.certificate);
  if (!context.own.empty()) {
    SSL_CTX_use_certificate(context.ssl.get(), context.own.front().get());
    for (size_t i = 1; i < context.own.size(); ++i) {
      SSL_CTX_add1_chain_cert(context.ssl.get(), context.own[i].get());
    }
    const Owned<EVP_PKEY> key = ReadKey(files.key);
    if (SSL_CTX_use_PrivateKey(context.ssl.get(), key.get()) != 1) {
      const char* reason = ERR_reason_error_string(ERR_peek_last_error());
      const std::string text = absl::StrCat("tls_cert: OpenSSL does not take this client's key: ",
                                            reason == nullptr ? "no reason given" : reason);
      ERR_clear_error();
      return absl::UnavailableError(text);
    }
  }
  ERR_clear_error();
  return context;
}

// Why a server that asks for a client certificate ended the connection.
std::string WhyRefused(const std::vector<Owned<X509>>& own) {
  if (own.empty()) {
    return "the server asks for a client certificate; give one with tls_cert and tls_key";
  }
  const X509* mine = own.front().get();
  return absl::StrCat("the server does not take the certificate of tls_cert, ", SubjectOf(mine),
                      HasExpired(mine) ? absl::StrCat(", which expired at ", EndText(mine))
                                       : absl::StrCat(", issued by ", IssuerOf(own.back().get())));
}

// What is wrong with the connection to a server that is called with TLS; empty if nothing is.
std::string Judge(const Outcome& outcome, const ConnectOptions& options, const std::string& name,
                  const std::vector<Owned<X509>>& own) {
  if (outcome.end == Outcome::End::kFailed && outcome.certificate == nullptr &&
      (outcome.reason == SSL_R_WRONG_VERSION_NUMBER || outcome.reason == SSL_R_HTTP_REQUEST ||
       outcome.reason == SSL_R_PACKET_LENGTH_TOO_LONG)) {
    return "the server does not speak TLS; leave out tls and the options that begin with tls_";
  }
  if (outcome.verify_result == X509_V_ERR_HOSTNAME_MISMATCH ||
      outcome.verify_result == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return absl::StrCat("the server's certificate is for ", HostsOf(outcome.certificate.get()),
                        ", not for ", name,
                        options.tls_server_name.empty() ? "; give its name with tls_server_name"
                                                        : ", as tls_server_name has it");
  }
  if (outcome.verify_result != X509_V_OK) {
    const X509* certificate = outcome.certificate.get();
    return absl::StrCat(
        "the server's certificate, ", certificate == nullptr ? "" : SubjectOf(certificate),
        certificate == nullptr ? "" : absl::StrCat(", issued by ", IssuerOf(certificate)),
        ", is not trusted: ", X509_verify_cert_error_string(outcome.verify_result),
        outcome.verify_result == X509_V_ERR_CERT_HAS_EXPIRED && certificate != nullptr
            ? absl::StrCat(" (", EndText(certificate), ")")
            : "",
        options.tls_ca.empty() ? "; name the authorities to trust with tls_ca"
                               : "; tls_ca has no authority that vouches for it");
  }
  if (outcome.end == Outcome::End::kAnswered) {
    if (outcome.alpn == "h2") return "";
    return "the server speaks TLS but not HTTP/2, so it is no gRPC server";
  }
  if (outcome.wants_certificate) return WhyRefused(own);
  if (outcome.end == Outcome::End::kFailed) {
    const char* text = ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, outcome.reason));
    return absl::StrCat("OpenSSL says: ", text == nullptr ? "no reason given" : text);
  }
  return outcome.end == Outcome::End::kClosed
             ? "the server closed the connection"
             : "the server took the connection but does not answer";
}

// kUnavailable if a server that is called without TLS wants it.
absl::Status DiagnosePlain(const ConnectOptions& options, const HostPort& to, const Socket& socket,
                           absl::Time deadline) {
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::UnknownError("OpenSSL cannot do TLS here");
  const Outcome outcome = Handshake(context.get(), to.host, socket, deadline);
  if (outcome.certificate != nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", options.address,
                     ": the server speaks TLS; give the authority of its certificate, ",
                     IssuerOf(outcome.certificate.get()), ", with tls_ca"));
  }
  if (outcome.end == Outcome::End::kNoAnswer) {
    return absl::UnknownError("the server took the connection but does not answer");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DiagnoseConnection(const ConnectOptions& options, absl::Duration timeout) {
  const std::optional<HostPort> to = ParseHostPort(options.address);
  if (!to.has_value() || UsesProxy(options.address)) {
    return absl::UnknownError("it is not known where it goes");
  }
  const absl::Time deadline = absl::Now() + timeout;
  const absl::StatusOr<Socket> socket = Connect(*to, deadline);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(), absl::StrCat("cannot connect to ", options.address,
                                                             ": ", socket.status().message()));
  }
  if (!WantsTls(options)) return DiagnosePlain(options, *to, *socket, deadline);
  const absl::StatusOr<ClientContext> context = MakeContext(options);
  std::string why;
  if (!context.ok()) {
    if (context.status().code() != absl::StatusCode::kUnavailable) return context.status();
    why = std::string(context.status().message());
  } else {
    const std::string& name = options.tls_server_name.empty() ? to->host : options.tls_server_name;
    why =
        Judge(Handshake(context->ssl.get(), name, *socket, deadline), options, name, context->own);
  }
  if (why.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the TLS handshake with ", options.address, " failed: ", why));
}

absl::Status CheckClientPem(absl::string_view tls_ca, absl::string_view tls_cert,
                            absl::string_view tls_key) {
  for (const auto& [option, pem] : {std::pair{"tls_ca", tls_ca}, std::pair{"tls_cert", tls_cert}}) {
    if (pem.empty() || !ReadCertificates(pem).empty()) continue;
    return InvalidArgument(option,
                           ": expected PEM certificates (-----BEGIN CERTIFICATE-----), found none "
                           "that can be read");
  }
  if (tls_key.empty()) return absl::OkStatus();
  const Owned<EVP_PKEY> key = ReadKey(tls_key);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "tls_key: expected a PEM private key (-----BEGIN PRIVATE KEY-----) without a passphrase, "
        "found none that can be read");
  }
  const std::vector<Owned<X509>> chain = ReadCertificates(tls_cert);
  if (chain.empty()) return absl::OkStatus();
  const bool fits = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return InvalidArgument("tls_key: expected the key of the first certificate in tls_cert, ",
                         SubjectOf(chain.front().get()), ", found another key");
}

}  // namespace sru::client
