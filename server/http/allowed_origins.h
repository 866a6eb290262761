// CORS: which web pages of other origins may make calls (--allow_origins), and the headers by which their browsers learn it.
//
// Pure functions.
#ifndef SRU_SERVER_HTTP_ALLOWED_ORIGINS_H_
#define SRU_SERVER_HTTP_ALLOWED_ORIGINS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/http/page_message.h"

namespace sru::server::http {

// Parses the value of --allow_origins: "*", or origins as browsers send them, separated by commas. kInvalidArgument names `flag`.
absl::StatusOr<std::vector<std::string>> ParseAllowedOrigins(absl::string_view flag,
                                                             absl::string_view text);

// Whether a page of one of the origins sent the request.
bool IsFromAllowedOrigin(const PageRequest& request, const std::vector<std::string>& origins);

// Whether a browser asks if it may send another request.
bool IsPreflight(const PageRequest& request);
// The consent, without the headers that all answers have.
PageResponse PreflightResponse();

// Adds what every answer to the request tells the browser. Without origins, nothing.
void AddCorsHeaders(const PageRequest& request, const std::vector<std::string>& origins,
                    PageResponse* response);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_ALLOWED_ORIGINS_H_
