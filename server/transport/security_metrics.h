// What Prometheus is told of TLS, tokens and connections that were turned away. The series exist
// from the start, so that an alert sees the first increase. Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_SECURITY_METRICS_H_
#define SRU_SERVER_TRANSPORT_SECURITY_METRICS_H_

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "server/transport/reason_counters.h"

namespace sru::server::transport {

// Why a call has no valid token.
enum class AuthFailure { kMissing, kMalformed, kUnknown };
inline constexpr const char* kAuthFailureNames[] = {"missing", "malformed", "unknown"};

// Why a TLS handshake failed.
enum class HandshakeFailure {
  kNoClientCertificate,
  kBadClientCertificate,  // expired, or of an authority that is not in --tls_client_ca
  kRefusedByClient,       // the client does not trust this server, or wants another TLS
  kClosedByClient,  // the client went without a word, as gRPC's do that do not trust the server
  kNotTls,
  kOther
};
inline constexpr const char* kHandshakeFailureNames[] = {"no_client_certificate",
                                                         "bad_client_certificate",
                                                         "refused_by_client",
                                                         "closed_by_client",
                                                         "not_tls",
                                                         "other"};
static_assert(std::size(kHandshakeFailureNames) ==
              size_t{1} + static_cast<size_t>(HandshakeFailure::kOther));
// Finds out what went wrong, by OpenSSL's words. Pure.
HandshakeFailure ClassifyHandshakeFailure(absl::string_view detail);

// Must not outlive the registry.
class SecurityMetrics {
 public:
  explicit SecurityMetrics(prometheus::Registry* registry);

  void OnAuthFailure(AuthFailure failure) { auth_failures_.Count(failure); }
  void OnHandshakeFailure(HandshakeFailure failure) { handshake_failures_.Count(failure); }
  void OnConnectionRefused() { refused_connections_.Increment(); }
  void OnTlsReload(bool ok) { (ok ? tls_reloads_ : tls_reload_failures_).Increment(); }
  void OnTokensReload(bool ok) { (ok ? token_reloads_ : token_reload_failures_).Increment(); }
  void OnStateKeysReload(bool ok) {
    (ok ? state_key_reloads_ : state_key_reload_failures_).Increment();
  }
  // Makes the series; there is none without TLS.
  void SetCertificateExpiry(absl::Time not_after);

 private:
  ReasonCounters<AuthFailure, std::size(kAuthFailureNames)> auth_failures_;
  ReasonCounters<HandshakeFailure, std::size(kHandshakeFailureNames)> handshake_failures_;
  prometheus::Counter& refused_connections_;
  prometheus::Counter& tls_reloads_;
  prometheus::Counter& tls_reload_failures_;
  prometheus::Counter& token_reloads_;
  prometheus::Counter& token_reload_failures_;
  prometheus::Counter& state_key_reloads_;
  prometheus::Counter& state_key_reload_failures_;
  prometheus::Family<prometheus::Gauge>& certificate_expiry_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_SECURITY_METRICS_H_
