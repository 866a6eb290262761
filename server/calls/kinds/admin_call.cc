#include "server/calls/kinds/admin_call.h"

#include "absl/strings/str_cat.h"
#include "server/calls/messages/response_writer.h"

namespace sru::server::calls {

absl::Status CheckExplicitControl(lifecycle::ModelControl control) {
  if (control == lifecycle::ModelControl::kExplicit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "models cannot be loaded or unloaded by calls: the server runs with --model_control=",
      control == lifecycle::ModelControl::kPoll ? "poll" : "static",
      "; start it with --model_control=explicit"));
}

void AdminCall::OnMessage(std::optional<absl::Cord> message) noexcept {
  Ref();
  const Pointer self(this, [](AdminCall* call) { call->Unref(); });
  const absl::Status status =
      TakeMessage([&] { return begin_(message.value_or(absl::Cord()), self); });
  if (!status.ok()) Finish(status);
}

void AdminCall::Finish(absl::Status status, const google::protobuf::Message* response) {
  if (finished_.exchange(true)) return;
  absl::Cord answer;
  if (response != nullptr) status = SerializeMessage(*response, &answer);
  if (status.ok()) {
    WriteAndEnd(std::move(answer), std::move(status));
  } else {
    End(std::move(status));
  }
}

}  // namespace sru::server::calls
