// Refuses a call in an overload before it is made: in a flood most calls are refused, and each
// refusal takes time that answers need. From an outline of the message it asks the queue that
// TaskCall (task_call.h) would ask, and leaves everything that is wrong with the request to it.
#ifndef SRU_SERVER_CALLS_KINDS_QUICK_REFUSAL_H_
#define SRU_SERVER_CALLS_KINDS_QUICK_REFUSAL_H_

#include <optional>

#include "absl/strings/cord.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/method_info.h"

namespace sru::server::calls {

// How a call of a method that computes in batches ends, if its queue refuses it now. Nothing: it
// does not, or nobody was refused of late, so that the call is to be made. A refusal is counted and
// logged like any other, without times. Thread-safe.
std::optional<CallEnd> RefuseQuickly(MethodId method, const ServiceContext& context,
                                     const Exchange& exchange, const RequestOutline& outline);

template <typename Request>
std::optional<CallEnd> RefuseQuickly(MethodId method, const ServiceContext& context,
                                     const Exchange& exchange, const absl::Cord& message) {
  RequestOutline outline;
  if (!context.overload.IsRecent(context.clock->Now()) ||
      !ReadOutline<Request>(message, &outline)) {
    return std::nullopt;
  }
  return RefuseQuickly(method, context, exchange, outline);
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_QUICK_REFUSAL_H_
