// MessageForm: how the messages of a call that computes look on the wire, if not as in sru.v1. The
// call then works with the messages of sru.v1 all the same: the form makes its request from other
// bytes, and other bytes from its response. A call has one of its own.
#ifndef SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_
#define SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "server/calls/bounds/request_outline.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::calls {

// Not thread-safe. The messages are those of the call's method.
class MessageForm {
 public:
  virtual ~MessageForm() = default;

  // The model that the call is for, which answers the call. Not null.
  virtual const std::shared_ptr<lifecycle::ServedModel>& served() const = 0;
  // How long after its arrival the call is of use, besides its deadline.
  virtual absl::Duration timeout() const = 0;

  // What ReadOutline() (request_outline.h) says of the bytes of a request. Model and version are
  // not read.
  virtual absl::Status ReadOutline(RequestOutline* outline) = 0;
  // Makes the request, called once. The bytes are not needed any more.
  virtual absl::Status Parse(google::protobuf::Message* request) = 0;
  virtual absl::Status Write(const google::protobuf::Message& response, absl::Cord* bytes) = 0;
  // `status`, which is an error of a call with the request, in terms of what the caller sent.
  virtual absl::Status Explain(const absl::Status& status) const = 0;
};

using MessageFormPtr = std::unique_ptr<MessageForm>;

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_MESSAGE_FORM_H_
