#include "server/transport/security_options.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "server/base/listen_address.h"

namespace sru::server::transport {
namespace {

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
  const bool health_without_tokens = o.auth_health && !o.has_tokens();
  if (health_without_tokens || (o.auth_without_tls && !o.has_admin_tokens())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--auth_tokens_file: expected the file with the tokens, as --",
        health_without_tokens ? "auth_health" : "auth_without_tls", " is given, found nothing"));
  }
  if (o.caller_limits.has_value() && o.has_tokens()) {
    return absl::InvalidArgumentError(
        "--caller_limits: expected none, as --auth_tokens_file is given, where the line 'default' "
        "has "
        "the limits of callers whose lines have none");
  }
  return absl::OkStatus();
}

bool IsLoopbackHost(const std::string& host) {
  return IsLoopback(host) || absl::StartsWith(host, kUnixPrefix);
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
    if (!own_tokens) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--admin_listen: expected the address of the admin port, as --admin_tokens_file is given, "
        "found nothing");
  }
  if (IsLoopbackHost(*host)) return absl::OkStatus();
  if (options.has_admin_tokens()) {
    return CheckTokensAreEncrypted(options, own_tokens ? "admin_tokens_file" : "auth_tokens_file",
                                   "admin_listen");
  }
  if (!options.tls_client_ca.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--admin_listen: whoever reaches '", *host,
      "' could load and unload models; expected --admin_tokens_file or --auth_tokens_file, or "
      "--tls_client_ca, or an address of this machine such as 127.0.0.1"));
}

void AddFlags(SecurityOptions* options, Flags* flags) {
  flags->Add("tls_cert", &options->tls_cert,
             "PEM file with the server's certificate, followed by those of its issuers. "
             "Turns TLS on. Read again when it changes.");
  flags->Add("tls_key", &options->tls_key,
             "PEM file with the key of --tls_cert, without a passphrase.");
  flags->Add("tls_client_ca", &options->tls_client_ca,
             "PEM file with authorities. Every client must present a certificate that "
             "one of them issued (mutual TLS).");
  flags->Add("auth_tokens_file", &options->auth_tokens_file,
             "File with the tokens that callers send as 'authorization: Bearer TOKEN', "
             "with their names and limits (docs/security.md#tokens). Every call but "
             "health checks then needs a token. Read again when it changes.");
  flags->Add("auth_health", &options->auth_health,
             "Probes need a token too: the health service, those of Open Inference and /health. "
             "Kubernetes' gRPC probes cannot send one.");
  flags->Add("auth_without_tls", &options->auth_without_tls,
             "Accept tokens on a network address without TLS, if something in front of "
             "the server encrypts.");
  flags->Add("admin_tokens_file", &options->admin_tokens_file,
             "File with the tokens of the admin port, which then accepts no others. "
             "Empty: it accepts those of --auth_tokens_file.");
  flags->AddParsed("caller_limits", &options->caller_limits, "", callers::ParseLimitsFlag,
                   "Limits of each caller while tokens are off: KEY=VALUE, separated by spaces "
                   "(docs/security.md#limits-per-caller). A caller is the subject of a client "
                   "certificate, else an address.");
  flags->AddParsed("trusted_proxies", &options->trusted_proxies, "", callers::TrustedProxies::Parse,
                   "Addresses, networks (10.0.0.0/8) and \"unix\", separated by commas, of "
                   "proxies. The caller of their calls is the last address in X-Forwarded-For "
                   "that is no trusted proxy.");
  flags->Add("state_key_file", &options->state_key_file,
             "File with the keys that sign returned states, one per line, at least 32 "
             "characters (docs/security.md#states). The first signs, all are accepted; "
             "all replicas need the same. Unreadable for other users. Read again when it "
             "changes. Empty: states are not signed.");

  flags->Group(Flags::kRarelyChanged);
  flags->AddTime("credentials_poll_interval_s", &options->poll_interval, absl::Seconds(1),
                 {absl::Milliseconds(10), kMaxSeconds},
                 "Seconds between two checks of the files of TLS, tokens and keys. A change takes "
                 "effect at the second check that finds it.");
}

void AddFlags(ConnectionLimits* limits, Flags* flags) {
  const Flags::TimeRange or_never = {absl::Milliseconds(1), kMaxSeconds, /*or_never=*/true};
  flags->Add("max_connections", &limits->max_connections, {0, 1 << 20},
             "Most open connections of all ports but --metrics_listen, and at most what "
             "an eighth of the memory holds (48 KiB each with TLS, else 28). Another one "
             "closes the oldest of the address with the most, unless the server works on "
             "a call of it. 0 = what memory and open files allow.");
  flags->AddTime("max_connection_age_s", &limits->max_age, absl::Seconds(1), or_never,
                 "Seconds after which a client is asked to connect anew, so that clients "
                 "find new servers; varies by 10%. Calls then have --drain_timeout_s to end. "
                 "0 = never.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("max_metadata_bytes", &limits->max_metadata_bytes, {1024, 1 << 20},
             "Most bytes of headers in one call; a call with more gets "
             "RESOURCE_EXHAUSTED.");
  flags->AddTime("max_call_s", &limits->max_call, absl::Seconds(1), or_never,
                 "Seconds after which a call ends with DEADLINE_EXCEEDED, whatever its "
                 "deadline, and a stream, too. 0 = never.");
}

}  // namespace sru::server::transport
