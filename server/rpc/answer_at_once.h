// How a call ends that only looks something up, and is answered in its handler. Thread-safe.
#ifndef SRU_SERVER_RPC_ANSWER_AT_ONCE_H_
#define SRU_SERVER_RPC_ANSWER_AT_ONCE_H_

#include <new>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "server/lifecycle/model_registry.h"
#include "server/rpc/call_basics.h"
#include "server/rpc/service_context.h"
#include "server/telemetry/method.h"

namespace sru::server::rpc {

// Ends a call in its handler with the grpc::Status that `work` returns.
template <typename Work>
grpc::ServerUnaryReactor* AnswerAtOnce(grpc::CallbackServerContext* call, const Work& work) {
  try {
    return FinishAtOnce(call, work());
  } catch (const std::bad_alloc&) {
    return FinishAtOnce(call, {grpc::StatusCode::RESOURCE_EXHAUSTED, kNoMemory});
  }
}

// Counts and logs a call that is answered in its handler, and gives the status to end it with. `served` is the model that the call
// found; null: none.
grpc::Status EndInHandler(const ServiceContext& context, telemetry::Method method,
                          const lifecycle::ServedModel* served, const absl::Status& status,
                          grpc::CallbackServerContext* call);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_ANSWER_AT_ONCE_H_
