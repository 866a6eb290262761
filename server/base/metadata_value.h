// What may be a value of gRPC's metadata. A call to which another value is added ends the process:
// gRPC takes it for a mistake of the program. Values that callers sent have to be looked at before
// they are passed on to another call: gRPC accepts more from the network, and HTTP/1 allows more.
#ifndef SRU_SERVER_BASE_METADATA_VALUE_H_
#define SRU_SERVER_BASE_METADATA_VALUE_H_

#include <algorithm>

#include "absl/strings/string_view.h"

namespace sru::server {

// Of a header whose name does not end with "-bin".
inline bool IsMetadataValue(absl::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_METADATA_VALUE_H_
