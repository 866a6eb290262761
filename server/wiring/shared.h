// Shared: what all parts of the server use, for as long as it lives.
#ifndef SRU_SERVER_WIRING_SHARED_H_
#define SRU_SERVER_WIRING_SHARED_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/base/clock.h"
#include "server/base/side_threads.h"
#include "server/callers/callers.h"
#include "server/calls/bounds/memory_options.h"
#include "server/calls/byte_budget.h"
#include "server/calls/in_flight.h"
#include "server/calls/kinds/open_streams.h"
#include "server/options.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/tracer.h"
#include "server/transport/security_metrics.h"

namespace sru::server::wiring {

struct Shared {
  explicit Shared(const Options& given);

  const Options options;  // with as many connections as there is memory for
  const RealClock clock;
  const calls::MemoryBudgets budgets;
  std::atomic<int64_t> received_bytes{0};
  calls::ByteBudget inflight_budget{budgets.inflight_bytes};
  calls::OpenStreams open_streams{options.rpc.max_streams};
  calls::InFlight in_flight;
  // Apart, so that nobody's request waits for others' answers.
  SideThreads readers;
  SideThreads writers;
  telemetry::Metrics metrics{&clock};
  transport::SecurityMetrics security_metrics{metrics.registry()};
  telemetry::AccessLog access_log{options.logging.access, &clock};
  const std::unique_ptr<tracing::Tracer> tracer;  // null: no spans
  callers::Callers callers;
};

// What a request may have, by the options.
calls::RequestLimits LimitsFrom(const Options& options);

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_SHARED_H_
