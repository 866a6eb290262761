// The headers and frames of Connect (https://connectrpc.com/docs/protocol) and of gRPC-Web
// (doc/PROTOCOL-WEB.md of gRPC):
//
//   Content-Type                         answer
//   application/json, proto              Connect, unary: the message, or an error as JSON with an
//                                        HTTP status of its own
//   application/connect+json, +proto     Connect, streams: frames; the last one is JSON with the
//                                        error and the trailers
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

// The encoding of the bodies of a call's request and answer.
struct CallForm {
  ErrorForm answer = ErrorForm::kV1;
  bool is_json = true;
  bool is_base64 = false;  // the request's body
};

// Returns the content types that requests of a method may have.
std::vector<std::string> WebContentTypes(const calls::Method& method);

// Returns the form of a request that has one of these types. The header Accept may ask for another
// form of gRPC-Web.
CallForm WebFormOf(const http::PageRequest& request);

// Checks the headers of the protocol, and returns the deadline that they ask for; infinite without
// one. kUnimplemented: the body is packed; kInvalidArgument: a header is malformed.
absl::StatusOr<absl::Duration> ReadWebHeaders(ErrorForm form, const http::PageRequest& request);

// Decodes base64 that may consist of several pieces, each with padding of its own.
// kInvalidArgument: it is no base64.
absl::StatusOr<std::string> DecodeBase64Pieces(absl::string_view text);
// Returns the message in the only frame of a request. kInvalidArgument: the body is not one whole
// frame.
absl::StatusOr<absl::string_view> OnlyMessage(absl::string_view body);

// Puts a message of an answer into a frame. `is_end` marks the frame that has WebEnd().
std::string WebFrame(ErrorForm form, absl::string_view message, bool is_end);
// Returns the message that ends a call; the status is OK after a success. kConnect: the body of an
// error.
std::string WebEnd(ErrorForm form, const RestError& error);
// Returns the content type of an answer in frames.
const char* WebContentType(ErrorForm form);
void AddConnectTrailers(const calls::Metadata& trailers, http::PageResponse* response);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_WEB_PROTOCOL_H_
