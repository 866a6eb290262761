// ModelStreamInfer: a stream of requests that are answered in order.
#ifndef SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_
#define SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_

#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::open_inference {

// Makes a call, which answers whenever that may be. `context` outlives it. Each request is a call of its own of `infer`, the row of ModelInfer, so that it is limited, checked and
// counted as one that comes alone.
calls::CallHandler* StartModelStreamInfer(const calls::ServiceContext& context,
                                          calls::Exchange* exchange, const calls::Method& infer);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_
