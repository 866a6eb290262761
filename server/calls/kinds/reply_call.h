// ReplyCall: a call with a small request that a function answers, at once or later from another
// thread: what only looks something up, and what the model manager's thread loads, unloads and
// lists.
#ifndef SRU_SERVER_CALLS_KINDS_REPLY_CALL_H_
#define SRU_SERVER_CALLS_KINDS_REPLY_CALL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "models/repository.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/method.h"

namespace sru::server::calls {

// It may end before the manager has finished with it, if the caller leaves or the server shuts
// down.
class ReplyCall final : public Call {
 public:
  // Keeps the call until it is answered.
  using Pointer = std::shared_ptr<ReplyCall>;
  using Begin = std::function<absl::Status(const absl::Cord& request, const Pointer& call)>;

  ReplyCall(MethodId method, const ServiceContext& context, Exchange* exchange, const Begin& begin)
      : Call(method, context, exchange), begin_(begin) {}

  // While it begins: the model that it is about, by its name or as it is served.
  void set_model(const std::string& model) {
    if (models::IsValidModelName(model)) logged_model_ = model;
  }
  using Call::SetModel;
  bool finished() const { return finished_.load(); }

  // Answers the call, unless it has been answered already; with the response if the status is OK.
  void Finish(absl::Status status, const google::protobuf::Message* response = nullptr);

  void OnMessage(std::optional<absl::Cord> message) noexcept override;
  void OnCancel() noexcept override;

 private:
  const Begin& begin_;  // of the method's row
  std::atomic<bool> finished_{false};
  // It ends once both are true; each is set by one thread, which then looks at the other.
  std::atomic<bool> begun_{false};
  std::atomic<bool> cancelled_{false};
};

// The row of a method whose calls parse a `Request`, which has no sub-messages, and begin with
// begin(request, call), which answers with a `Response`. An error that it returns ends the call.
// `context` must outlive them.
template <typename Request, typename Response, typename Function>
Method ReplyMethod(MethodId id, const ServiceContext& context, Function begin) {
  ReplyCall::Begin parse = [begin = std::move(begin)](const absl::Cord& bytes,
                                                      const ReplyCall::Pointer& call) {
    Request request;
    SRU_RETURN_UNLESS_OK(ParseSmallMessage(bytes, &request));
    return begin(request, call);
  };
  return Method::Of<Request, Response>(
      id, [id, &context, parse = std::move(parse)](Exchange* exchange) {
        return new ReplyCall(id, context, exchange, parse);
      });
}

// The same for calls that write(request, &response, &served) answers at once. `served` is the model
// that it found, if any.
template <typename Request, typename Response, typename Function>
Method LookupMethod(MethodId id, const ServiceContext& context, Function write) {
  return ReplyMethod<Request, Response>(
      id, context,
      [write = std::move(write)](const Request& request,
                                 const ReplyCall::Pointer& call) -> absl::Status {
        Response response;
        std::shared_ptr<lifecycle::ServedModel> served;
        absl::Status status = write(request, &response, &served);
        if (served != nullptr) call->SetModel(std::move(served));
        if (status.ok()) call->Finish(absl::OkStatus(), &response);
        return status;
      });
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_REPLY_CALL_H_
