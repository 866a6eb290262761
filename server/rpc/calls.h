// The calls that compute sequences, each in a file of its own: `classify_call.cc` and so on.
#ifndef SRU_SERVER_RPC_CALLS_H_
#define SRU_SERVER_RPC_CALLS_H_

#include "server/calls/exchange.h"
#include "server/rpc/message_form.h"
#include "server/rpc/service_context.h"

namespace sru::server::rpc {

// Make a call, which answers whenever that may be. `context` outlives it. With a form, the messages are in that form.
calls::CallHandler* StartClassify(const ServiceContext& context, calls::Exchange* exchange,
                                  ClassifyForm form = nullptr);
calls::CallHandler* StartEncode(const ServiceContext& context, calls::Exchange* exchange,
                                EncodeForm form = nullptr);
calls::CallHandler* StartScore(const ServiceContext& context, calls::Exchange* exchange,
                               ScoreForm form = nullptr);
calls::CallHandler* StartAnswer(const ServiceContext& context, calls::Exchange* exchange,
                                AnswerForm form = nullptr);
calls::CallHandler* StartTranslate(const ServiceContext& context, calls::Exchange* exchange,
                                   TranslateForm form = nullptr);
calls::CallHandler* StartGenerate(const ServiceContext& context, calls::Exchange* exchange);
calls::CallHandler* StartEncodeStream(const ServiceContext& context, calls::Exchange* exchange);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_CALLS_H_
