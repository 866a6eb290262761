// AdminCall: a call that loads or unloads models, which the model manager's thread answers.
#ifndef SRU_SERVER_RPC_ADMIN_CALL_H_
#define SRU_SERVER_RPC_ADMIN_CALL_H_

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "models/repository.h"
#include "server/lifecycle/model_control.h"
#include "server/rpc/call_basics.h"
#include "server/rpc/end_call.h"
#include "server/rpc/response_writer.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/method.h"
#include "server/telemetry/metrics.h"

namespace sru::server::rpc {

// kFailedPrecondition unless calls may load and unload models.
absl::Status CheckExplicitControl(lifecycle::ModelControl control);

// One call. It may end before the manager has finished with it, if the caller leaves or the server
// shuts down; the manager then uses the shared State, which outlives the call.
class AdminCall final : public grpc::ServerUnaryReactor {
 public:
  class State {
   public:
    State(AdminCall* call, grpc::CallbackServerContext* context, grpc::ByteBuffer* response_bytes,
          telemetry::Method method, telemetry::Metrics* metrics, telemetry::AccessLog* access_log)
        : call_(call),
          context_(context),
          response_bytes_(response_bytes),
          method_(method),
          metrics_(*metrics),
          access_log_(*access_log),
          request_id_(telemetry::AccessLog::Begin(*context)) {}

    // Called before the call is handed to the manager.
    void set_model(const std::string& model) {
      if (models::IsValidModelName(model)) model_ = model;
    }

    bool finished() const { return finished_.load(); }

    // Answers the call, unless it has been answered already.
    void Finish(absl::Status status, const google::protobuf::Message* response = nullptr) {
      if (finished_.exchange(true)) return;
      if (response != nullptr) {
        status = SerializeMessage(*response, response_bytes_);
      }
      EndedCall ended;
      ended.call = context_;
      ended.request_id = std::move(request_id_);
      ended.method = method_;
      ended.record.status = &status;
      ended.record.model = model_;
      call_->Finish(EndCall(&metrics_, &access_log_, std::move(ended)));
    }

   private:
    // Valid until Finish().
    AdminCall* const call_;
    grpc::CallbackServerContext* const context_;
    grpc::ByteBuffer* const response_bytes_;
    const telemetry::Method method_;
    telemetry::Metrics& metrics_;
    telemetry::AccessLog& access_log_;
    std::string request_id_;
    std::string model_;
    std::atomic<bool> finished_{false};
  };

  AdminCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response_bytes,
            telemetry::Method method, telemetry::Metrics* metrics, telemetry::AccessLog* access_log)
      : state_(
            std::make_shared<State>(this, context, response_bytes, method, metrics, access_log)) {}

  const std::shared_ptr<State>& state() const { return state_; }

  void OnCancel() override {
    state_->Finish(absl::CancelledError("the caller is gone or the server is shutting down"));
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<State> state_;
};

// Makes a call and begins it with `begin(state)`. If that has no memory, answers it with
// RESOURCE_EXHAUSTED.
template <typename Begin>
grpc::ServerUnaryReactor* StartAdminCall(grpc::CallbackServerContext* context,
                                         grpc::ByteBuffer* response_bytes, telemetry::Method method,
                                         telemetry::Metrics* metrics,
                                         telemetry::AccessLog* access_log, const Begin& begin) {
  auto* const call = new AdminCall(context, response_bytes, method, metrics, access_log);
  try {
    begin(call->state());
  } catch (const std::bad_alloc&) {
    call->state()->Finish(absl::ResourceExhaustedError(kNoMemory));
  }
  return call;
}

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_ADMIN_CALL_H_
