#include "server/transport/security_metrics.h"

#include "absl/strings/match.h"

namespace sru::server::transport {
namespace {

prometheus::Family<prometheus::Counter>& Family(prometheus::Registry* registry, const char* name,
                                                const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

}  // namespace

const char* AuthFailureName(AuthFailure failure) {
  switch (failure) {
    case AuthFailure::kMissing:
      return "missing";
    case AuthFailure::kMalformed:
      return "malformed";
    case AuthFailure::kUnknown:
      return "unknown";
  }
  return "";
}

const char* HandshakeFailureName(HandshakeFailure failure) {
  switch (failure) {
    case HandshakeFailure::kNoClientCertificate:
      return "no_client_certificate";
    case HandshakeFailure::kBadClientCertificate:
      return "bad_client_certificate";
    case HandshakeFailure::kRefusedByClient:
      return "refused_by_client";
    case HandshakeFailure::kClosedByClient:
      return "closed_by_client";
    case HandshakeFailure::kNotTls:
      return "not_tls";
    case HandshakeFailure::kOther:
      return "other";
  }
  return "";
}

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
    : refused_connections_(
          Family(registry, "sru_connections_refused_total",
                 "Connections that were closed at once because too many were open.")
              .Add({})),
      tls_reloads_(Family(registry, "sru_tls_reloads_total",
                          "Changes of the TLS files that were taken into use.")
                       .Add({})),
      tls_reload_failures_(
          Family(registry, "sru_tls_reload_failures_total",
                 "Changes of the TLS files that were refused; the earlier ones stay in use.")
              .Add({})),
      token_reloads_(Family(registry, "sru_auth_tokens_reloads_total",
                            "Changes of the file of tokens that were taken into use.")
                         .Add({})),
      token_reload_failures_(
          Family(registry, "sru_auth_tokens_reload_failures_total",
                 "Changes of the file of tokens that were refused; the earlier ones stay in use.")
              .Add({})),
      certificate_expiry_(prometheus::BuildGauge()
                              .Name("sru_tls_certificate_expiry_seconds")
                              .Help("When the certificate in use expires, in seconds since the "
                                    "epoch.")
                              .Register(*registry)) {
  auto& auth = Family(registry, "sru_auth_failures_total",
                      "Calls that were answered with UNAUTHENTICATED, by what is wrong with their "
                      "token.");
  for (int i = 0; i < kNumAuthFailures; ++i) {
    auth_failures_[i] = &auth.Add({{"reason", AuthFailureName(static_cast<AuthFailure>(i))}});
  }
  auto& handshakes = Family(registry, "sru_tls_handshake_failures_total",
                            "Connections that failed in their TLS handshake, by reason.");
  for (int i = 0; i < kNumHandshakeFailures; ++i) {
    handshake_failures_[i] =
        &handshakes.Add({{"reason", HandshakeFailureName(static_cast<HandshakeFailure>(i))}});
  }
}

void SecurityMetrics::SetCertificateExpiry(absl::Time not_after) {
  certificate_expiry_.Add({}).Set(absl::ToDoubleSeconds(not_after - absl::UnixEpoch()));
}

}  // namespace sru::server::transport
