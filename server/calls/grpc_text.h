// The texts that gRPC's protocol puts into headers and trailers, over HTTP/2 and in gRPC-Web. Pure functions.
#ifndef SRU_SERVER_CALLS_GRPC_TEXT_H_
#define SRU_SERVER_CALLS_GRPC_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server::calls {

// The value of grpc-timeout: at most eight digits and a unit (HMSmun). Infinite for anything else, as gRPC's library takes it.
absl::Duration ParseGrpcTimeout(absl::string_view text);

// The form of a grpc-message.
std::string PercentEncode(absl::string_view text);

// Base64 without padding, the form of binary values.
std::string UnpaddedBase64(absl::string_view bytes);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_GRPC_TEXT_H_
