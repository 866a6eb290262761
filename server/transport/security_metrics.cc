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
                     "Calls that were answered with UNAUTHENTICATED, by what is wrong with their "
                     "token.",
                     "reason", kAuthFailureNames),
      handshake_failures_(registry, "sru_tls_handshake_failures_total",
                          "Connections that failed in their TLS handshake, by reason.", "reason",
                          kHandshakeFailureNames),
      refused_connections_(
          AddCounter(registry, "sru_connections_refused_total",
                     "Connections that were closed at once because too many were open.")),
      tls_reloads_(AddCounter(registry, "sru_tls_reloads_total",
                              "Changes of the TLS files that were taken into use.")),
      tls_reload_failures_(
          AddCounter(registry, "sru_tls_reload_failures_total",
                     "Changes of the TLS files that were refused; the earlier ones stay in use.")),
      token_reloads_(AddCounter(registry, "sru_auth_tokens_reloads_total",
                                "Changes of the file of tokens that were taken into use.")),
      token_reload_failures_(AddCounter(
          registry, "sru_auth_tokens_reload_failures_total",
          "Changes of the file of tokens that were refused; the earlier ones stay in use.")),
      state_key_reloads_(AddCounter(registry, "sru_state_keys_reloads_total",
                                    "Changes of the file of state keys that were taken into use.")),
      state_key_reload_failures_(AddCounter(
          registry, "sru_state_keys_reload_failures_total",
          "Changes of the file of state keys that were refused; the earlier ones stay in use.")),
      certificate_expiry_(prometheus::BuildGauge()
                              .Name("sru_tls_certificate_expiry_seconds")
                              .Help("When the certificate in use expires, in seconds since the "
                                    "epoch.")
                              .Register(*registry)) {}

void SecurityMetrics::SetCertificateExpiry(absl::Time not_after) {
  certificate_expiry_.Add({}).Set(absl::ToDoubleSeconds(not_after - absl::UnixEpoch()));
}

}  // namespace sru::server::transport
