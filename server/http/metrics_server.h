// The HTTP port for what looks after the server: /metrics (Prometheus' text format), /healthz (200,
// or 503 when only a new start of the process can help), /readyz (200 when it takes calls, else
// 503 and why), and the pages for people that are handed in. Clients that are slow or silent do not
// hold up the others (http_server.h); the pages for people, which may take long, do not hold up the
// scraper, nor the scraper the probes.
#ifndef SRU_SERVER_HTTP_METRICS_SERVER_H_
#define SRU_SERVER_HTTP_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/listen_address.h"
#include "server/http/http_server.h"
#include "server/http/page_message.h"

namespace sru::server {

class MetricsServer {
 public:
  // What the pages say. Called from several threads at a time, but for `metrics`. What they throw
  // is answered with 503 (memory) or 500.
  struct Pages {
    std::function<std::string()> metrics;
    std::function<std::string()> not_ready;  // why; empty = ready. Returns at once.
    // Every other path (status_page.h), with any method; nullopt = there is none. May be null.
    std::function<std::optional<PageResponse>(const PageRequest&)> other;
    std::function<bool()> alive;  // null = always. Returns at once.
  };

  // kUnavailable when `address` cannot be bound. Port 0 lets the system choose.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const ListenAddress& address, Pages pages,
      const HttpServer::Limits& limits = HttpServer::Limits());
  // Stops listening and waits for the requests that run.
  virtual ~MetricsServer() = default;

  // With the port that is really listened on.
  virtual const ListenAddress& address() const = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_METRICS_SERVER_H_
