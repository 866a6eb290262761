#include "server/rest/error_response.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/rest/web_protocol.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

// When nothing else is known: as long as a replica needs to leave a load balancer's list.
constexpr absl::Duration kRetryUnavailable = absl::Seconds(1);

// OpenAI's names for kinds of errors, as its server uses them.
const char* OpenAiType(int http_status) {
  static constexpr std::pair<int, const char*> kTypes[] = {{401, "authentication_error"},
                                                           {403, "permission_error"},
                                                           {404, "not_found_error"},
                                                           {429, "rate_limit_error"}};
  for (const auto& [status, type] : kTypes) {
    if (status == http_status) return type;
  }
  return http_status < 500 ? "invalid_request_error" : "server_error";
}

// By the number of the code. The header has the table.
constexpr int kHttpStatus[] = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                               400, 409, 400, 501, 500, 503, 500, 401};

int StatusOf(const RestError& error) {
  return error.http_status != 0 ? error.http_status
                                : kHttpStatus[static_cast<int>(error.status.code())];
}

}  // namespace

http::PageResponse JsonResponse(std::string body, int status) {
  http::PageResponse response;
  response.status = status;
  response.content_type = kJsonContentType;
  response.body = std::move(body);
  return response;
}

RestError ErrorOfCall(const calls::CallEnd& end) {
  RestError error(end.status);
  error.trailers = end.trailers;
  return error;
}

std::string ErrorBody(ErrorForm form, const RestError& error) {
  const std::string code = absl::StatusCodeToString(error.status.code());
  const std::string message(error.status.message());
  json body;
  switch (form) {
    case ErrorForm::kV1:
      body = {{"error", {{"code", code}, {"message", message}}}};
      break;
    case ErrorForm::kOpenInference:
      body = {{"error", message}, {"code", code}};
      break;
    case ErrorForm::kOpenAi:
      body = {{"error",
               {{"message", message},
                {"type", OpenAiType(StatusOf(error))},
                {"param", error.param.empty() ? json() : json(error.param)},
                {"code", code}}}};
      break;
    case ErrorForm::kDeepL:
      body = {{"message", message}};
      break;
    case ErrorForm::kLibreTranslate:
      body = {{"error", message}};
      break;
    default:
      return WebEnd(form, error);
  }
  return JsonText(body);
}

http::PageResponse ErrorResponse(ErrorForm form, const RestError& error) {
  http::PageResponse response = JsonResponse(ErrorBody(form, error), StatusOf(error));
  if (IsFramed(form)) {
    response.status = 200;
    response.content_type = WebContentType(form);
    response.body = WebFrame(form, response.body, /*is_end=*/true);
    return response;
  }
  const bool is_translation = form == ErrorForm::kDeepL || form == ErrorForm::kLibreTranslate;
  if (is_translation && response.status == 401) response.status = 403;
  response.headers = error.headers;
  if (form == ErrorForm::kConnect) AddConnectTrailers(error.trailers, &response);
  std::optional<absl::Duration> retry_after = RetryAfterOf(error.status);
  if (!retry_after.has_value() && response.status == 503) retry_after = kRetryUnavailable;
  if (retry_after.has_value()) {
    // The header is in whole seconds; rounded up, so that nobody comes too early.
    const double seconds = std::ceil(absl::ToDoubleSeconds(*retry_after));
    response.headers.emplace_back("Retry-After", absl::StrCat(static_cast<int64_t>(seconds)));
  }
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace sru::server::rest
