// LookupCall: a call that only looks something up, and is answered at once.
#ifndef SRU_SERVER_CALLS_KINDS_LOOKUP_CALL_H_
#define SRU_SERVER_CALLS_KINDS_LOOKUP_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/messages/response_writer.h"

namespace sru::server::calls {

class LookupCall final : public Call {
 public:
  // Gives the answer to a request. `served` is the model that it found, if any.
  using Answer = std::function<absl::Status(const absl::Cord& request, absl::Cord* answer,
                                            std::shared_ptr<lifecycle::ServedModel>* served)>;

  LookupCall(MethodId method, const ServiceContext& context, Exchange* exchange,
             const Answer& answer)
      : Call(method, context, exchange), answer_(answer) {}

  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    absl::Cord answer;
    absl::Status status = TakeMessage([&] {
      std::shared_ptr<lifecycle::ServedModel> served;
      absl::Status answered = answer_(message.value_or(absl::Cord()), &answer, &served);
      if (served != nullptr) SetModel(std::move(served));
      return answered;
    });
    if (status.ok()) {
      WriteAndEnd(std::move(answer), std::move(status));
    } else {
      End(std::move(status));
    }
  }

 private:
  const Answer& answer_;  // of the method's row
};

// Starts calls that parse a `Request`, which has no sub-messages, and answer with the `Response` that write(request, &response, &served)
// writes. `context` must outlive them.
template <typename Request, typename Response, typename Write>
std::function<CallHandler*(Exchange*)> LookupCalls(MethodId method, const ServiceContext& context,
                                                   Write write) {
  LookupCall::Answer answer = [write = std::move(write)](const auto& bytes, auto* answer_bytes,
                                                         auto* served) {
    Request request;
    Response response;
    absl::Status status = ParseSmallMessage(bytes, &request);
    if (status.ok()) status = write(request, &response, served);
    if (status.ok()) status = SerializeMessage(response, answer_bytes);
    return status;
  };
  return [method, &context, answer = std::move(answer)](Exchange* exchange) {
    return new LookupCall(method, context, exchange, answer);
  };
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_LOOKUP_CALL_H_
