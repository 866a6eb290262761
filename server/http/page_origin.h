// Whether a web page of another origin sent a request, according to the browser that sent it. Pure function.
#ifndef SRU_SERVER_HTTP_PAGE_ORIGIN_H_
#define SRU_SERVER_HTTP_PAGE_ORIGIN_H_

#include <cstddef>
#include <string>

#include "server/http/page_message.h"

namespace sru::server::http {

// False for what a person did (Sec-Fetch-Site: none), and for programs, which do not say.
inline bool IsCrossOrigin(const PageRequest& request) {
  const std::string site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return true;
  const std::string origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t at = origin.find("://");
  return at == std::string::npos || origin.substr(at + 3) != request.header("host");
}

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_PAGE_ORIGIN_H_
