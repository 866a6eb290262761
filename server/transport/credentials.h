// Credentials: who may connect to the server and call it. Makes the credentials of its listeners
// from the TLS files and the file of tokens, and keeps them fresh: a thread reads the files again
// when they change. A change that does not check out leaves what is in use in use, with a log line
// and a metric. The thread also says when the certificate is about to expire (expiry_notices.h).
//
// A connection sees the newest certificates at its handshake, and none is interrupted. Tokens are
// checked for each call when its headers arrive, before any message is read and whatever the
// service or method is, existing or not; handlers see only calls that passed.
//
// Thread-safe. The clock must outlive the object, the metrics, the log and the callers the ports
// that use the credentials.
#ifndef SRU_SERVER_TRANSPORT_CREDENTIALS_H_
#define SRU_SERVER_TRANSPORT_CREDENTIALS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/file_watcher.h"
#include "server/callers/callers.h"
#include "server/telemetry/access_log.h"
#include "server/transport/call_check.h"
#include "server/transport/security_metrics.h"
#include "server/transport/security_options.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::transport {

// What Create() would refuse: of the TLS files, of each file of tokens. Nothing if all are right.
std::vector<absl::Status> CheckCredentialFiles(const SecurityOptions& options, const Clock& clock);

class Credentials {
 public:
  // Reads and checks the files, starts watching them. Errors name the flag, what was expected and
  // what was found. `on_change` runs on the thread when other tokens or certificates have come into
  // use, so that who is no longer known can be shown out; it may be null.
  static absl::StatusOr<std::unique_ptr<Credentials>> Create(
      const SecurityOptions& options, callers::Callers* callers, SecurityMetrics* metrics,
      telemetry::AccessLog* access_log, const Clock* clock, std::function<void()> on_change);
  ~Credentials();

  // The check that a port makes of each call. May outlive this object, and asks `needs_token`
  // unless --auth_health says that all methods do. The admin port may have tokens of its own, and
  // its callers have names and no limits; its check is null where there are none.
  CallCheck CheckForListener(NeedsToken needs_token) const;
  CallCheck CheckForAdminListener(NeedsToken needs_token) const;

  // For a connection that has just come: OpenSSL's context with the newest certificates, or the
  // files that it was made from; null without TLS.
  std::shared_ptr<ssl_ctx_st> TlsContext() const;
  std::shared_ptr<const TlsPem> TlsFiles() const;

  // One look at the files, as the thread does it. For tests.
  void Poll() { watcher_.Poll(); }

  // Lets the thread look at the files at once. Thread-safe.
  void LookNow() { watcher_.LookNow(); }

  struct Shared;  // what ports use; in credentials.cc

 private:
  Credentials(const SecurityOptions& options, std::shared_ptr<Shared> shared);

  const SecurityOptions options_;
  const std::shared_ptr<Shared> shared_;
  FileWatcher watcher_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_CREDENTIALS_H_
