// Translate: translations of sequences.
#ifndef SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_H_
#define SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_H_

#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/messages/message_form.h"
#include "server/calls/method.h"
#include "server/open_inference/tensors/infer_form.h"

namespace sru::server::tasks {

// The row of the table of methods. `context` must outlive the calls.
calls::Method TranslateMethod(const calls::ServiceContext& context);

// Makes a call, which answers whenever that may be. `context` outlives it. With a form, the messages are in that form.
calls::CallHandler* StartTranslate(const calls::ServiceContext& context, calls::Exchange* exchange,
                                   calls::TranslateForm form = nullptr);
// The form of ModelInfer.
calls::TranslateForm MakeTranslateForm(open_inference::InferCallPtr call);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_H_
