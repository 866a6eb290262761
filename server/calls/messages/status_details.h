// The details of a status: all that it carries besides code and message.
#ifndef SRU_SERVER_CALLS_MESSAGES_STATUS_DETAILS_H_
#define SRU_SERVER_CALLS_MESSAGES_STATUS_DETAILS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sru::server::calls {

// The details of a RESOURCE_EXHAUSTED status with `retry_after`: a serialized google.rpc.Status with a google.rpc.RetryInfo, which gRPC
// sends as the trailer grpc-status-details-bin. Empty for any other status.
std::string StatusDetails(const absl::Status& status, std::optional<absl::Duration> retry_after);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_STATUS_DETAILS_H_
