#include "server/transport/credentials.h"

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/telemetry/request_id.h"
#include "server/telemetry/trace_context.h"
#include "server/transport/auth_tokens.h"
#include "server/transport/tls_certificates.h"

namespace sru::server {

// What the listeners of one Credentials share with it, and with gRPC's threads.
struct Credentials::Shared {
  SecurityMetrics* metrics = nullptr;
  AccessLog* access_log = nullptr;
  bool auth_health = false;
  bool wants_client_certificate = false;

  mutable Mutex mutex;
  TlsCertificates certificates ABSL_GUARDED_BY(mutex);
  // Counts the certificates that were taken into use, so that a listener knows whether it has the
  // newest. Read without the lock.
  std::atomic<int64_t> generation{0};
  std::shared_ptr<const TokenSet> tokens ABSL_GUARDED_BY(mutex);

  std::shared_ptr<const TokenSet> Tokens() const {
    MutexLock lock(&mutex);
    return tokens;
  }

  void Use(TlsCertificates newer) {
    metrics->SetCertificateExpiry(newer.not_after);
    MutexLock lock(&mutex);
    certificates = std::move(newer);
    ++generation;
  }

  void Use(TokenSet newer) {
    auto set = std::make_shared<const TokenSet>(std::move(newer));
    MutexLock lock(&mutex);
    tokens = std::move(set);
  }
};

namespace {

constexpr absl::string_view kHealthPath = "/grpc.health.v1.Health/";

struct Refusal {
  AuthFailure failure;
  const char* text;
};

// Nothing when the caller may go on. `authorizations`: how many headers of that name there are.
std::optional<Refusal> JudgeToken(const TokenSet& tokens, int authorizations,
                                  absl::string_view authorization) {
  if (authorizations == 0) {
    return Refusal{AuthFailure::kMissing,
                   "authorization: expected the header 'authorization: Bearer TOKEN', found none"};
  }
  const absl::string_view token =
      authorizations == 1 ? BearerToken(authorization) : absl::string_view();
  if (token.empty()) {
    return Refusal{
        AuthFailure::kMalformed,
        "authorization: expected one header 'authorization: Bearer TOKEN', found another form"};
  }
  if (tokens.Find(token) != nullptr) return std::nullopt;
  return Refusal{AuthFailure::kUnknown,
                 "authorization: the token is not one that this server knows"};
}

// What gRPC's callbacks of one listener are given. Lives as long as gRPC's credentials.
struct ListenerState {
  std::shared_ptr<const Credentials::Shared> shared;
  int64_t generation = 0;  // of the certificates that gRPC has; gRPC calls one at a time
};

// gRPC asks, before each handshake, for certificates that are newer than those it has.
grpc_ssl_certificate_config_reload_status FetchCertificates(
    void* user_data, grpc_ssl_server_certificate_config** config) {
  auto* state = static_cast<ListenerState*>(user_data);
  const Credentials::Shared& shared = *state->shared;
  if (state->generation == shared.generation.load(std::memory_order_acquire)) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  MutexLock lock(&shared.mutex);
  const TlsPem& pem = shared.certificates.pem;
  const grpc_ssl_pem_key_cert_pair pair = {pem.key.c_str(), pem.certificate.c_str()};
  // gRPC 1.51 insists on authorities even where it asks for no client certificate and so never uses
  // them; any certificate does.
  const std::string& authorities = pem.client_ca.empty() ? pem.certificate : pem.client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  state->generation = shared.generation.load(std::memory_order_relaxed);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

absl::string_view ToView(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Decides on one call by its headers. Runs on gRPC's thread and never blocks.
void CheckCall(void* user_data, grpc_auth_context* /*context*/, const grpc_metadata* metadata,
               size_t count, grpc_process_auth_metadata_done_cb done, void* done_data) {
  const Credentials::Shared& shared = *static_cast<ListenerState*>(user_data)->shared;
  absl::string_view path;
  CallHeaders headers;
  int authorizations = 0;
  for (size_t i = 0; i < count; ++i) {
    const absl::string_view key = ToView(metadata[i].key);
    if (key == "authorization") {
      headers.authorization = ToView(metadata[i].value);
      ++authorizations;
    } else if (key == ":path") {
      path = ToView(metadata[i].value);
    }
  }
  if (absl::StartsWith(path, kHealthPath) && !shared.auth_health) {
    done(done_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
    return;
  }
  const std::optional<Refusal> refusal =
      JudgeToken(*shared.Tokens(), authorizations, headers.authorization);
  if (!refusal.has_value()) {
    done(done_data, nullptr, 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const absl::string_view key = ToView(metadata[i].key);
    if (key == kRequestIdHeader) headers.request_id = ToView(metadata[i].value);
    if (key == kTraceparentHeader) headers.traceparent = ToView(metadata[i].value);
  }
  shared.metrics->OnAuthFailure(refusal->failure);
  shared.access_log->OnAuthenticationFailure(path, AuthFailureName(refusal->failure), headers);
  done(done_data, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED, refusal->text);
}

void DeleteListenerState(void* state) { delete static_cast<ListenerState*>(state); }

// gRPC's C++ library has no server credentials whose certificates its user can replace, nor
// insecure ones that look at metadata; its core has both.
class CoreServerCredentials final : public grpc::ServerCredentials {
 public:
  // Takes `credentials` over.
  explicit CoreServerCredentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  CoreServerCredentials(const CoreServerCredentials&) = delete;
  CoreServerCredentials& operator=(const CoreServerCredentials&) = delete;
  ~CoreServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {
    // Tokens are this file's business.
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

// An error of a file, with the flag that names it in front.
absl::Status FileError(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

absl::StatusOr<TlsCertificates> CheckContents(const FileWatcher::Contents& contents) {
  if (!contents.ok()) return contents.status();
  return CheckTlsCertificates({(*contents)[0], (*contents)[1], (*contents)[2]}, absl::Now());
}

absl::StatusOr<TokenSet> ParseTokens(const FileWatcher::Contents& contents) {
  if (!contents.ok()) return FileError("auth_tokens_file", contents.status());
  return TokenSet::Parse((*contents)[0], "--auth_tokens_file");
}

std::string Describe(const TlsCertificates& certificates, bool mutual) {
  return absl::StrCat(
      "certificate of ", certificates.subject, ", valid until ",
      absl::FormatTime(absl::RFC3339_sec, certificates.not_after, absl::UTCTimeZone()),
      mutual ? ", clients must show a certificate" : "");
}

std::string Describe(const TokenSet& tokens) {
  return absl::StrCat(tokens.size(), tokens.size() == 1 ? " token" : " tokens");
}

void WarnOfShortTokens(const TokenSet& tokens) {
  if (tokens.num_short() == 0) return;
  LogWarning(absl::StrCat("--auth_tokens_file: ", tokens.num_short(),
                          " of the tokens have less than 16 characters and could be guessed; make "
                          "better ones with `openssl rand -base64 32`"));
}

// Read one by one, so that the error names the flag.
FileWatcher::Contents ReadTlsFiles(const SecurityOptions& options) {
  std::vector<std::string> contents;
  for (const auto& [flag, path] :
       {std::pair{"tls_cert", &options.tls_cert}, std::pair{"tls_key", &options.tls_key},
        std::pair{"tls_client_ca", &options.tls_client_ca}}) {
    FileWatcher::Contents one = ReadFiles({*path});
    if (!one.ok()) return FileError(flag, one.status());
    if (!path->empty() && one->front().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": expected PEM, found an empty file '", *path, "'"));
    }
    contents.push_back(std::move(one->front()));
  }
  return contents;
}

}  // namespace

Credentials::Credentials(const SecurityOptions& options, std::shared_ptr<Shared> shared)
    : options_(options), shared_(std::move(shared)), watcher_(options.poll_interval) {}

Credentials::~Credentials() = default;

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(const SecurityOptions& options,
                                                                 SecurityMetrics* metrics,
                                                                 AccessLog* access_log) {
  if (absl::Status status = ValidateSecurityOptions(options); !status.ok()) return status;
  auto shared = std::make_shared<Shared>();
  shared->metrics = metrics;
  shared->access_log = access_log;
  shared->auth_health = options.auth_health;
  shared->wants_client_certificate = !options.tls_client_ca.empty();
  std::unique_ptr<Credentials> credentials(new Credentials(options, shared));

  if (options.has_tls()) {
    FileWatcher::Contents contents = ReadTlsFiles(options);
    absl::StatusOr<TlsCertificates> certificates = CheckContents(contents);
    if (!certificates.ok()) return certificates.status();
    const bool mutual = shared->wants_client_certificate;
    LogInfo(absl::StrCat("TLS: ", Describe(*certificates, mutual)));
    shared->Use(*std::move(certificates));
    credentials->watcher_.Watch(
        [options] { return ReadTlsFiles(options); }, std::move(contents),
        [shared, mutual](const FileWatcher::Contents& changed) {
          absl::StatusOr<TlsCertificates> newer = CheckContents(changed);
          shared->metrics->OnTlsReload(newer.ok());
          if (!newer.ok()) {
            LogError(absl::StrCat("TLS files changed but the earlier ones stay in use: ",
                                  newer.status().message()));
            return;
          }
          LogInfo(absl::StrCat("TLS: new ", Describe(*newer, mutual)));
          shared->Use(*std::move(newer));
        });
  }
  if (options.has_tokens()) {
    FileWatcher::Contents contents = ReadFiles({options.auth_tokens_file});
    absl::StatusOr<TokenSet> tokens = ParseTokens(contents);
    if (!tokens.ok()) return tokens.status();
    LogInfo(absl::StrCat("authentication: ", Describe(*tokens)));
    WarnOfShortTokens(*tokens);
    shared->Use(*std::move(tokens));
    credentials->watcher_.Watch(
        [path = options.auth_tokens_file] { return ReadFiles({path}); }, std::move(contents),
        [shared](const FileWatcher::Contents& changed) {
          absl::StatusOr<TokenSet> newer = ParseTokens(changed);
          shared->metrics->OnTokensReload(newer.ok());
          if (!newer.ok()) {
            LogError(absl::StrCat("the file of tokens changed but the earlier ones stay in use: ",
                                  newer.status().message()));
            return;
          }
          LogInfo(absl::StrCat("authentication: now ", Describe(*newer)));
          WarnOfShortTokens(*newer);
          shared->Use(*std::move(newer));
        });
  }
  credentials->watcher_.Start();
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> Credentials::ForListener() const {
  if (!options_.has_tls() && !options_.has_tokens()) return grpc::InsecureServerCredentials();
  auto* state = new ListenerState{shared_};
  grpc_server_credentials* core = nullptr;
  if (options_.has_tls()) {
    core = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            shared_->wants_client_certificate
                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            FetchCertificates, state));
  } else {
    core = grpc_insecure_server_credentials_create();
  }
  // Without a function gRPC skips the check; the state is deleted with the credentials either way.
  grpc_server_credentials_set_auth_metadata_processor(
      core, {options_.has_tokens() ? CheckCall : nullptr, DeleteListenerState, state});
  return std::make_shared<CoreServerCredentials>(core);
}

absl::Status Credentials::CheckToken(absl::string_view authorization) const {
  const std::shared_ptr<const TokenSet> tokens = shared_->Tokens();
  if (tokens == nullptr) return absl::OkStatus();
  const std::optional<Refusal> refusal =
      JudgeToken(*tokens, authorization.empty() ? 0 : 1, authorization);
  if (!refusal.has_value()) return absl::OkStatus();
  shared_->metrics->OnAuthFailure(refusal->failure);
  return absl::UnauthenticatedError(refusal->text);
}

std::string Credentials::CallerName(absl::string_view authorization) const {
  const std::shared_ptr<const TokenSet> tokens = shared_->Tokens();
  const absl::string_view token = BearerToken(authorization);
  if (tokens == nullptr || token.empty()) return "";
  const std::string* name = tokens->Find(token);
  return name == nullptr ? "" : *name;
}

}  // namespace sru::server
