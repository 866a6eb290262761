#include "server/transport/security_options.h"

#include <arpa/inet.h>
#include <netinet/in.h>

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
ABSL_FLAG(
    std::string, admin_tokens_file, "",
    "File with the tokens of the admin port, in the form of --auth_tokens_file. The admin port "
    "then takes these and no others. Empty: it takes those of --auth_tokens_file.");
ABSL_FLAG(bool, admin_without_auth, false,
          "Take --admin_listen on a network address without tokens or client certificates, where "
          "something else decides who reaches it.");
ABSL_FLAG(double, credentials_poll_interval_s, 1,
          "How often, in seconds, the files of the flags above are looked at for changes. A change "
          "is taken into use at the second look that finds it.");
ABSL_FLAG(int32_t, max_connections, 10000,
          "Most open connections; further ones are closed at once. 0 = as many as the process may "
          "have open files, less some for its own.");
ABSL_FLAG(
    bool, connection_guard, true,
    "Close connections that send and send and are answered nothing: the worst of them when the "
    "process holds more memory than its budgets explain or when others are not served, and "
    "each when it is beyond what any honest client does.");
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
                                      "admin_tokens_file",
                                      "admin_without_auth",
                                      "credentials_poll_interval_s",
                                      "max_connections",
                                      "connection_guard",
                                      "max_metadata_bytes",
                                      "max_connection_age_s",
                                      "max_connection_age_grace_s",
                                      "max_connection_idle_s",
                                      "min_ping_interval_s"};

constexpr absl::Duration kMaxSeconds = absl::Hours(24 * 7);

// Of a listener on the network that takes the tokens of `tokens_flag`.
absl::Status CheckTokensAreEncrypted(const SecurityOptions& options, absl::string_view tokens_flag,
                                     absl::string_view listen_flag) {
  if (options.has_tls() || options.auth_without_tls) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", tokens_flag, ": tokens would cross the network in the clear; expected --tls_cert and ",
      "--tls_key, or --", listen_flag,
      " on 127.0.0.1, or --auth_without_tls where something in front of the server encrypts"));
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
  const bool health_without_tokens = o.auth_health && !o.has_tokens();
  if (health_without_tokens || (o.auth_without_tls && !o.has_admin_tokens())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--auth_tokens_file: expected the file with the tokens, as --",
        health_without_tokens ? "auth_health" : "auth_without_tls", " is given, found nothing"));
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

// "127.evil.example" is a name like any other.
bool IsLoopbackHost(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  return host == "localhost";
}

absl::Status CheckListenHost(const SecurityOptions& options, absl::string_view flag,
                             absl::string_view host) {
  if (!options.has_tokens() || IsLoopbackHost(std::string(host))) return absl::OkStatus();
  return CheckTokensAreEncrypted(options, "auth_tokens_file", flag);
}

absl::Status CheckAdminListenHost(const SecurityOptions& options,
                                  const std::optional<std::string>& host) {
  const bool own_tokens = !options.admin_tokens_file.empty();
  if (!host.has_value()) {
    if (!own_tokens && !options.admin_without_auth) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--admin_listen: expected the address of the admin port, as --",
        own_tokens ? "admin_tokens_file" : "admin_without_auth", " is given, found nothing"));
  }
  if (IsLoopbackHost(*host)) return absl::OkStatus();
  if (options.has_admin_tokens()) {
    return CheckTokensAreEncrypted(options, own_tokens ? "admin_tokens_file" : "auth_tokens_file",
                                   "admin_listen");
  }
  if (!options.tls_client_ca.empty() || options.admin_without_auth) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--admin_listen: whoever reaches '", *host,
      "' could load and unload models; expected --admin_tokens_file or --auth_tokens_file, or "
      "--tls_client_ca, or an address of this machine such as 127.0.0.1, or --admin_without_auth "
      "where something else decides who reaches it"));
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
  options.admin_tokens_file = absl::GetFlag(FLAGS_admin_tokens_file);
  options.admin_without_auth = absl::GetFlag(FLAGS_admin_without_auth);
  options.poll_interval = absl::Seconds(absl::GetFlag(FLAGS_credentials_poll_interval_s));
  if (absl::Status status = ValidateSecurityOptions(options); !status.ok()) return status;
  return options;
}

absl::StatusOr<ConnectionLimits> ConnectionLimitsFromFlags() {
  ConnectionLimits limits;
  limits.max_connections = absl::GetFlag(FLAGS_max_connections);
  limits.guard = absl::GetFlag(FLAGS_connection_guard);
  limits.max_metadata_bytes = absl::GetFlag(FLAGS_max_metadata_bytes);
  limits.max_age = OrNever(absl::GetFlag(FLAGS_max_connection_age_s));
  limits.max_age_grace = absl::Seconds(absl::GetFlag(FLAGS_max_connection_age_grace_s));
  limits.max_idle = OrNever(absl::GetFlag(FLAGS_max_connection_idle_s));
  limits.min_ping_interval = absl::Seconds(absl::GetFlag(FLAGS_min_ping_interval_s));
  if (absl::Status status = ValidateConnectionLimits(limits); !status.ok()) return status;
  return limits;
}

}  // namespace sru::server
