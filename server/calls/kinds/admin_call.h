// AdminCall: a call that loads, unloads or lists models, which the model manager's thread answers.
#ifndef SRU_SERVER_CALLS_KINDS_ADMIN_CALL_H_
#define SRU_SERVER_CALLS_KINDS_ADMIN_CALL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/message.h"
#include "models/repository.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/request_parser.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_manager.h"

namespace sru::server::calls {

// Used by calls of the admin port; must outlive them. Requests are answered by the manager's thread, or by its BeginStop(), which must
// be called before the transport is shut down.
struct AdminContext {
  const ServiceContext* service = nullptr;
  lifecycle::ModelControl control = lifecycle::ModelControl::kStatic;
  lifecycle::ModelManager* manager = nullptr;
};

// kFailedPrecondition unless calls may load and unload models.
absl::Status CheckExplicitControl(lifecycle::ModelControl control);

// It may end before the manager has finished with it, if the caller leaves or the server shuts down.
class AdminCall final : public Call {
 public:
  // Keeps the call until the manager is done with it.
  using Pointer = std::shared_ptr<AdminCall>;
  using Begin = std::function<absl::Status(const absl::Cord& request, const Pointer& call)>;

  AdminCall(MethodId method, const ServiceContext& context, Exchange* exchange, const Begin& begin)
      : Call(method, context, exchange), begin_(begin) {}

  // Called before the call is handed to the manager.
  void set_model(const std::string& model) {
    if (models::IsValidModelName(model)) logged_model_ = model;
  }
  bool finished() const { return finished_.load(); }

  // Answers the call, unless it has been answered already.
  void Finish(absl::Status status, const google::protobuf::Message* response = nullptr);

  void OnMessage(std::optional<absl::Cord> message) noexcept override;
  void OnCancel() noexcept override {
    Finish(absl::CancelledError("the caller is gone or the server is shutting down"));
  }

 private:
  const Begin& begin_;  // of the method's row
  std::atomic<bool> finished_{false};
};

// Starts calls that parse a `Request`, which has no sub-messages, and begin with begin(request, call). An error that it returns ends the call.
template <typename Request, typename Begin>
std::function<CallHandler*(Exchange*)> AdminCalls(MethodId method, const AdminContext& context,
                                                  Begin begin) {
  AdminCall::Begin parse_and_begin = [begin = std::move(begin)](
                                         const absl::Cord& bytes,
                                         const AdminCall::Pointer& call) -> absl::Status {
    Request request;
    absl::Status status = ParseSmallMessage(bytes, &request);
    return status.ok() ? begin(request, call) : status;
  };
  return [method, &service = *context.service, begin = std::move(parse_and_begin)](
             Exchange* exchange) { return new AdminCall(method, service, exchange, begin); };
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_ADMIN_CALL_H_
