#include "client/channel_security.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/address.h"
#include "client/tls_diagnosis.h"
#include "grpcpp/security/credentials.h"

namespace sru::client {
namespace {

// Where Debian, Ubuntu and Alpine keep the authorities that the system trusts.
constexpr char kSystemAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";
constexpr absl::Duration kTokenReadInterval = absl::Seconds(10);

absl::StatusOr<std::string> ReadFile(absl::string_view option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || bytes.empty()) {
    return InvalidArgument(option, ": cannot read '", path, "', or it is ", "empty");
  }
  return bytes;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  SRU_ASSIGN_OR_RETURN(std::string text, ReadFile("token_file", path));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
  if (token.empty() || !std::all_of(token.begin(), token.end(), visible)) {
    return InvalidArgument("token_file: expected one token of visible ASCII characters in '", path,
                           "'");
  }
  return std::string(token);
}

}  // namespace

bool WantsTls(const ConnectOptions& options) {
  return options.tls || !options.tls_ca.empty() || !options.tls_cert.empty() ||
         !options.tls_key.empty() || !options.tls_server_name.empty();
}

absl::StatusOr<TlsFiles> ReadTlsFiles(const ConnectOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return InvalidArgument(options.tls_cert.empty()
                               ? "tls_cert: expected the certificate of tls_key"
                               : "tls_key: expected the key of tls_cert",
                           ", found nothing");
  }
  TlsFiles files;
  for (const auto& [option, path, pem] :
       {std::tuple{"tls_ca", options.tls_ca.empty() ? kSystemAuthorities : options.tls_ca,
                   &files.ca},
        std::tuple{"tls_cert", options.tls_cert, &files.certificate},
        std::tuple{"tls_key", options.tls_key, &files.key}}) {
    if (path.empty()) continue;
    SRU_ASSIGN_OR_RETURN(*pem, ReadFile(option, path));
  }
  SRU_RETURN_UNLESS_OK(CheckClientPem(files.ca, files.certificate, files.key));
  return files;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const ConnectOptions& options) {
  if (!WantsTls(options)) return grpc::InsecureChannelCredentials();
  SRU_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(options));
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = std::move(files.ca);
  ssl.pem_cert_chain = std::move(files.certificate);
  ssl.pem_private_key = std::move(files.key);
  return grpc::SslCredentials(ssl);
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const ConnectOptions& options) {
  if (options.token_file.empty()) return std::unique_ptr<TokenFile>();
  if (!WantsTls(options) && !options.token_without_tls && !StaysOnThisMachine(options.address)) {
    return absl::InvalidArgumentError(
        "token_file: the token would cross the network in the clear; expected tls, or "
        "token_without_tls where something else encrypts");
  }
  SRU_ASSIGN_OR_RETURN(std::string token, ReadToken(options.token_file));
  return std::unique_ptr<TokenFile>(new TokenFile(options.token_file, std::move(token)));
}

TokenFile::TokenFile(std::string path, std::string token)
    : path_(std::move(path)),
      token_(std::move(token)),
      next_read_(absl::Now() + kTokenReadInterval) {}

std::string TokenFile::Authorization() {
  const absl::Time now = absl::Now();
  MutexLock lock(&mutex_);
  if (now >= next_read_) {
    next_read_ = now + kTokenReadInterval;
    if (absl::StatusOr<std::string> token = ReadToken(path_); token.ok()) {
      token_ = *std::move(token);
    }
  }
  return absl::StrCat("Bearer ", token_);
}

}  // namespace sru::client
