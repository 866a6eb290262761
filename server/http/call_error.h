// What the error of a gRPC call is over HTTP. Pure functions.
#ifndef SRU_SERVER_HTTP_CALL_ERROR_H_
#define SRU_SERVER_HTTP_CALL_ERROR_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace sru::server {

// The status of HTTP that belongs to a code; server/rest/error_response.h has the table.
int HttpStatusOf(absl::StatusCode code);

absl::Status ToAbsl(const grpc::Status& status);

// The RetryInfo in the details of a status: when the caller should come back.
std::optional<absl::Duration> RetryAfterOf(const grpc::Status& status);

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_CALL_ERROR_H_
