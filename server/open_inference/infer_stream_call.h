// ModelStreamInfer: a stream of requests that are answered in order.
#ifndef SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_
#define SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_

#include <memory>

#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/service_context.h"

namespace sru::server::open_inference {

// As those of server/rpc/calls.h. Each request is a ModelInfer on `channel`, a channel to this server in the same process, so that it
// is limited, checked and counted as one that comes alone.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartModelStreamInfer(
    const rpc::ServiceContext& context, grpc::CallbackServerContext* call,
    const std::shared_ptr<grpc::Channel>& channel);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_INFER_STREAM_CALL_H_
