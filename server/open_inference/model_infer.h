// ModelInfer: reads a request as far as to find its model and the call that answers it, and starts that call in its form.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/service_context.h"

namespace sru::server::open_inference {

// As those of server/rpc/calls.h.
grpc::ServerUnaryReactor* StartModelInfer(const rpc::ServiceContext& context,
                                          grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
