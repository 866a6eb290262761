// What the handlers of calls work with.
#ifndef SRU_SERVER_CALLS_KINDS_SERVICE_CONTEXT_H_
#define SRU_SERVER_CALLS_KINDS_SERVICE_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/call_origin.h"
#include "server/base/clock.h"
#include "server/base/side_threads.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/byte_budget.h"
#include "server/calls/in_flight.h"
#include "server/calls/kinds/open_streams.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::tracing {
class Tracer;  // server/tracing/tracer.h
}  // namespace sru::server::tracing

namespace sru::server::calls {

// When a queue has last refused a call. Thread-safe.
class Overload {
 public:
  void Note(absl::Time now) { last_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }
  bool IsRecent(absl::Time now) const {
    return absl::ToUnixNanos(now) - last_.load(std::memory_order_relaxed) < kRecentNanoseconds;
  }

 private:
  static constexpr int64_t kRecentNanoseconds = 100'000'000;

  std::atomic<int64_t> last_{0};
};

// Everything that the handlers use; it must outlive the service.
struct ServiceContext {
  const lifecycle::ModelRegistry* registry = nullptr;
  const lifecycle::ModelManager* manager = nullptr;  // for the states in ListModels
  telemetry::Metrics* metrics = nullptr;
  InFlight* in_flight = nullptr;
  ByteBudget* budget = nullptr;
  telemetry::AccessLog* access_log = nullptr;
  tracing::Tracer* tracer = nullptr;  // null: no call has spans
  const Clock* clock = nullptr;
  RequestLimits limits;
  // Of the messages that have arrived whole, without headers; for a metric.
  std::atomic<int64_t>* received_bytes = nullptr;
  OpenStreams* streams = nullptr;
  // For whom the states after a call's prompt are kept and found (GenerateTask::prefix_owner);
  // null: for nobody.
  std::function<std::string(const CallOrigin&)> prefix_owner;
  // Long texts are read and long answers are written on these; null: where they come.
  SideThreads* readers = nullptr;
  SideThreads* writers = nullptr;
  mutable Overload overload;
};

// What the handlers of calls of the admin port work with besides the rest. Must outlive the calls.
// Requests are answered by the manager's thread, or by its BeginStop(), which must be called before
// the transport is shut down.
struct AdminContext {
  const ServiceContext* service = nullptr;
  lifecycle::ModelControl control = lifecycle::ModelControl::kStatic;
  lifecycle::ModelManager* manager = nullptr;

  // kFailedPrecondition unless calls may load and unload models.
  absl::Status CheckExplicitControl() const {
    if (control == lifecycle::ModelControl::kExplicit) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "models cannot be loaded or unloaded by calls: the server runs with --model_control=",
        control == lifecycle::ModelControl::kPoll ? "poll" : "static",
        "; start it with --model_control=explicit"));
  }
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_SERVICE_CONTEXT_H_
