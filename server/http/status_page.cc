#include "server/http/status_page.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/http/page_host.h"
#include "server/transport/security_options.h"

namespace sru::server::http {

// Generated from status_page/ by CMake: names and contents.
const std::vector<std::pair<std::string, std::string>>& StatusPageFiles();
// Likewise from docs/.
const std::vector<std::pair<std::string, std::string>>& DocumentFiles();

namespace {

constexpr char kContentSecurityPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr char kStatusType[] = "application/json; charset=utf-8";

const char* ContentTypeOf(const std::string& name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

// Whose history the query asks for: "model=NAME&version=N"; names need no decoding.
telemetry::History::Key ScopeOf(const PageRequest& request) {
  telemetry::History::Key scope;
  for (absl::string_view field : absl::StrSplit(request.query, '&')) {
    if (absl::ConsumePrefix(&field, "model=")) scope.first = std::string(field);
    if (absl::ConsumePrefix(&field, "version=")) scope.second = std::string(field);
  }
  return scope;
}

}  // namespace

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

std::optional<PageResponse> DocumentAt(const PageRequest& request) {
  absl::string_view name = request.path;
  if (!absl::ConsumePrefix(&name, "/docs/")) return std::nullopt;
  for (const auto& [file, text] : DocumentFiles()) {
    if (file == name) return IsRead(request) ? TextResponse(200, text) : NotARead(request);
  }
  return std::nullopt;
}

absl::Status StatusPage::CheckAccess(const PageRequest& request) const {
  if (try_access_ == TryAccess::kAll) {
    if (IsAllowedPageHost(request.header("host"), hosts_)) return absl::OkStatus();
    return absl::PermissionDeniedError(WrongPageHost(request.header("host")));
  }
  if (try_access_ == TryAccess::kOff) {
    return absl::PermissionDeniedError(
        "trying a model is turned off on this server (--status_page_try=off, or --tls_client_ca, "
        "whose callers all show a certificate)");
  }
  const bool forwarded = request.headers.count("forwarded") + request.headers.count("via") +
                             request.headers.count("x-forwarded-for") +
                             request.headers.count("x-real-ip") >
                         0;
  const std::optional<PageHost> host = ParsePageHost(request.header("host"));
  if (!forwarded && transport::IsLoopbackHost(request.remote_address()) && host.has_value() &&
      host->is_loopback()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "a model can be tried from the server's own machine only (--status_page_try=local): open "
      "this page as localhost through `kubectl port-forward` or `ssh -L`, or start the server with "
      "--status_page_try=all, as for a container, whose host has another address");
}

std::optional<PageResponse> StatusPage::PageAt(const PageRequest& request) const {
  const std::string name = request.path == "/" ? "/index.html" : request.path;
  const bool is_status = name == "/status.json";
  const auto& files = StatusPageFiles();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&name](const auto& one) { return name == "/" + one.first; });
  if (!is_status && file == files.end()) return DocumentAt(request);
  if (!IsRead(request)) return NotARead(request);
  PageResponse response;
  response.content_type = is_status ? kStatusType : ContentTypeOf(file->first);
  response.body =
      is_status ? StatusJson(snapshot_(), CheckAccess(request), ScopeOf(request)) : file->second;
  return response;
}

std::optional<PageResponse> StatusPage::Handle(const PageRequest& request) const {
  std::optional<PageResponse> response = PageAt(request);
  if (!response.has_value()) return response;
  const std::string host = request.header("host");
  if (!IsAllowedPageHost(host, hosts_)) {
    response.emplace();
    response->status = 403;
    response->body = absl::StrCat(WrongPageHost(host), "\n");
  }
  AddSecurityHeaders(&*response);
  return response;
}

}  // namespace sru::server::http
