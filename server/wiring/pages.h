// Pages: the port for monitoring, and what its pages show: metrics, probes, the status page with
// its boxes, and history.
#ifndef SRU_SERVER_WIRING_PAGES_H_
#define SRU_SERVER_WIRING_PAGES_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "server/http/metrics_server.h"
#include "server/http/status_page.h"
#include "server/rest/gateway.h"
#include "server/telemetry/history.h"
#include "server/wiring/doors.h"
#include "server/wiring/http_calls.h"
#include "server/wiring/served_models.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

class Pages {
 public:
  Pages(Shared* shared, const ServedModels* models, const Doors* doors, HttpCalls* http_calls);

  // Opens the port; may be called before all else.
  absl::Status Start();
  // From now on the boxes make calls.
  void OpenBoxes();
  void CloseBoxes();
  // Closes the port. The pages read everything, so this comes before anything else is destroyed.
  void Stop();

  const ListenAddress& address() const { return metrics_server_->address(); }

 private:
  rest::Gateway::Options MakePageGatewayOptions();
  bool AnswerPageCall(const std::shared_ptr<http::HttpCall>& call);
  // Everything that /metrics shows, and the status page.
  telemetry::ServerLevels Levels() const;
  http::StatusSnapshot Snapshot() const;

  Shared& shared_;
  const Options& options_;
  const ServedModels& models_;
  const Doors& doors_;
  HttpCalls& http_calls_;
  telemetry::History history_;
  http::StatusPage status_page_;
  std::unique_ptr<http::MetricsServer> metrics_server_;
  std::unique_ptr<rest::Gateway> page_gateway_;
  std::atomic<rest::Gateway*> serving_page_gateway_{nullptr};  // null while models are loaded
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_PAGES_H_
