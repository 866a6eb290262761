// The handlers of sru.v1.InferenceService: they convert a request, hand it to the batcher, map the
// status and record the call. No thread waits for a result: the batcher's `done` writes the answer.
//
// The methods take the raw bytes of a message, because gRPC answers bytes that protobuf cannot
// parse (a string that is not UTF-8) with UNIMPLEMENTED; here such bytes get INVALID_ARGUMENT and
// the name of the field.
#ifndef SRU_SERVER_RPC_INFERENCE_SERVICE_H_
#define SRU_SERVER_RPC_INFERENCE_SERVICE_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/service_context.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::server::rpc {

// Thread-safe; must outlive the gRPC server that it is registered with.
class Service final
    : public v1::InferenceService::WithRawCallbackMethod_Classify<
          v1::InferenceService::WithRawCallbackMethod_Encode<
              v1::InferenceService::WithRawCallbackMethod_Score<
                  v1::InferenceService::WithRawCallbackMethod_Answer<
                      v1::InferenceService::WithRawCallbackMethod_Translate<
                          v1::InferenceService::WithRawCallbackMethod_Generate<
                              v1::InferenceService::WithRawCallbackMethod_EncodeStream<
                                  v1::InferenceService::WithRawCallbackMethod_ListModels<
                                      v1::InferenceService::WithRawCallbackMethod_GetModel<
                                          v1::InferenceService::Service>>>>>>>>> {
 public:
  explicit Service(const ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Classify(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* call,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* call,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* call,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* call,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* EncodeStream(
      grpc::CallbackServerContext* call) override;
  grpc::ServerUnaryReactor* Translate(grpc::CallbackServerContext* call,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  const ServiceContext context_;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_INFERENCE_SERVICE_H_
