#include "server/transport/security_metrics.h"

#include "absl/strings/match.h"

namespace sru::server::transport {
HandshakeFailure ClassifyHandshakeFailure(absl::string_view detail) {
  if (absl::StrContains(detail, "peer did not return a certificate")) {
    return HandshakeFailure::kNoClientCertificate;
  }
  if (absl::StrContains(detail, "certificate verify failed")) {
    return HandshakeFailure::kBadClientCertificate;
  }
  if (absl::StrContains(detail, "alert") || absl::StrContains(detail, "unsupported protocol") ||
      absl::StrContains(detail, "no shared cipher")) {
    return HandshakeFailure::kRefusedByClient;
  }
  if (absl::StrContains(detail, "http request") ||
      absl::StrContains(detail, "wrong version number") ||
      absl::StrContains(detail, "packet length too long") ||
      absl::StrContains(detail, "https proxy request")) {
    return HandshakeFailure::kNotTls;
  }
  return HandshakeFailure::kOther;
}

SecurityMetrics::SecurityMetrics(prometheus::Registry* registry)
    : auth_failures_(registry, "sru_auth_failures_total",
                     "Calls answered with UNAUTHENTICATED, by what is wrong with their token "
                     "(missing, malformed, unknown).",
                     "reason", kAuthFailureNames),
      handshake_failures_(
          registry, "sru_tls_handshake_failures_total",
          "TLS handshakes that failed: no_client_certificate; bad_client_certificate "
          "(expired, or of another authority); refused_by_client and closed_by_client "
          "(mostly, it does not trust the server); not_tls; other.",
          "reason", kHandshakeFailureNames),
      refused_connections_(AddCounter(registry, "sru_connections_refused_total",
                                      "Connections that were closed because too many were open.")),
      tls_reloads_(AddCounter(registry, "sru_tls_reloads_total",
                              "Changes of the TLS files that took effect.")),
      tls_reload_failures_(
          AddCounter(registry, "sru_tls_reload_failures_total",
                     "Changes of the TLS files that were refused; the earlier files stay in use.")),
      token_reloads_(AddCounter(registry, "sru_auth_tokens_reloads_total",
                                "Changes of a file of tokens that took effect.")),
      token_reload_failures_(
          AddCounter(registry, "sru_auth_tokens_reload_failures_total",
                     "Changes of a file of tokens that were refused; the earlier tokens stay in "
                     "use.")),
      state_key_reloads_(AddCounter(registry, "sru_state_keys_reloads_total",
                                    "Changes of --state_key_file that took effect.")),
      state_key_reload_failures_(AddCounter(
          registry, "sru_state_keys_reload_failures_total",
          "Changes of --state_key_file that were refused; the earlier keys stay in use.")),
      certificate_expiry_(
          prometheus::BuildGauge()
              .Name("sru_tls_certificate_expiry_seconds")
              .Help("When the certificate in use expires, in seconds since the epoch.")
              .Register(*registry)) {}

void SecurityMetrics::SetCertificateExpiry(absl::Time not_after) {
  certificate_expiry_.Add({}).Set(absl::ToDoubleSeconds(not_after - absl::UnixEpoch()));
}

}  // namespace sru::server::transport
