#include "server/transport/credentials.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/base/log.h"
#include "server/transport/auth_tokens.h"
#include "server/transport/expiry_notices.h"

namespace sru::server::transport {

namespace {

// The tokens of one file. Null until Use(), and for good where tokens are off. Thread-safe.
class ServedTokens {
 public:
  std::shared_ptr<const TokenSet> Get() const {
    MutexLock lock(&mutex_);
    return tokens_;
  }

  void Use(TokenSet newer) {
    auto set = std::make_shared<const TokenSet>(std::move(newer));
    MutexLock lock(&mutex_);
    tokens_ = std::move(set);
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const TokenSet> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

// The ports of one Credentials share this with it.
struct Credentials::Shared {
  // Constant once made.
  SecurityMetrics* metrics = nullptr;
  telemetry::AccessLog* access_log = nullptr;
  bool auth_health = false;
  std::function<void()> on_change;

  // Thread-safe by themselves.
  ServedTokens tokens;
  ServedTokens admin_tokens;  // only where the admin port has its own

  void Use(const TlsCertificates& newer) {
    metrics->SetCertificateExpiry(newer.not_after);
    auto files = std::make_shared<const TlsPem>(newer.pem);
    MutexLock lock(&mutex);
    tls_context = newer.context;
    tls_files = std::move(files);
  }

  Mutex mutex;
  // Null without TLS.
  std::shared_ptr<ssl_ctx_st> tls_context ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const TlsPem> tls_files ABSL_GUARDED_BY(mutex);
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

const char* Refuse(const Credentials::Shared& shared, const Refusal& refusal,
                   absl::string_view method, const telemetry::CallHeaders& headers,
                   absl::string_view peer, absl::string_view certificate) {
  shared.metrics->OnAuthFailure(refusal.failure);
  shared.access_log->OnAuthenticationFailure(method, AuthFailureName(refusal.failure), headers,
                                             peer, certificate);
  return refusal.text;
}

bool NeedsToken(const Credentials::Shared& shared, absl::string_view path) {
  return shared.auth_health || !absl::StartsWith(path, kHealthPath);
}

// Decides on one call by its headers; null when it may go on.
const char* CheckCall(const Credentials::Shared& shared, const ServedTokens& tokens,
                      const CallToCheck& call) {
  if (!NeedsToken(shared, call.path)) return nullptr;
  const std::optional<Refusal> refusal =
      JudgeToken(*tokens.Get(), call.authorizations, call.headers.authorization);
  if (!refusal.has_value()) return nullptr;
  return Refuse(shared, *refusal, call.path, call.headers, call.peer, call.certificate());
}

// An error of a file, with the flag that names it in front.
absl::Status FileError(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

absl::StatusOr<TlsCertificates> CheckContents(const FileWatcher::Contents& contents,
                                              const Clock& clock) {
  if (!contents.ok()) return contents.status();
  return CheckTlsCertificates({(*contents)[0], (*contents)[1], (*contents)[2]}, clock.WallNow());
}

absl::StatusOr<TokenSet> ParseTokens(const char* flag, const FileWatcher::Contents& contents) {
  if (!contents.ok()) return FileError(flag, contents.status());
  return TokenSet::Parse((*contents)[0], absl::StrCat("--", flag));
}

std::string Describe(const TokenSet& tokens) {
  return absl::StrCat(tokens.size(), tokens.size() == 1 ? " token" : " tokens");
}

void WarnOfShortTokens(const char* flag, const TokenSet& tokens) {
  if (tokens.num_short() == 0) return;
  LogWarning(absl::StrCat("--", flag, ": ", tokens.num_short(),
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

void SayWhatIsDue(ExpiryNotices* expiry, const Clock& clock) {
  if (const auto notice = expiry->Look(clock.WallNow()); notice.has_value()) {
    Log(notice->level, notice->text);
  }
}

// Reads the file of a flag and keeps `tokens`, a part of `shared`, as it is. `what` stands in the
// log.
absl::Status WatchTokens(const char* flag, const char* what,
                         const std::shared_ptr<Credentials::Shared>& shared,
                         const std::string& path, ServedTokens* tokens, FileWatcher* watcher) {
  FileWatcher::Contents contents = ReadFiles({path});
  absl::StatusOr<TokenSet> known = ParseTokens(flag, contents);
  if (!known.ok()) return known.status();
  LogInfo(absl::StrCat(what, ": ", Describe(*known)));
  WarnOfShortTokens(flag, *known);
  tokens->Use(*std::move(known));
  watcher->Watch(
      [path] { return ReadFiles({path}); }, std::move(contents),
      [shared, flag, what, tokens](const FileWatcher::Contents& changed) {
        absl::StatusOr<TokenSet> newer = ParseTokens(flag, changed);
        shared->metrics->OnTokensReload(newer.ok());
        if (!newer.ok()) {
          LogError(absl::StrCat("the file of tokens changed but the earlier ones stay in use: ",
                                newer.status().message()));
          return;
        }
        LogInfo(absl::StrCat(what, ": now ", Describe(*newer)));
        WarnOfShortTokens(flag, *newer);
        tokens->Use(*std::move(newer));
        shared->on_change();
      });
  return absl::OkStatus();
}

}  // namespace

Credentials::Credentials(const SecurityOptions& options, std::shared_ptr<Shared> shared)
    : options_(options), shared_(std::move(shared)), watcher_(options.poll_interval) {}

Credentials::~Credentials() = default;

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(const SecurityOptions& options,
                                                                 SecurityMetrics* metrics,
                                                                 telemetry::AccessLog* access_log,
                                                                 const Clock* clock,
                                                                 std::function<void()> on_change) {
  if (absl::Status status = ValidateSecurityOptions(options); !status.ok()) return status;
  auto shared = std::make_shared<Shared>();
  shared->metrics = metrics;
  shared->access_log = access_log;
  shared->auth_health = options.auth_health;
  shared->on_change = on_change == nullptr ? [] {} : std::move(on_change);
  std::unique_ptr<Credentials> credentials(new Credentials(options, shared));

  if (options.has_tls()) {
    FileWatcher::Contents contents = ReadTlsFiles(options);
    absl::StatusOr<TlsCertificates> certificates = CheckContents(contents, *clock);
    if (!certificates.ok()) return certificates.status();
    LogInfo(absl::StrCat("TLS: ", Describe(*certificates)));
    shared->Use(*certificates);
    auto expiry = std::make_shared<ExpiryNotices>();
    expiry->Watch(certificates->subject, certificates->not_after);
    SayWhatIsDue(expiry.get(), *clock);
    credentials->watcher_.EachLook([expiry, clock] { SayWhatIsDue(expiry.get(), *clock); });
    credentials->watcher_.Watch(
        [options] { return ReadTlsFiles(options); }, std::move(contents),
        [shared, clock, expiry,
         used = *std::move(certificates)](const FileWatcher::Contents& changed) mutable {
          absl::StatusOr<TlsCertificates> newer = CheckContents(changed, *clock);
          shared->metrics->OnTlsReload(newer.ok());
          if (!newer.ok()) {
            LogError(absl::StrCat("TLS files changed but the earlier ones stay in use: ",
                                  newer.status().message()));
            return;
          }
          shared->Use(*newer);
          LogInfo(absl::StrCat("TLS: ", DescribeChange(used, *newer)));
          if (newer->pem.certificate != used.pem.certificate) {
            expiry->Watch(newer->subject, newer->not_after);
          }
          used = *std::move(newer);
          shared->on_change();
        });
  }
  if (options.has_tokens()) {
    absl::Status status =
        WatchTokens("auth_tokens_file", "authentication", shared, options.auth_tokens_file,
                    &shared->tokens, &credentials->watcher_);
    if (!status.ok()) return status;
  }
  if (!options.admin_tokens_file.empty()) {
    absl::Status status =
        WatchTokens("admin_tokens_file", "authentication of the admin port", shared,
                    options.admin_tokens_file, &shared->admin_tokens, &credentials->watcher_);
    if (!status.ok()) return status;
  }
  credentials->watcher_.Start();
  return credentials;
}

CallCheck Credentials::CheckForListener() const {
  if (!options_.has_tokens()) return nullptr;
  return [shared = shared_](const CallToCheck& call) {
    return CheckCall(*shared, shared->tokens, call);
  };
}

CallCheck Credentials::CheckForAdminListener() const {
  if (options_.admin_tokens_file.empty()) return CheckForListener();
  return [shared = shared_](const CallToCheck& call) {
    return CheckCall(*shared, shared->admin_tokens, call);
  };
}

std::shared_ptr<ssl_ctx_st> Credentials::TlsContext() const {
  MutexLock lock(&shared_->mutex);
  return shared_->tls_context;
}

std::shared_ptr<const TlsPem> Credentials::TlsFiles() const {
  MutexLock lock(&shared_->mutex);
  return shared_->tls_files;
}

absl::Status Credentials::CheckToken(absl::string_view method,
                                     const telemetry::CallHeaders& headers,
                                     absl::string_view peer) const {
  const std::shared_ptr<const TokenSet> tokens = shared_->tokens.Get();
  if (tokens == nullptr || !NeedsToken(*shared_, method)) return absl::OkStatus();
  const std::optional<Refusal> refusal =
      JudgeToken(*tokens, headers.authorization.empty() ? 0 : 1, headers.authorization);
  if (!refusal.has_value()) return absl::OkStatus();
  return absl::UnauthenticatedError(
      Refuse(*shared_, *refusal, method, headers, peer, /*certificate=*/""));
}

std::string Credentials::CallerName(absl::string_view authorization) const {
  const absl::string_view token = BearerToken(authorization);
  if (token.empty()) return "";
  for (const ServedTokens* file : {&shared_->tokens, &shared_->admin_tokens}) {
    const std::shared_ptr<const TokenSet> tokens = file->Get();
    const std::string* name = tokens == nullptr ? nullptr : tokens->Find(token);
    if (name != nullptr) return *name;
  }
  return "";
}

std::string Credentials::CallerId(absl::string_view authorization) const {
  const absl::string_view token = BearerToken(authorization);
  const std::shared_ptr<const TokenSet> tokens = shared_->tokens.Get();
  return token.empty() || tokens == nullptr ? "" : tokens->CallerId(token);
}

}  // namespace sru::server::transport
