// The server's options on security: TLS, tokens, and bounds on connections. README.md says what is
// open by default.
#ifndef SRU_SERVER_TRANSPORT_SECURITY_OPTIONS_H_
#define SRU_SERVER_TRANSPORT_SECURITY_OPTIONS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "server/callers/caller_limits.h"
#include "server/callers/trusted_proxies.h"

namespace sru::server::transport {

struct SecurityOptions {
  // PEM files. The first two come together and turn TLS on; the third makes every client show a
  // certificate of one of its authorities (mutual TLS).
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;

  // Turns tokens on: every call needs one, but for the health service.
  std::string auth_tokens_file;
  bool auth_health = false;       // probes need a token too
  bool auth_without_tls = false;  // tokens on a listener that others can read along

  // Tokens of the admin port, which takes no others then; empty = those of auth_tokens_file.
  std::string admin_tokens_file;

  // The limits of each caller, where tokens are off; with tokens their file has them.
  std::optional<callers::CallerLimits> caller_limits;
  // Who calls through these is told by the header.
  callers::TrustedProxies trusted_proxies;

  // Keys of the states that callers keep (models/state_keys.h); empty = states have a plain digest.
  std::string state_key_file;

  // How often the files are looked at; a change is taken up at the second look that finds it.
  absl::Duration poll_interval = absl::Seconds(1);

  bool has_tls() const { return !tls_cert.empty(); }
  bool has_tokens() const { return !auth_tokens_file.empty(); }
  bool has_admin_tokens() const { return has_tokens() || !admin_tokens_file.empty(); }
};

// Bounds on what one connection, or all of them, can take from the server.
struct ConnectionLimits {
  int max_connections = 10000;       // 0 = as many as the process may have open files
  int max_metadata_bytes = 8192;     // headers of one call
  int max_concurrent_streams = 512;  // per connection
  // After max_age a connection takes no new calls, after another max_age_grace it is closed; the
  // server sets that to --drain_timeout_s. Infinite = never.
  absl::Duration max_age = absl::InfiniteDuration();
  absl::Duration max_age_grace = absl::Seconds(30);
  // The longest time of a call, until all of its answer is taken. Infinite = any.
  absl::Duration max_call = absl::Hours(1);
  // A stream of messages whose client is expected to send one, and has sent none for this long,
  // continues as if its client had ended it. No flag: a client that is silent for longer is gone.
  absl::Duration max_stream_idle = absl::Minutes(10);
  // A client that pings an idle connection more often is disconnected. The clients of this project
  // ping every 1.5 s (client/client.cc), so no flag may allow less than they need.
  absl::Duration min_ping_interval = absl::Seconds(1);
};

// kInvalidArgument names the flag.
absl::Status ValidateSecurityOptions(const SecurityOptions& options);

// kInvalidArgument when callers would send tokens over the network in the clear: tokens, no TLS, no
// --auth_without_tls, and `host` (as in HOST:PORT) is not of this machine only: "localhost" or a
// loopback address written out. `flag` is that of the listener.
absl::Status CheckListenHost(const SecurityOptions& options, absl::string_view flag,
                             absl::string_view host);

// Whether `host` (as in HOST:PORT) is of this machine only: "localhost" or a loopback address
// written out.
bool IsLoopbackHost(const std::string& host);

// The same of --admin_listen; kInvalidArgument also when others than this machine could load and
// unload models without tokens or client certificates. Nothing = there is no admin port; flags of
// one are then an error.
absl::Status CheckAdminListenHost(const SecurityOptions& options,
                                  const std::optional<std::string>& host);

void AddFlags(SecurityOptions* options, Flags* flags);
void AddFlags(ConnectionLimits* limits, Flags* flags);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_SECURITY_OPTIONS_H_
