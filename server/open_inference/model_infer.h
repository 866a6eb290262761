// The calls of inference. They answer whenever that may be; `context` outlives them.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_

#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::open_inference {

// ModelInfer: reads a request as far as to find its model and the call that answers it, and starts
// that call in its form.
calls::CallHandler* StartModelInfer(const calls::ServiceContext& context,
                                    calls::Exchange* exchange);

// ModelStreamInfer: a stream of requests that are answered in order. Each request is a call of its
// own of `infer`, the row of ModelInfer, so that it is limited, checked and counted as one that
// comes alone.
calls::CallHandler* StartModelStreamInfer(const calls::ServiceContext& context,
                                          calls::Exchange* exchange, const calls::Method& infer);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
