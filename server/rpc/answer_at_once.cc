#include "server/rpc/answer_at_once.h"

#include <utility>

#include "server/rpc/end_call.h"

namespace sru::server::rpc {

grpc::Status EndInHandler(const ServiceContext& context, telemetry::Method method,
                          const lifecycle::ServedModel* served, const absl::Status& status,
                          grpc::CallbackServerContext* call) {
  EndedCall ended;
  ended.call = call;
  ended.request_id = telemetry::AccessLog::Begin(*call);
  ended.method = method;
  ended.record.status = &status;
  if (served != nullptr) {
    ended.model_metrics = served->metrics.get();
    ended.record.model = served->model->name();
    ended.record.version = served->model->version();
  }
  return EndCall(context.metrics, context.access_log, std::move(ended));
}

}  // namespace sru::server::rpc
