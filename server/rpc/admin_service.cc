#include "server/rpc/admin_service.h"

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/repository.h"
#include "server/base/out_of_memory.h"
#include "server/rpc/end_call.h"
#include "server/rpc/request_parser.h"
#include "server/rpc/response_writer.h"

namespace sru::server {
namespace {

// One call. It may end before the manager has finished with it, if the caller leaves or the server
// shuts down; the manager then uses the shared State, which outlives the call.
class AdminCall final : public grpc::ServerUnaryReactor {
 public:
  class State {
   public:
    State(AdminCall* call, grpc::CallbackServerContext* context, grpc::ByteBuffer* response_bytes,
          Method method, Metrics* metrics, AccessLog* access_log)
        : call_(call),
          context_(context),
          response_bytes_(response_bytes),
          method_(method),
          metrics_(*metrics),
          access_log_(*access_log),
          request_id_(AccessLog::Begin(*context)) {}

    // Called before the call is handed to the manager.
    void set_model(const std::string& model) {
      if (models::IsValidModelName(model)) model_ = model;
    }

    bool finished() const { return finished_.load(); }

    // Answers the call, unless it has been answered already.
    void Finish(absl::Status status, const google::protobuf::Message* response = nullptr) {
      if (finished_.exchange(true)) return;
      if (response != nullptr) {
        status = CatchOutOfMemory(
            [this, response] { return SerializeMessage(*response, response_bytes_); });
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
    const Method method_;
    Metrics& metrics_;
    AccessLog& access_log_;
    std::string request_id_;
    std::string model_;
    std::atomic<bool> finished_{false};
  };

  AdminCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response_bytes, Method method,
            Metrics* metrics, AccessLog* access_log)
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

// Makes a call and begins it with `begin(state)`. If there is no memory for that, answers it with
// RESOURCE_EXHAUSTED.
template <typename Begin>
grpc::ServerUnaryReactor* StartCall(grpc::CallbackServerContext* context,
                                    grpc::ByteBuffer* response_bytes, Method method,
                                    Metrics* metrics, AccessLog* access_log, const Begin& begin) {
  AdminCall* call = nullptr;
  try {
    call = new AdminCall(context, response_bytes, method, metrics, access_log);
    begin(call->state());
  } catch (const std::bad_alloc&) {
    if (call == nullptr) {
      grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
      reactor->Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, ""));
      return reactor;
    }
    call->state()->Finish(OutOfMemoryStatus());
  }
  return call;
}

}  // namespace

absl::Status AdminService::CheckControl() const {
  if (control_ == ModelControl::kExplicit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "models cannot be loaded or unloaded by calls: the server runs with --model_control=",
      control_ == ModelControl::kPoll ? "poll" : "static",
      "; start it with --model_control=explicit"));
}

grpc::ServerUnaryReactor* AdminService::LoadModel(grpc::CallbackServerContext* call,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<AdminCall::State>& state) {
    v1::LoadModelRequest load;
    absl::Status status = ParseSmallMessage(*request, &load);
    status.Update(CheckControl());
    if (!status.ok()) return state->Finish(status);
    state->set_model(load.model());
    manager_.RequestLoad(
        load.model(), [state] { return state->finished(); },
        [state](const absl::StatusOr<std::vector<ModelStatus>>& statuses) {
          if (!statuses.ok()) return state->Finish(statuses.status());
          v1::LoadModelResponse answer;
          for (const ModelStatus& s : *statuses) WriteModelStatus(s, answer.add_statuses());
          state->Finish(absl::OkStatus(), &answer);
        });
  };
  return StartCall(call, response, Method::kLoadModel, &metrics_, &access_log_, begin);
}

grpc::ServerUnaryReactor* AdminService::UnloadModel(grpc::CallbackServerContext* call,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  const auto begin = [&](const std::shared_ptr<AdminCall::State>& state) {
    v1::UnloadModelRequest unload;
    absl::Status status = ParseSmallMessage(*request, &unload);
    status.Update(CheckControl());
    if (!status.ok()) return state->Finish(status);
    state->set_model(unload.model());
    manager_.RequestUnload(
        unload.model(), [state] { return state->finished(); },
        [state](const absl::Status& result) {
          const v1::UnloadModelResponse answer;
          state->Finish(result, result.ok() ? &answer : nullptr);
        });
  };
  return StartCall(call, response, Method::kUnloadModel, &metrics_, &access_log_, begin);
}

}  // namespace sru::server
