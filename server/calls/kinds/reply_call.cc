#include "server/calls/kinds/reply_call.h"

#include "server/calls/messages/response_writer.h"

namespace sru::server::calls {
namespace {

absl::Status GoneStatus() {
  return absl::CancelledError("the caller is gone or the server is shutting down");
}

}  // namespace

void ReplyCall::OnMessage(std::optional<absl::Cord> message) noexcept {
  Ref();
  const Pointer self(this, [](ReplyCall* call) { call->Unref(); });
  absl::Status status = TakeMessage([&] { return begin_(message.value_or(absl::Cord()), self); });
  begun_.store(true);
  if (status.ok() && cancelled_.load()) status = GoneStatus();
  if (!status.ok()) Finish(std::move(status));
}

void ReplyCall::OnCancel() noexcept {
  cancelled_.store(true);
  if (begun_.load()) Finish(GoneStatus());
}

void ReplyCall::Finish(absl::Status status, const google::protobuf::Message* response) {
  if (finished_.exchange(true)) return;
  absl::Cord answer;
  if (status.ok() && response != nullptr) status = SerializeMessage(*response, &answer);
  if (!status.ok()) return End(std::move(status));
  End(std::move(status), std::move(answer));
}

}  // namespace sru::server::calls
