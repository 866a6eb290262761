#include "client/channel_security.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/status.h"
#include "client/read_file.h"
#include "grpcpp/security/credentials.h"

namespace sru::client {
namespace {

// Where Debian, Ubuntu and Alpine keep the authorities that the system trusts.
constexpr char kSystemAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";
constexpr absl::Duration kTokenReadInterval = absl::Seconds(10);

bool IsNear(absl::string_view address) {
  const std::optional<HostPort> host = SplitHostPort(address);
  return host.has_value() && IsLoopback(std::string(host->host));
}

absl::StatusOr<std::string> ReadContents(absl::string_view option, const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(option, path);
  if (bytes.ok() && bytes->empty()) return InvalidArgument(option, ": ", path, " is empty");
  return bytes;
}

// The token without the spaces around it.
absl::StatusOr<std::string> CheckToken(absl::string_view option, absl::string_view text) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (!token.empty() && std::all_of(token.begin(), token.end(), visible)) {
    return std::string(token);
  }
  return InvalidArgument(option, ": expected one token of visible ASCII characters");
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  SRU_ASSIGN_OR_RETURN(const std::string text, ReadContents("token_file", path));
  return CheckToken(absl::StrCat("token_file: ", path), text);
}

struct OpenSslFree {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

Owned<BIO> ReadFrom(absl::string_view pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// The first certificate; null if there is none.
Owned<X509> ReadCertificate(absl::string_view pem) {
  return Owned<X509>(PEM_read_bio_X509(ReadFrom(pem).get(), nullptr, nullptr, nullptr));
}

// Null if there is no key, or one with a passphrase: OpenSSL must not ask for it.
Owned<EVP_PKEY> ReadKey(absl::string_view pem) {
  const auto no_passphrase = [](char* /*buffer*/, int /*size*/, int /*writing*/, void* /*asked*/) {
    return -1;
  };
  return Owned<EVP_PKEY>(
      PEM_read_bio_PrivateKey(ReadFrom(pem).get(), nullptr, no_passphrase, nullptr));
}

// gRPC would only say that the handshake failed. kInvalidArgument names the option: OpenSSL can
// read nothing of a file, or the key does not belong to its certificate. Empty = not given.
absl::Status CheckPem(const grpc::SslCredentialsOptions& files) {
  for (const auto& [option, pem] :
       {std::pair{"tls_ca", &files.pem_root_certs}, std::pair{"tls_cert", &files.pem_cert_chain}}) {
    if (pem->empty() || ReadCertificate(*pem) != nullptr) continue;
    return InvalidArgument(option,
                           ": expected PEM certificates (-----BEGIN CERTIFICATE-----), found none "
                           "that can be read");
  }
  if (files.pem_private_key.empty()) return absl::OkStatus();
  const Owned<EVP_PKEY> key = ReadKey(files.pem_private_key);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "tls_key: expected a PEM private key (-----BEGIN PRIVATE KEY-----) without a passphrase, "
        "found none that can be read");
  }
  if (X509_check_private_key(ReadCertificate(files.pem_cert_chain).get(), key.get()) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "tls_key: expected the key of the first certificate in tls_cert, found another key");
}

}  // namespace

bool StaysOnThisMachine(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) return true;
  if (absl::ConsumePrefix(&target, "dns:")) {
    absl::ConsumePrefix(&target, "///");
    return IsNear(target);
  }
  if (!absl::ConsumePrefix(&target, "ipv4:") && !absl::ConsumePrefix(&target, "ipv6:")) {
    return IsNear(target);
  }
  const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
  return std::all_of(addresses.begin(), addresses.end(), IsNear);
}

bool WantsTls(const ConnectOptions& options) {
  return options.tls || !options.tls_ca.empty() || !options.tls_cert.empty() ||
         !options.tls_key.empty() || !options.tls_server_name.empty();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const ConnectOptions& options) {
  if (!WantsTls(options)) return grpc::InsecureChannelCredentials();
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return InvalidArgument(options.tls_cert.empty()
                               ? "tls_cert: expected the certificate of tls_key"
                               : "tls_key: expected the key of tls_cert",
                           ", found nothing");
  }
  grpc::SslCredentialsOptions ssl;
  for (const auto& [option, path, pem] :
       {std::tuple{"tls_ca", options.tls_ca.empty() ? kSystemAuthorities : options.tls_ca,
                   &ssl.pem_root_certs},
        std::tuple{"tls_cert", options.tls_cert, &ssl.pem_cert_chain},
        std::tuple{"tls_key", options.tls_key, &ssl.pem_private_key}}) {
    if (path.empty()) continue;
    SRU_ASSIGN_OR_RETURN(*pem, ReadContents(option, path));
  }
  const absl::Status status = CheckPem(ssl);
  ERR_clear_error();
  if (!status.ok()) return status;
  return grpc::SslCredentials(ssl);
}

absl::StatusOr<std::shared_ptr<ssl_ctx_st>> MakeTlsContext(const ConnectOptions& options) {
  SRU_RETURN_UNLESS_OK(MakeChannelCredentials(options).status());  // the files are right
  if (!WantsTls(options)) return std::shared_ptr<ssl_ctx_st>();
  std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::string& authorities = options.tls_ca.empty() ? kSystemAuthorities : options.tls_ca;
  const std::string &certificate = options.tls_cert, &key = options.tls_key;
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_load_verify_file(context.get(), authorities.c_str()) != 1 ||
      SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2)) != 0 ||
      (!key.empty() &&
       (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1))) {
    return InvalidArgument("tls_ca, tls_cert, tls_key: ", ERR_reason_error_string(ERR_get_error()));
  }
  return context;
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const ConnectOptions& options) {
  const bool in_file = !options.token_file.empty();
  if (!in_file && options.token.empty()) return std::unique_ptr<TokenFile>();
  if (in_file && !options.token.empty()) {
    return absl::InvalidArgumentError("token: expected no token beside token_file");
  }
  if (!WantsTls(options) && !options.token_without_tls && !StaysOnThisMachine(options.address)) {
    return InvalidArgument(in_file ? "token_file" : "token",
                           ": the token would cross the network in the clear; expected tls, or, "
                           "in a program, token_without_tls where something else encrypts");
  }
  SRU_ASSIGN_OR_RETURN(std::string token, in_file ? ReadToken(options.token_file)
                                                  : CheckToken("token", options.token));
  return std::unique_ptr<TokenFile>(new TokenFile(options.token_file, std::move(token)));
}

TokenFile::TokenFile(std::string path, std::string token)
    : path_(std::move(path)),
      token_(std::move(token)),
      next_read_(absl::Now() + kTokenReadInterval) {}

std::string TokenFile::Authorization() {
  const absl::Time now = absl::Now();
  MutexLock lock(&mutex_);
  if (!path_.empty() && now >= next_read_) {
    next_read_ = now + kTokenReadInterval;
    if (absl::StatusOr<std::string> token = ReadToken(path_); token.ok()) {
      token_ = *std::move(token);
    }
  }
  return absl::StrCat("Bearer ", token_);
}

}  // namespace sru::client
