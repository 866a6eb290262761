// What the handlers of calls work with.
#ifndef SRU_SERVER_RPC_SERVICE_CONTEXT_H_
#define SRU_SERVER_RPC_SERVICE_CONTEXT_H_

#include "server/base/clock.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/rpc/byte_budget.h"
#include "server/rpc/in_flight.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/received_messages.h"
#include "server/rpc/request_limits.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::rpc {

// Everything that the handlers use; it must outlive the service.
struct ServiceContext {
  const lifecycle::ModelRegistry* registry = nullptr;
  const lifecycle::ModelManager* manager = nullptr;  // for the states in ListModels
  telemetry::Metrics* metrics = nullptr;
  InFlight* in_flight = nullptr;
  ByteBudget* budget = nullptr;
  telemetry::AccessLog* access_log = nullptr;
  const Clock* clock = nullptr;
  RequestLimits limits;
  ReceivedMessages* received = nullptr;
  OpenStreams* streams = nullptr;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_SERVICE_CONTEXT_H_
