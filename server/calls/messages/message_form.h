// MessageForm: how the messages of a call that computes look on the wire, if not as in sru.v1. The call then works with the messages of
// sru.v1 all the same: the form makes its request from other bytes, and other bytes from its response. A call has one of its own.
#ifndef SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_
#define SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "server/batching/batcher.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/method_info.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::calls {

// Not thread-safe.
template <typename Request, typename Response>
class MessageForm {
 public:
  virtual ~MessageForm() = default;

  // As which the call is counted and logged.
  virtual MethodId method() const = 0;
  // The model that the call is for. Not null.
  virtual const std::shared_ptr<lifecycle::ServedModel>& served() const = 0;
  // How long after its arrival the call is of use, besides its deadline.
  virtual absl::Duration timeout() const = 0;

  // What ReadOutline() (request_outline.h) says of the bytes of a request. Model and version are not read.
  virtual absl::Status ReadOutline(RequestOutline* outline) = 0;
  // Makes the request, called once. The bytes are not needed any more.
  virtual absl::Status Parse(Request* request) = 0;
  // At least the bytes of the answer beyond those of `Response` and its bytes on the wire.
  virtual int64_t ExtraAnswerBytes(const std::vector<batching::SequenceTask>& /*tasks*/) const {
    return 0;
  }
  virtual absl::Status Write(const Response& response, absl::Cord* bytes) = 0;
  // `status`, which is an error of a call with the request, in terms of what the caller sent.
  virtual absl::Status Explain(const absl::Status& status) const = 0;
};

template <typename Request, typename Response>
using MessageFormPtr = std::unique_ptr<MessageForm<Request, Response>>;

using ClassifyForm = MessageFormPtr<v1::ClassifyRequest, v1::ClassifyResponse>;
using EncodeForm = MessageFormPtr<v1::EncodeRequest, v1::EncodeResponse>;
using ScoreForm = MessageFormPtr<v1::ScoreRequest, v1::ScoreResponse>;
using AnswerForm = MessageFormPtr<v1::AnswerRequest, v1::AnswerResponse>;
using TranslateForm = MessageFormPtr<v1::TranslateRequest, v1::TranslateResponse>;

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_
