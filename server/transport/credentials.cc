#include "server/transport/credentials.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
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
  callers::Callers* callers = nullptr;
  std::unique_ptr<callers::Callers> admin_callers;  // of the admin port, where they have names only
  bool auth_health = false;
  callers::TrustedProxies trusted_proxies;
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

struct Refusal {
  AuthFailure failure;
  const char* text;
};

// Nothing when the caller may go on, who is `*owner` then. `authorizations`: how many headers of
// that name there are.
std::optional<Refusal> JudgeToken(const TokenSet& tokens, int authorizations,
                                  absl::string_view authorization, const TokenSet::Owner** owner) {
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
  *owner = tokens.Find(token);
  if (*owner != nullptr) return std::nullopt;
  return Refusal{AuthFailure::kUnknown,
                 "authorization: the token is not one that this server knows"};
}

const char* Refuse(const Credentials::Shared& shared, const Refusal& refusal,
                   absl::string_view method, const telemetry::CallHeaders& headers,
                   absl::string_view peer, absl::string_view certificate) {
  shared.metrics->OnAuthFailure(refusal.failure);
  shared.access_log->OnAuthenticationFailure(
      method, kAuthFailureNames[static_cast<size_t>(refusal.failure)], headers, peer, certificate);
  return refusal.text;
}

// Who calls without a token.
callers::CallerPtr CallerWithoutToken(const Credentials::Shared& shared, const CallToCheck& call) {
  const callers::TrustedProxies& proxies = shared.trusted_proxies;
  const std::string address = proxies.CallerAddress(call.peer, call.x_forwarded_for);
  // The certificate of a trusted proxy is not that of who calls through it.
  if (call.certificate != nullptr && (call.x_forwarded_for.empty() || !proxies.Trusts(call.peer))) {
    const std::string subject = call.certificate();
    if (!subject.empty()) return shared.callers->ByCertificate(subject);
  }
  return shared.callers->ByAddress(address);
}

// Decides on one call by its headers.
CallVerdict CheckCall(const Credentials::Shared& shared, const ServedTokens& tokens,
                      const NeedsToken& needs_token, const CallToCheck& call) {
  const std::shared_ptr<const TokenSet> set = tokens.Get();
  if (!shared.auth_health && !needs_token(call.path)) return {};
  if (set == nullptr) return {nullptr, CallerWithoutToken(shared, call)};
  const TokenSet::Owner* owner = nullptr;
  const std::optional<Refusal> refusal =
      JudgeToken(*set, call.authorizations, call.headers.authorization, &owner);
  if (!refusal.has_value()) return {nullptr, owner->caller};
  return {Refuse(shared, *refusal, call.path, call.headers, call.peer,
                 call.certificate == nullptr ? "" : call.certificate()),
          nullptr};
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
                         const std::string& path, ServedTokens* tokens, callers::Callers* callers,
                         FileWatcher* watcher) {
  FileWatcher::Contents contents = ReadFiles({path});
  absl::StatusOr<TokenSet> known = ParseTokens(flag, contents);
  if (!known.ok()) return known.status();
  LogInfo(absl::StrCat(what, ": ", Describe(*known)));
  WarnOfShortTokens(flag, *known);
  known->Register(callers);
  tokens->Use(*std::move(known));
  watcher->Watch(
      [path] { return ReadFiles({path}); }, std::move(contents),
      [shared, flag, what, tokens, callers](const FileWatcher::Contents& changed) {
        absl::StatusOr<TokenSet> newer = ParseTokens(flag, changed);
        shared->metrics->OnTokensReload(newer.ok());
        if (!newer.ok()) {
          LogError(absl::StrCat("the file of tokens changed but the earlier ones stay in use: ",
                                newer.status().message()));
          return false;
        }
        LogInfo(absl::StrCat(what, ": now ", Describe(*newer)));
        WarnOfShortTokens(flag, *newer);
        newer->Register(callers);
        tokens->Use(*std::move(newer));
        shared->on_change();
        return true;
      });
  return absl::OkStatus();
}

}  // namespace

std::vector<absl::Status> CheckCredentialFiles(const SecurityOptions& options, const Clock& clock) {
  std::vector<absl::Status> errors;
  if (options.has_tls()) {
    errors.push_back(CheckContents(ReadTlsFiles(options), clock).status());
  }
  for (const auto& [flag, path] : {std::pair{"auth_tokens_file", &options.auth_tokens_file},
                                   std::pair{"admin_tokens_file", &options.admin_tokens_file}}) {
    if (!path->empty()) errors.push_back(ParseTokens(flag, ReadFiles({*path})).status());
  }
  errors.erase(std::remove(errors.begin(), errors.end(), absl::OkStatus()), errors.end());
  return errors;
}

Credentials::Credentials(const SecurityOptions& options, std::shared_ptr<Shared> shared)
    : options_(options), shared_(std::move(shared)), watcher_(options.poll_interval) {}

Credentials::~Credentials() = default;

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Create(
    const SecurityOptions& options, callers::Callers* callers, SecurityMetrics* metrics,
    telemetry::AccessLog* access_log, const Clock* clock, std::function<void()> on_change) {
  if (absl::Status status = ValidateSecurityOptions(options); !status.ok()) return status;
  auto shared = std::make_shared<Shared>();
  shared->metrics = metrics;
  shared->access_log = access_log;
  shared->callers = callers;
  shared->admin_callers = std::make_unique<callers::Callers>(callers::CallerLimits(), clock);
  shared->auth_health = options.auth_health;
  shared->trusted_proxies = options.trusted_proxies;
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
            return false;
          }
          shared->Use(*newer);
          LogInfo(absl::StrCat("TLS: ", DescribeChange(used, *newer)));
          if (newer->pem.certificate != used.pem.certificate) {
            expiry->Watch(newer->subject, newer->not_after);
          }
          used = *std::move(newer);
          shared->on_change();
          return true;
        });
  }
  if (options.has_tokens()) {
    absl::Status status =
        WatchTokens("auth_tokens_file", "authentication", shared, options.auth_tokens_file,
                    &shared->tokens, callers, &credentials->watcher_);
    if (!status.ok()) return status;
  }
  if (!options.admin_tokens_file.empty()) {
    absl::Status status = WatchTokens("admin_tokens_file", "authentication of the admin port",
                                      shared, options.admin_tokens_file, &shared->admin_tokens,
                                      shared->admin_callers.get(), &credentials->watcher_);
    if (!status.ok()) return status;
  }
  credentials->watcher_.Start();
  return credentials;
}

CallCheck Credentials::CheckForListener(NeedsToken needs_token) const {
  return [shared = shared_, needs_token = std::move(needs_token)](const CallToCheck& call) {
    return CheckCall(*shared, shared->tokens, needs_token, call);
  };
}

CallCheck Credentials::CheckForAdminListener(NeedsToken needs_token) const {
  if (!options_.has_admin_tokens()) return nullptr;
  const bool own = !options_.admin_tokens_file.empty();
  return [shared = shared_, own, needs_token = std::move(needs_token)](const CallToCheck& call) {
    CallVerdict verdict =
        CheckCall(*shared, own ? shared->admin_tokens : shared->tokens, needs_token, call);
    if (verdict.caller != nullptr) {
      verdict.caller =
          shared->admin_callers->WithLimits(verdict.caller->id(), verdict.caller->name(), {});
    }
    return verdict;
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

}  // namespace sru::server::transport
