// Values of headers and trailers in the form that gRPC's protocol gives them, over HTTP/2 and in
// gRPC-Web. Pure functions.
#ifndef SRU_SERVER_CALLS_GRPC_TEXT_H_
#define SRU_SERVER_CALLS_GRPC_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server::calls {

// Reads a grpc-timeout: at most eight digits and a unit (HMSmun). Returns an infinite duration for
// anything else, as gRPC's library does.
absl::Duration ParseGrpcTimeout(absl::string_view text);

// Encodes a grpc-message.
std::string PercentEncode(absl::string_view text);

// Encodes a binary value: base64 without padding.
std::string UnpaddedBase64(absl::string_view bytes);

// The details of an error that says when to come back (server/base/retry.h): a serialized
// google.rpc.Status with a google.rpc.RetryInfo, which gRPC sends as the trailer
// grpc-status-details-bin. Empty for any other status.
std::string StatusDetails(const absl::Status& status);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_GRPC_TEXT_H_
