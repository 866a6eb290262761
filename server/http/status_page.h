// The pages for people on the metrics port: the page at / with its scripts and style (status_page/,
// compiled in), /status.json, which it polls, and documents. Its boxes call models at /v1 of the
// same port (MetricsServer::Pages::call); who may is decided here.
//
// The page loads nothing from elsewhere, and its Content-Security-Policy enforces that. It cannot
// be framed, and it is shown only under names that no other web site can have (page_host.h). It
// shows what /metrics, ListModels and the log show, and no content of requests. Thread-safe.
#ifndef SRU_SERVER_HTTP_STATUS_PAGE_H_
#define SRU_SERVER_HTTP_STATUS_PAGE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/http/http_options.h"
#include "server/http/page_message.h"
#include "server/http/status_json.h"

namespace sru::server::http {

// The document at the path /docs/NAME.md, of those that come with the server; nullopt: there is
// none.
std::optional<PageResponse> DocumentAt(const PageRequest& request);

// Headers of pages for people: nothing is loaded from elsewhere, and nobody frames them.
void AddSecurityHeaders(PageResponse* response);

class StatusPage {
 public:
  // `snapshot` is called from several threads at a time. `hosts` are those of
  // --status_page_host.
  StatusPage(std::function<StatusSnapshot()> snapshot, TryAccess try_access,
             const std::vector<std::string>& hosts = {})
      : snapshot_(std::move(snapshot)), try_access_(try_access), hosts_(hosts) {}

  // Whether the sender may call models: OK, or kPermissionDenied with advice on what to do.
  absl::Status CheckAccess(const PageRequest& request) const;

  // Returns nullopt for a path that is not one of the page's.
  std::optional<PageResponse> Handle(const PageRequest& request) const;

 private:
  std::optional<PageResponse> PageAt(const PageRequest& request) const;

  const std::function<StatusSnapshot()> snapshot_;
  const TryAccess try_access_;
  const std::vector<std::string> hosts_;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_STATUS_PAGE_H_
