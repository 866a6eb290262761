#include "server/calls/messages/status_details.h"

#include <algorithm>

#include "google/rpc/retry.pb.h"

namespace sru::server::calls {

std::string StatusDetails(const absl::Status& status, std::optional<absl::Duration> retry_after) {
  if (!absl::IsResourceExhausted(status) || !retry_after.has_value()) return "";
  // protobuf's Duration ends at about 10,000 years; a day already means "go away".
  const absl::Duration delay = std::clamp(*retry_after, absl::ZeroDuration(), absl::Hours(24));
  google::rpc::RetryInfo retry_info;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(delay);
  retry_info.mutable_retry_delay()->set_seconds(nanoseconds / 1000000000);
  retry_info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  google::rpc::Status details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(std::string(status.message()));
  // False only for a message without its required fields, and ours has none.
  static_cast<void>(details.add_details()->PackFrom(retry_info));
  return details.SerializeAsString();
}

}  // namespace sru::server::calls
