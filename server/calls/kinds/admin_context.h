// What the handlers of calls of the admin port work with besides the rest.
#ifndef SRU_SERVER_CALLS_KINDS_ADMIN_CONTEXT_H_
#define SRU_SERVER_CALLS_KINDS_ADMIN_CONTEXT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/calls/kinds/service_context.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_manager.h"

namespace sru::server::calls {

// Must outlive the calls. Requests are answered by the manager's thread, or by its BeginStop(),
// which must be called before the transport is shut down.
struct AdminContext {
  const ServiceContext* service = nullptr;
  lifecycle::ModelControl control = lifecycle::ModelControl::kStatic;
  lifecycle::ModelManager* manager = nullptr;
};

// kFailedPrecondition unless calls may load and unload models.
inline absl::Status CheckExplicitControl(lifecycle::ModelControl control) {
  if (control == lifecycle::ModelControl::kExplicit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "models cannot be loaded or unloaded by calls: the server runs with --model_control=",
      control == lifecycle::ModelControl::kPoll ? "poll" : "static",
      "; start it with --model_control=explicit"));
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_ADMIN_CONTEXT_H_
