// The only place that converts between absl::Status and grpc::Status.
#ifndef SRU_SERVER_RPC_GRPC_STATUS_H_
#define SRU_SERVER_RPC_GRPC_STATUS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace sru::server::rpc {

// The same code and message. With `retry_after`, a RESOURCE_EXHAUSTED status carries a
// google.rpc.Status with a google.rpc.RetryInfo in its details (the trailer
// grpc-status-details-bin); other codes never do.
grpc::Status ToGrpcStatus(const absl::Status& status,
                          std::optional<absl::Duration> retry_after = std::nullopt);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_GRPC_STATUS_H_
