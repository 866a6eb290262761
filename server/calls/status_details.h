// The details of a status: all that it carries besides code and message.
#ifndef SRU_SERVER_CALLS_STATUS_DETAILS_H_
#define SRU_SERVER_CALLS_STATUS_DETAILS_H_

#include <string>

#include "absl/status/status.h"

namespace sru::server::calls {

// The details of an error that says when to come back (server/base/retry.h): a serialized
// google.rpc.Status with a google.rpc.RetryInfo, which gRPC sends as the trailer
// grpc-status-details-bin. Empty for any other status.
std::string StatusDetails(const absl::Status& status);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_STATUS_DETAILS_H_
