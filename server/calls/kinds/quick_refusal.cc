#include "server/calls/kinds/quick_refusal.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/callers/caller.h"
#include "server/calls/kinds/call_basics.h"
#include "server/calls/kinds/end_call.h"
#include "server/calls/messages/request_parser.h"
#include "server/lifecycle/model_registry.h"
#include "server/tracing/tracer.h"

namespace sru::server::calls {
namespace {

// A call that came late has to be done in this part of the time that it says it has left.
constexpr int kLateParts = 16;

// What the queue says to a call of the outline; OK where anything else is to be said about it.
absl::Status Ask(const lifecycle::ServedModel& served, const RequestOutline& outline,
                 callers::Caller* caller, absl::Time deadline) {
  absl::StatusOr<batching::Priority> priority = ParsePriority(outline.priority);
  if (!priority.ok()) return absl::OkStatus();
  if (caller != nullptr) {
    if (!caller->CheckModel(served.name).ok()) return absl::OkStatus();
    if (outline.priority == v1::PRIORITY_UNSPECIFIED) {
      *priority = std::min(*priority, caller->highest_priority());
    } else if (!caller->CheckPriority(*priority).ok()) {
      return absl::OkStatus();
    }
  }
  return served.engine->batcher().CheckAdmission(outline.least_tokens(), outline.least_tasks(),
                                                 *priority, deadline, caller);
}

}  // namespace

std::optional<CallEnd> RefuseQuickly(MethodId method, const ServiceContext& context,
                                     const Exchange& exchange, const RequestOutline& outline) {
  const MethodInfo info = Describe(method);
  if (outline.long_model_name || outline.num_sequences == 0) return std::nullopt;
  if (!CheckOutline(outline, context.limits).ok()) return std::nullopt;
  const absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> served =
      context.registry->Find(outline.model, outline.version, info.tasks, info.one_direction);
  if (!served.ok() || !Answers(*(*served)->model, method)) return std::nullopt;
  const absl::Time now = context.clock->Now();
  const absl::Duration left = exchange.time_left() / (exchange.came_late() ? kLateParts : 1);
  const absl::Status status = Ask(**served, outline, exchange.caller().get(), now + left);
  if (status.ok()) return std::nullopt;
  context.overload.Note(now);
  EndedCall ended(exchange, telemetry::AccessLog::Begin(exchange), status);
  ended.method = method;
  ended.trace = tracing::BeginTrace(context.tracer, exchange, now);
  ended.model_metrics = (*served)->metrics.get();
  ended.record.model = (*served)->name;
  ended.record.version = (*served)->version;
  ended.record.sequences = outline.num_sequences;
  return EndCall(context.metrics, context.access_log, std::move(ended));
}

}  // namespace sru::server::calls
