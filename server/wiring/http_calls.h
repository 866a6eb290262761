// HttpCalls: answers calls over HTTP, which come by native doors: a server of HTTP and the gateway
// to the methods.
#ifndef SRU_SERVER_WIRING_HTTP_CALLS_H_
#define SRU_SERVER_WIRING_HTTP_CALLS_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/calls/in_flight.h"
#include "server/http/http_server.h"
#include "server/rest/gateway.h"
#include "server/wiring/doors.h"
#include "server/wiring/served_models.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

class HttpCalls {
 public:
  HttpCalls(Shared* shared, const ServedModels& models, const CallMethods* methods,
            const Doors* doors);

  // When the doors' loops run; without loops there is no server.
  void StartCallServer();
  // Of every gateway. To be called when the methods are there.
  rest::Gateway::Options MakeGatewayOptions();
  // Unauthenticated, or who calls.
  absl::StatusOr<callers::CallerPtr> FindCaller(const http::PageRequest& request) const;

  // Null = none; from any thread.
  http::HttpServer* server() const { return serving_call_server_; }
  rest::Gateway* gateway() const { return gateway_.get(); }
  calls::InFlight& texts_in_flight() { return texts_in_flight_; }

 private:
  Shared& shared_;
  const Options& options_;
  const http::Probes probes_;
  const CallMethods& methods_;
  const Doors& doors_;
  calls::InFlight texts_in_flight_;
  const std::vector<rest::RouteGroup> text_routes_;              // empty with SRU_TEXTS=OFF
  std::unique_ptr<rest::Gateway> gateway_;                       // null = none
  std::unique_ptr<http::HttpServer> call_server_;                // likewise
  std::atomic<http::HttpServer*> serving_call_server_{nullptr};  // for the metrics port
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_HTTP_CALLS_H_
