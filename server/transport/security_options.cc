#include "server/transport/security_options.h"

#include <cmath>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, tls_cert, "",
          "PEM file with the server's certificate, followed by those of its issuers. Turns TLS on. "
          "The three TLS files are read again when they change; what is wrong is not taken into "
          "use.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the key of --tls_cert, without a passphrase.");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file with authorities. Every client must show a certificate that one of them issued "
          "(mutual TLS).");
ABSL_FLAG(std::string, auth_tokens_file, "",
          "File with the tokens that callers may show as 'authorization: Bearer TOKEN', one a "
          "line, optionally after a name; # begins a comment. Every call then needs a token, but "
          "for the health service. Read again when it changes.");
ABSL_FLAG(bool, auth_health, false,
          "The health service needs a token too. Kubernetes' gRPC probes cannot send one.");
ABSL_FLAG(bool, auth_without_tls, false,
          "Take tokens on a network address without TLS, where something in front of the server "
          "encrypts.");
ABSL_FLAG(double, credentials_poll_interval_s, 1,
          "How often, in seconds, the files of the flags above are looked at for changes. A change "
          "is taken into use at the second look that finds it.");
ABSL_FLAG(int32_t, max_connections, 0,
          "Most open connections; further ones are closed at once. 0 = as many as the process may "
          "have open files, less some for its own.");
ABSL_FLAG(int32_t, max_metadata_bytes, 8192,
          "Most bytes of headers in one call; over it calls get RESOURCE_EXHAUSTED.");
ABSL_FLAG(double, max_connection_age_s, 0,
          "After how many seconds a connection is asked to go elsewhere, so that clients find new "
          "servers; gRPC varies it by 10%. 0 = never.");
ABSL_FLAG(double, max_connection_age_grace_s, 30,
          "How many seconds calls get to end on a connection that reached its age.");
ABSL_FLAG(double, max_connection_idle_s, 0,
          "After how many seconds without a call a connection is closed. 0 = never.");
ABSL_FLAG(double, min_ping_interval_s, 10,
          "A client that pings more often than this many seconds while it has no call is "
          "disconnected.");

namespace sru::server {
namespace {

constexpr const char* kFlagNames[] = {"tls_cert",
                                      "tls_key",
                                      "tls_client_ca",
                                      "auth_tokens_file",
                                      "auth_health",
                                      "auth_without_tls",
                                      "credentials_poll_interval_s",
                                      "max_connections",
                                      "max_metadata_bytes",
                                      "max_connection_age_s",
                                      "max_connection_age_grace_s",
                                      "max_connection_idle_s",
                                      "min_ping_interval_s"};

constexpr absl::Duration kMaxSeconds = absl::Hours(24 * 7);

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", low, " to ", high, ", found ", value));
}

absl::Status CheckSeconds(absl::string_view flag, absl::Duration value, absl::Duration low) {
  if (value >= low && value <= kMaxSeconds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", absl::FormatDuration(low), " to ",
                   absl::FormatDuration(kMaxSeconds), ", found ", absl::FormatDuration(value)));
}

// A number of seconds where 0 stands for "never".
absl::Duration OrNever(double seconds) {
  return seconds == 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
}

}  // namespace

absl::Status ValidateSecurityOptions(const SecurityOptions& o) {
  if (o.has_tls() && o.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "--tls_key: expected the file with the key of --tls_cert, found nothing");
  }
  if (!o.has_tls()) {
    for (const auto& [flag, value] :
         {std::pair{"tls_key", &o.tls_key}, std::pair{"tls_client_ca", &o.tls_client_ca}}) {
      if (value->empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--tls_cert: expected the file with the server's certificate, as --", flag,
                       " is given, found nothing"));
    }
  }
  if (absl::Status status =
          CheckSeconds("credentials_poll_interval_s", o.poll_interval, absl::Milliseconds(10));
      !status.ok()) {
    return status;
  }
  if (!o.has_tokens() && (o.auth_health || o.auth_without_tls)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--auth_tokens_file: expected the file with the tokens, as --",
        o.auth_health ? "auth_health" : "auth_without_tls", " is given, found nothing"));
  }
  return absl::OkStatus();
}

absl::Status ValidateConnectionLimits(const ConnectionLimits& l) {
  constexpr absl::Duration kLeast = absl::Milliseconds(1);
  for (const absl::Status& status : {
           CheckRange("max_connections", l.max_connections, 0, 1 << 20),
           CheckRange("max_metadata_bytes", l.max_metadata_bytes, 1024, 1 << 20),
           l.max_age == absl::InfiniteDuration()
               ? absl::OkStatus()
               : CheckSeconds("max_connection_age_s", l.max_age, kLeast),
           CheckSeconds("max_connection_age_grace_s", l.max_age_grace, absl::ZeroDuration()),
           l.max_idle == absl::InfiniteDuration()
               ? absl::OkStatus()
               : CheckSeconds("max_connection_idle_s", l.max_idle, kLeast),
           CheckSeconds("min_ping_interval_s", l.min_ping_interval, absl::ZeroDuration()),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckListenHost(const SecurityOptions& options, absl::string_view flag,
                             absl::string_view host) {
  if (!options.has_tokens() || options.has_tls() || options.auth_without_tls || IsLoopback(host)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--auth_tokens_file: tokens would cross the network in the clear; expected --tls_cert and "
      "--tls_key, or --",
      flag,
      " on 127.0.0.1, or --auth_without_tls where something in front of the server encrypts"));
}

absl::Span<const char* const> SecurityFlagNames() { return kFlagNames; }

absl::StatusOr<SecurityOptions> SecurityOptionsFromFlags() {
  SecurityOptions options;
  options.tls_cert = absl::GetFlag(FLAGS_tls_cert);
  options.tls_key = absl::GetFlag(FLAGS_tls_key);
  options.tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca);
  options.auth_tokens_file = absl::GetFlag(FLAGS_auth_tokens_file);
  options.auth_health = absl::GetFlag(FLAGS_auth_health);
  options.auth_without_tls = absl::GetFlag(FLAGS_auth_without_tls);
  options.poll_interval = absl::Seconds(absl::GetFlag(FLAGS_credentials_poll_interval_s));
  if (absl::Status status = ValidateSecurityOptions(options); !status.ok()) return status;
  return options;
}

absl::StatusOr<ConnectionLimits> ConnectionLimitsFromFlags() {
  ConnectionLimits limits;
  limits.max_connections = absl::GetFlag(FLAGS_max_connections);
  limits.max_metadata_bytes = absl::GetFlag(FLAGS_max_metadata_bytes);
  limits.max_age = OrNever(absl::GetFlag(FLAGS_max_connection_age_s));
  limits.max_age_grace = absl::Seconds(absl::GetFlag(FLAGS_max_connection_age_grace_s));
  limits.max_idle = OrNever(absl::GetFlag(FLAGS_max_connection_idle_s));
  limits.min_ping_interval = absl::Seconds(absl::GetFlag(FLAGS_min_ping_interval_s));
  if (absl::Status status = ValidateConnectionLimits(limits); !status.ok()) return status;
  return limits;
}

}  // namespace sru::server
