// What Connect (https://connectrpc.com/docs/protocol) and gRPC-Web (PROTOCOL-WEB.md of gRPC) put around the messages of a call:
//
//   Content-Type                         answer
//   application/json, proto              Connect, unary: the message, or an error as JSON with an HTTP status of its own
//   application/connect+json, +proto     Connect, streams: frames; the last one is JSON with the error and the trailers
//   application/grpc-web[+proto]         gRPC-Web: frames; the last one has the trailers as lines
//   application/grpc-web-text[+proto]    the same in base64, each frame by itself
//
// A frame is a byte of flags, four bytes of the length and the message.
//
// Pure functions.
#ifndef SRU_SERVER_REST_WEB_PROTOCOL_H_
#define SRU_SERVER_REST_WEB_PROTOCOL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/calls/method.h"
#include "server/http/page_message.h"
#include "server/rest/error_response.h"

namespace sru::server::rest {

inline constexpr char kProtoContentType[] = "application/proto";

// How the bodies of a call's request and answer are written.
struct CallForm {
  ErrorForm answer = ErrorForm::kV1;
  bool is_json = true;
  bool is_base64 = false;  // the request
};

// What a method's requests may be.
std::vector<std::string> WebContentTypes(const calls::Method& method);

// By the headers of a request that has one of these types.
CallForm WebFormOf(const http::PageRequest& request);

// Whether the protocol's own headers are right. kUnimplemented: the body is packed.
absl::Status CheckWebHeaders(ErrorForm form, const http::PageRequest& request);
// Infinite: there is none. kInvalidArgument: it is malformed.
absl::StatusOr<absl::Duration> WebTimeout(ErrorForm form, const http::PageRequest& request);

// Text that may consist of several pieces, each with padding of its own. kInvalidArgument: it is no base64.
absl::StatusOr<std::string> DecodeBase64Pieces(absl::string_view text);
// The message in the only frame of a request. kInvalidArgument: it is not one whole frame.
absl::StatusOr<absl::string_view> OnlyMessage(absl::string_view body);

// A frame of an answer; `is_end` for the one with WebEnd().
std::string WebFrame(ErrorForm form, absl::string_view message, bool is_end);
// How a call ended. kConnect: an error.
std::string WebEnd(ErrorForm form, const RestError& error);
// Of an answer in frames.
const char* WebContentType(ErrorForm form);
void AddConnectTrailers(const calls::Metadata& trailers, http::PageResponse* response);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_WEB_PROTOCOL_H_
