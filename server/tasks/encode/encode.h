// Encode, EncodeStream: vectors of sequences, at once or as their tokens come.
#ifndef SRU_SERVER_TASKS_ENCODE_ENCODE_H_
#define SRU_SERVER_TASKS_ENCODE_ENCODE_H_

#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/messages/message_form.h"
#include "server/calls/method.h"
#include "server/open_inference/tensors/infer_form.h"

namespace sru::server::tasks {

// The rows of the table of methods. `context` must outlive the calls.
calls::Method EncodeMethod(const calls::ServiceContext& context);
calls::Method EncodeStreamMethod(const calls::ServiceContext& context);

// Makes a call, which answers whenever that may be. `context` outlives it. With a form, the messages are in that form.
calls::CallHandler* StartEncode(const calls::ServiceContext& context, calls::Exchange* exchange,
                                calls::EncodeForm form = nullptr);
// The form of ModelInfer.
calls::EncodeForm MakeEncodeForm(open_inference::InferCallPtr call);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ENCODE_ENCODE_H_
