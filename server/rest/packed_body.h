// Bodies with a Content-Encoding: which encodings the server unpacks, and their unpacking within
// the bounds of other bodies. Pure functions.
#ifndef SRU_SERVER_REST_PACKED_BODY_H_
#define SRU_SERVER_REST_PACKED_BODY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "server/http/page_message.h"
#include "server/rest/error_response.h"
#include "server/rest/memory_hold.h"

namespace sru::server::rest {

// The encodings that the server unpacks, as the header Accept-Encoding names them.
inline constexpr char kBodyEncodings[] = "gzip, deflate";

// kInvalidArgument for a Content-Encoding that the server does not unpack.
absl::Status CheckBodyEncoding(const http::PageRequest& request);

// Whether the body has an encoding and is not sent as it is.
bool IsPacked(const http::PageRequest& request);

// Replaces a packed body, which `memory` holds, by what it unpacks to. Stops before more than
// `most` bytes and a block are unpacked (413), and when `memory` has no more room. A body that is
// damaged, ends early or goes on after its end is kInvalidArgument, and kCancelled one whose client
// has left. Requires CheckBodyEncoding().
RestError UnpackBody(const http::PageRequest& request, size_t most, MemoryHold* memory,
                     std::string* body);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_PACKED_BODY_H_
