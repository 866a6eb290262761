#include "client/channel_security.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/address.h"
#include "client/read_file.h"
#include "client/tls_diagnosis.h"
#include "grpcpp/security/credentials.h"

namespace sru::client {
namespace {

// Where Debian, Ubuntu and Alpine keep the authorities that the system trusts.
constexpr char kSystemAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";
constexpr absl::Duration kTokenReadInterval = absl::Seconds(10);

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
    SRU_ASSIGN_OR_RETURN(*pem, ReadContents(option, path));
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
  const bool in_file = !options.token_file.empty();
  if (!in_file && options.token.empty()) return std::unique_ptr<TokenFile>();
  if (in_file && !options.token.empty()) {
    return absl::InvalidArgumentError("token: expected no token beside token_file");
  }
  if (!WantsTls(options) && !options.token_without_tls && !StaysOnThisMachine(options.address)) {
    return InvalidArgument(in_file ? "token_file" : "token",
                           ": the token would cross the network in the clear; expected tls, or "
                           "token_without_tls where something else encrypts");
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
