// Why protobuf refused the bytes of a message: protobuf itself only says that it did.
#ifndef SRU_SERVER_CALLS_BOUNDS_WIRE_CHECK_H_
#define SRU_SERVER_CALLS_BOUNDS_WIRE_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace sru::server::calls {

// How much of a message is searched for a fault. The fault is the caller's, but the time is taken
// from all callers.
inline constexpr size_t kMaxExplainedBytes = 1 << 20;
inline constexpr int kMaxExplainedFields = 10000;

// kInvalidArgument for bytes that did not parse as a message of `type`: the path of the first
// string that is not UTF-8, such as sequences[3].text, with the offset of its bad byte; else the
// path and the offset where the wire format breaks. A fault beyond that limit is not named. Takes a
// few microseconds per hundred fields and reads each byte at most once per level of nesting; a path
// is only made for the fault.
absl::Status ExplainParseFailure(const google::protobuf::Descriptor& type, absl::string_view bytes);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_WIRE_CHECK_H_
