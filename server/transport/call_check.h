// CallCheck: who makes a call, and whether it may go on, by its headers; what a transport asks
// before it reads a message.
#ifndef SRU_SERVER_TRANSPORT_CALL_CHECK_H_
#define SRU_SERVER_TRANSPORT_CALL_CHECK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "server/callers/caller.h"
#include "server/telemetry/access_log.h"

namespace sru::server::transport {

// What a call's headers say of who calls. The texts live as long as the check runs.
struct CallToCheck {
  absl::string_view path;  // "/sru.v1.InferenceService/Classify", whether it exists or not
  int authorizations = 0;  // headers of that name; the last one is in `headers`
  telemetry::CallHeaders headers;
  // The headers in which proxies name their client; several fields of a name are joined with
  // commas.
  absl::string_view x_forwarded_for;
  absl::string_view peer;  // in gRPC's form: "ipv4:10.0.0.1:4711"; or "10.0.0.1", "::1", "unix"
  // The name that the client's certificate gives it (OwnerOf() in tls_certificates.h), "" if it has
  // shown none. Looked up only when asked for.
  std::function<std::string()> certificate;
};

struct CallVerdict {
  // Null when the call goes on, otherwise the text to refuse it with as UNAUTHENTICATED, which
  // lives for ever.
  const char* refusal = nullptr;
  callers::CallerPtr caller;  // null: nobody in particular
};

// Whether the method of a path needs a token, as the table of methods says.
using NeedsToken = std::function<bool(absl::string_view path)>;

// Runs on the transport's threads, on several at once, and must not block.
using CallCheck = std::function<CallVerdict(const CallToCheck&)>;

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_CALL_CHECK_H_
