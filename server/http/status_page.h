// What the metrics port shows to people: the page at / with its script and style (status_page/,
// compiled in), /status.json that it polls, and /try (try_endpoint.h).
//
// The page loads nothing from elsewhere, and its Content-Security-Policy lets it load nothing else;
// it cannot be framed. It shows no more than /metrics and ListModels do, and no request's content.
// Thread-safe.
#ifndef SRU_SERVER_HTTP_STATUS_PAGE_H_
#define SRU_SERVER_HTTP_STATUS_PAGE_H_

#include <functional>
#include <optional>
#include <utility>

#include "server/http/page_message.h"
#include "server/http/status_json.h"
#include "server/http/try_endpoint.h"

namespace sru::server {

class StatusPage {
 public:
  // `snapshot` is called from the HTTP threads, several at a time.
  StatusPage(std::function<StatusSnapshot()> snapshot, TryAccess try_access)
      : snapshot_(std::move(snapshot)), try_endpoint_(try_access) {}

  TryEndpoint& try_endpoint() { return try_endpoint_; }

  // nullopt for a path that is none of the page's.
  std::optional<PageResponse> Handle(const PageRequest& request);

 private:
  const std::function<StatusSnapshot()> snapshot_;
  TryEndpoint try_endpoint_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_STATUS_PAGE_H_
