#include "server/rpc/admin_call.h"

#include "absl/strings/str_cat.h"

namespace sru::server::rpc {

absl::Status CheckExplicitControl(lifecycle::ModelControl control) {
  if (control == lifecycle::ModelControl::kExplicit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "models cannot be loaded or unloaded by calls: the server runs with --model_control=",
      control == lifecycle::ModelControl::kPoll ? "poll" : "static",
      "; start it with --model_control=explicit"));
}

}  // namespace sru::server::rpc
