// How a refusal looks over HTTP: the status that belongs to a gRPC code, and a body in the form of
// the API that was called.
//
//   gRPC code             HTTP   remarks
//   INVALID_ARGUMENT      400
//   FAILED_PRECONDITION   400    the model cannot do what is asked; another request might
//   OUT_OF_RANGE          400
//   UNAUTHENTICATED       401    with WWW-Authenticate: Bearer
//   PERMISSION_DENIED     403
//   NOT_FOUND             404
//   ALREADY_EXISTS        409
//   ABORTED               409
//   RESOURCE_EXHAUSTED    429    with Retry-After if the call said when
//   CANCELLED             499    nobody reads it
//   UNIMPLEMENTED         501
//   UNAVAILABLE           503    with Retry-After
//   DEADLINE_EXCEEDED     504
//   others                500
//
// Pure functions.
#ifndef SRU_SERVER_REST_ERROR_RESPONSE_H_
#define SRU_SERVER_REST_ERROR_RESPONSE_H_

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/retry.h"
#include "server/calls/exchange.h"
#include "server/http/page_message.h"

namespace sru::server::rest {

inline constexpr char kJsonContentType[] = "application/json";
inline constexpr char kFormContentType[] = "application/x-www-form-urlencoded";

enum class ErrorForm {
  kV1,              // {"error": {"code": "INVALID_ARGUMENT", "message": "..."}}
  kOpenInference,   // {"error": "...", "code": "INVALID_ARGUMENT"}
  kOpenAi,          // {"error": {"message", "type", "param", "code"}}
  kDeepL,           // {"message": "..."}; these two have 403 for UNAUTHENTICATED
  kLibreTranslate,  // {"error": "..."}
  // The forms of Connect and gRPC-Web (web_protocol.h). Those after kConnect consist of frames: the
  // HTTP status is always 200, and the last frame has the error.
  kConnect,  // {"code": "invalid_argument", "message": "...", "details": [...]}
  kConnectJsonStream,
  kConnectProtoStream,
  kGrpcWeb,
  kGrpcWebText,
};

constexpr bool IsWebCall(ErrorForm form) { return form >= ErrorForm::kConnect; }
constexpr bool IsFramed(ErrorForm form) { return form > ErrorForm::kConnect; }
constexpr bool IsGrpcWeb(ErrorForm form) { return form >= ErrorForm::kGrpcWeb; }

struct RestError {
  RestError() = default;
  // A conversion: most refusals are a status and nothing else.
  // NOLINTNEXTLINE(google-explicit-constructor)
  RestError(absl::Status error, int http = 0, calls::Metadata more_headers = {})
      : status(std::move(error)), http_status(http), headers(std::move(more_headers)) {}

  absl::Status status;       // UNAVAILABLE that does not say when to come back gets one second
  int http_status = 0;       // 0: that of the code
  std::string param;         // OpenAI: the field that is wrong; "": null
  calls::Metadata trailers;  // Connect, gRPC-Web
  calls::Metadata headers;   // such as Allow
};

// An answer with this JSON.
http::PageResponse JsonResponse(std::string body, int status = 200);

// The text of a nlohmann::json; bytes that are not UTF-8 become U+FFFD.
template <typename Json>
std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The error of a call that failed.
RestError ErrorOfCall(const calls::CallEnd& end);

// Returns the body alone, as an event or the last frame of a stream carries it. Forms with frames
// end with such a body after a success, too; its status is OK then.
std::string ErrorBody(ErrorForm form, const RestError& error);

http::PageResponse ErrorResponse(ErrorForm form, const RestError& error);

// Runs a handler or a reaction, which gRPC and the HTTP server run where nobody else catches what
// it throws. If it throws, calls `fail(RestError)`: kResourceExhausted for std::bad_alloc,
// otherwise kInternal. noexcept: a request that could not even fail would stay for ever.
template <typename Run, typename Fail>
void Guard(const Run& run, const Fail& fail) noexcept {
  try {
    run();
  } catch (const std::bad_alloc&) {
    fail(RestError(RetryAfter(absl::ResourceExhaustedError("memory: the server could not get "
                                                           "enough for the call; retry later"),
                              kMemoryRetryAfter)));
  } catch (const std::exception& error) {
    fail(RestError(absl::InternalError(error.what())));
  }
}

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_ERROR_RESPONSE_H_
