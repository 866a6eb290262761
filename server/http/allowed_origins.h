// The origins of web pages, according to the browsers that send their requests.
//
// CORS: --allow_origins names the origins whose web pages may make calls; browsers learn that from
// headers of the answers.
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

// Parses the value of --allow_origins: "*", or origins as browsers send them, separated by commas.
// Those of extensions are chrome-extension://ID and moz-extension://ID; "moz-extension://*" stands
// for all of Firefox's, since it draws an ID at each installation. kInvalidArgument names `flag`.
absl::StatusOr<std::vector<std::string>> ParseAllowedOrigins(absl::string_view flag,
                                                             absl::string_view text);

// Returns true if a page of another origin sent the request: not for what a person did
// (Sec-Fetch-Site: none), nor for programs, which do not say.
bool IsCrossOrigin(const PageRequest& request);

// Returns true if a page of one of the origins sent the request.
bool IsFromAllowedOrigin(const PageRequest& request, const std::vector<std::string>& origins);

// Returns true for a preflight: a browser asks if it may send the actual request.
bool IsPreflight(const PageRequest& request);
// Returns the answer to an allowed preflight. AddCorsHeaders() adds the rest.
PageResponse PreflightResponse();

// Adds the headers that every answer to the request has. Adds nothing if `origins` is empty.
void AddCorsHeaders(const PageRequest& request, const std::vector<std::string>& origins,
                    PageResponse* response);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_ALLOWED_ORIGINS_H_
