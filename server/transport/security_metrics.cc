#include "server/transport/security_metrics.h"

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

const char* CloseReasonName(CloseReason reason) {
  switch (reason) {
    case CloseReason::kMemory:
      return "memory";
    case CloseReason::kStallsOthers:
      return "stalls_others";
    case CloseReason::kUnanswered:
      return "unanswered";
    case CloseReason::kUnfinished:
      return "unfinished";
  }
  return "";
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
  auto& closed = Family(registry, "sru_connections_closed_total",
                        "Connections that were closed because they sent much and were answered "
                        "nothing, by why it mattered.");
  for (int i = 0; i < kNumCloseReasons; ++i) {
    closed_connections_[i] =
        &closed.Add({{"reason", CloseReasonName(static_cast<CloseReason>(i))}});
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
