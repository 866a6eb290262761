// Who may call a model through the status page (--status_page_try). The port is meant for monitoring,
// and is often open to more machines than the gRPC port.
#ifndef SRU_SERVER_HTTP_TRY_ACCESS_H_
#define SRU_SERVER_HTTP_TRY_ACCESS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sru::server::http {

enum class TryAccess {
  kOff,  // nobody
  // Only from this machine: the connection comes from a loopback address, no proxy has forwarded it,
  // and the page was opened as localhost or by a loopback address. A proxy on this machine that does
  // not say that it forwards opens it to everybody.
  kLocal,
  kAll,  // from everywhere, if the page was opened under a name that cannot be a stranger's
};

// "off", "local", "all".
inline const char* TryAccessName(TryAccess access) {
  switch (access) {
    case TryAccess::kOff:
      return "off";
    case TryAccess::kLocal:
      return "local";
    case TryAccess::kAll:
      return "all";
  }
  return "";
}

// Accepts the same names; kInvalidArgument names `flag`.
inline absl::StatusOr<TryAccess> ParseTryAccess(absl::string_view flag, absl::string_view text) {
  if (text == "off") return TryAccess::kOff;
  if (text == "local") return TryAccess::kLocal;
  if (text == "all") return TryAccess::kAll;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected off, local or all, found '", text, "'"));
}

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_TRY_ACCESS_H_
