#include "server/calls/status_details.h"

#include <optional>

#include "google/rpc/retry.pb.h"
#include "server/base/retry.h"

namespace sru::server::calls {

std::string StatusDetails(const absl::Status& status) {
  const std::optional<absl::Duration> delay = RetryAfterOf(status);
  if (!delay.has_value()) return "";
  google::rpc::RetryInfo retry_info;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(*delay);
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
