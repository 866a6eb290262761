// The HTTP port for monitoring: /metrics (Prometheus' text format), /healthz (200, or 503 when only
// a restart of the process can help), /readyz (200 when the server takes calls, else 503 and the
// reason), /version (which build this is), and the pages for people and their calls that are passed
// in. Slow or silent clients do not hold up the others (http_server.h). The pages for people, which
// may take long, do not hold up the scraper, and the scraper does not hold up the probes.
#ifndef SRU_SERVER_HTTP_METRICS_SERVER_H_
#define SRU_SERVER_HTTP_METRICS_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/base/listen_address.h"
#include "server/base/side_threads.h"
#include "server/http/http_server.h"
#include "server/http/page_message.h"

namespace sru::server::http {

struct Probes {
  std::function<std::string()> not_ready;  // why; empty = ready. Returns at once.
  std::function<bool()> alive;             // null = always. Returns at once.
};

bool IsProbe(const PageRequest& request);  // by its path
PageResponse AnswerProbe(const PageRequest& request, const Probes& probes);

class MetricsServer final {
 public:
  // The contents of the pages. All except `metrics` may be called by several threads at a time. If
  // one throws, the answer is 503 (memory) or 500.
  struct Pages {
    std::function<std::string()> metrics;
    Probes probes;
    // Calls of models; null = the path is none of theirs. Must return at once. May be null.
    std::function<std::shared_ptr<HttpCall>(calls::HttpExchange*, const PageRequest&)> call;
    // Every other path (status_page.h), with any method; nullopt = there is none. May be null.
    std::function<std::optional<PageResponse>(const PageRequest&)> other;
  };

  // kUnavailable if `address` cannot be bound. Port 0 lets the system choose.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(
      const ListenAddress& address, Pages pages,
      const HttpServer::Limits& limits = HttpServer::Limits());
  // Stops listening and waits for running requests.
  ~MetricsServer();

  // The address with the actual port.
  const ListenAddress& address() const { return http_->address(); }

 private:
  explicit MetricsServer(Pages pages) : pages_(std::move(pages)) {}

  std::shared_ptr<HttpCall> Start(calls::HttpExchange* exchange, PageRequest request);
  void Handle(const std::shared_ptr<HttpCall>& call);
  PageResponse OtherPage(const PageRequest& request) const;
  void QueueMetrics(const std::shared_ptr<HttpCall>& call);
  void AnswerMetrics();

  const Pages pages_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::shared_ptr<HttpCall>> metrics_calls_ ABSL_GUARDED_BY(mutex_);  // waiting
  // For work that would occupy the server's one thread for too long.
  SideThreads metrics_worker_{1};
  SideThreads page_workers_{2};
  std::unique_ptr<HttpServer> http_;  // constant once it listens
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_METRICS_SERVER_H_
