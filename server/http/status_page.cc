#include "server/http/status_page.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/page_host.h"

namespace sru::server {

// Generated from status_page/ by CMake: names and contents.
const std::vector<std::pair<std::string, std::string>>& StatusPageFiles();

namespace {

constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* ContentTypeOf(const std::string& name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

void AddSecurityHeaders(PageResponse* response) {
  for (const auto& [name, value] : {
           std::pair{"Content-Security-Policy", kContentSecurityPolicy},
           std::pair{"X-Content-Type-Options", "nosniff"},
           std::pair{"X-Frame-Options", "DENY"},
           std::pair{"Referrer-Policy", "no-referrer"},
           std::pair{"Cross-Origin-Resource-Policy", "same-origin"},
           std::pair{"Cache-Control", "no-store"},
       }) {
    response->headers.emplace_back(name, value);
  }
}

PageResponse MethodNotAllowed(const PageRequest& request) {
  PageResponse response;
  response.status = 405;
  response.body = absl::StrCat(request.path, " takes GET and HEAD\n");
  response.headers.emplace_back("Allow", "GET, HEAD");
  return response;
}

bool IsTryPath(const std::string& path) {
  return path == kTryPath || path == kTryGeneratePath || path == kTryAnswerPath ||
         path == kTryTranslatePath;
}

}  // namespace

std::optional<PageResponse> StatusPage::PageAt(const PageRequest& request) {
  std::optional<PageResponse> response;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (IsTryPath(request.path)) {
    response = try_endpoint_.Handle(request);
  } else if (request.path == "/status.json") {
    if (reads) {
      response.emplace();
      response->content_type = "application/json; charset=utf-8";
      response->body = StatusJson(snapshot_(), try_endpoint_.CheckAccess(request));
    } else {
      response = MethodNotAllowed(request);
    }
  } else {
    const std::string name = request.path == "/" ? "/index.html" : request.path;
    for (const auto& [file, content] : StatusPageFiles()) {
      if (name != "/" + file) continue;
      if (reads) {
        response.emplace();
        response->content_type = ContentTypeOf(file);
        response->body = content;
      } else {
        response = MethodNotAllowed(request);
      }
    }
  }
  return response;
}

std::optional<PageResponse> StatusPage::Handle(const PageRequest& request) {
  std::optional<PageResponse> response = PageAt(request);
  if (!response.has_value()) return response;
  // /try answers this itself, in JSON.
  const std::string host = request.header("host");
  if (!IsTryPath(request.path) && !IsAllowedPageHost(host, hosts_)) {
    response.emplace();
    response->status = 403;
    response->body = absl::StrCat(WrongPageHost(host), "\n");
  }
  AddSecurityHeaders(&*response);
  return response;
}

}  // namespace sru::server
