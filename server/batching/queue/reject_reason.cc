#include "server/batching/queue/reject_reason.h"

#include "absl/strings/cord.h"

namespace sru::server::batching {
namespace {

constexpr char kPayloadUrl[] = "sru.server.RejectReason";

}  // namespace

absl::Status MakeRefusal(RejectReason reason, absl::string_view message) {
  const RejectReasonInfo info = Describe(reason);
  absl::Status status(info.code, message);
  status.SetPayload(kPayloadUrl, absl::Cord(info.name));
  return status;
}

std::optional<RejectReason> GetRejectReason(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  for (const RejectReason reason : kRejectReasons) {
    if (*payload == Describe(reason).name) return reason;
  }
  return std::nullopt;
}

}  // namespace sru::server::batching
