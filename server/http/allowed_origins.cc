#include "server/http/allowed_origins.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/http/page_host.h"

namespace sru::server::http {
namespace {

constexpr char kAny[] = "*";

// "*" lets clients add their own headers; OpenAI's client describes itself in several. Old browsers
// do not know "*", and it never covers Authorization, so the headers that the protocols need are
// listed as well.
constexpr char kRequestHeaders[] =
    "Authorization, Content-Type, Content-Encoding, Connect-Protocol-Version, Connect-Timeout-Ms, "
    "Connect-Accept-Encoding, Grpc-Timeout, X-Grpc-Web, X-User-Agent, X-Request-Id, "
    "X-Request-Timeout-Ms, Traceparent, Inference-Header-Content-Length, *";
constexpr char kAnswerHeaders[] =
    "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, X-Request-Id, Trailer-X-Request-Id, "
    "Retry-After, Inference-Header-Content-Length, X-RateLimit-Limit-Requests, "
    "X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, "
    "X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens";
// Two hours: Chromium keeps the answer to a preflight no longer.
constexpr char kMaxAgeSeconds[] = "7200";

constexpr char kChromeExtension[] = "chrome-extension://";
constexpr char kMozExtension[] = "moz-extension://";
constexpr char kAnyMozExtension[] = "moz-extension://*";
constexpr size_t kLongestId = 64;  // Chromium's have 32 characters, Firefox's 36

bool IsExtension(absl::string_view text, absl::string_view scheme) {
  return absl::ConsumePrefix(&text, scheme) && !text.empty() && text.size() <= kLongestId &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

// Origins are compared as texts, so an origin must be written as browsers send it: in lower case,
// without the scheme's default port.
bool IsOrigin(absl::string_view text) {
  if (text == kAnyMozExtension || IsExtension(text, kChromeExtension) ||
      IsExtension(text, kMozExtension)) {
    return true;
  }
  absl::string_view host = text;
  const bool is_https = absl::ConsumePrefix(&host, "https://");
  if (!is_https && !absl::ConsumePrefix(&host, "http://")) return false;
  return ParsePageHost(host).has_value() && !absl::EndsWith(host, is_https ? ":443" : ":80") &&
         std::none_of(text.begin(), text.end(), absl::ascii_isupper);
}

bool Has(const std::vector<std::string>& origins, absl::string_view origin) {
  return std::find(origins.begin(), origins.end(), origin) != origins.end();
}
bool AllowsAny(const std::vector<std::string>& origins) { return Has(origins, kAny); }

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAllowedOrigins(absl::string_view flag,
                                                             absl::string_view text) {
  std::vector<std::string> origins;
  if (text.empty()) return origins;
  for (const absl::string_view origin : absl::StrSplit(text, ',')) {
    if (origin != kAny && !IsOrigin(origin)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag,
          ": expected * or origins with commas between them, in lower case, without a path and "
          "without the scheme's default port, such as https://app.example.com or "
          "moz-extension://*, found '",
          origin, "'"));
    }
    origins.emplace_back(origin);
  }
  return origins;
}

bool IsCrossOrigin(const PageRequest& request) {
  const std::string site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return true;
  const std::string origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t at = origin.find("://");
  return at == std::string::npos || origin.substr(at + 3) != request.header("host");
}

bool IsFromAllowedOrigin(const PageRequest& request, const std::vector<std::string>& origins) {
  const std::string* const origin = request.headers.Find("origin");
  if (origin == nullptr) return false;
  return AllowsAny(origins) || Has(origins, *origin) ||
         (Has(origins, kAnyMozExtension) && IsExtension(*origin, kMozExtension));
}

bool IsPreflight(const PageRequest& request) {
  return request.method == "OPTIONS" && request.headers.count("origin") > 0 &&
         request.headers.count("access-control-request-method") > 0;
}

PageResponse PreflightResponse() {
  PageResponse response;
  response.status = 204;
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Allow-Headers", kRequestHeaders},
                      {"Access-Control-Max-Age", kMaxAgeSeconds}};
  return response;
}

void AddCorsHeaders(const PageRequest& request, const std::vector<std::string>& origins,
                    PageResponse* response) {
  if (origins.empty()) return;
  const bool any = AllowsAny(origins);
  // A cache must not give a page the answer that was meant for a page of another origin.
  if (!any) response->headers.emplace_back("Vary", "Origin");
  if (!IsFromAllowedOrigin(request, origins)) return;
  response->headers.emplace_back("Access-Control-Allow-Origin",
                                 any ? kAny : request.header("origin"));
  response->headers.emplace_back("Access-Control-Expose-Headers", kAnswerHeaders);
}

}  // namespace sru::server::http
