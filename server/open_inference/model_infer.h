// ModelInfer: reads a request as far as to find its model and the call that answers it, and starts that call in its form.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_

#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"

namespace sru::server::open_inference {

// Makes a call, which answers whenever that may be. `context` outlives it.
calls::CallHandler* StartModelInfer(const calls::ServiceContext& context,
                                    calls::Exchange* exchange);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
