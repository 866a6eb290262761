// The calls that compute sequences, each in a file of its own: `classify_call.cc` and so on.
#ifndef SRU_SERVER_RPC_CALLS_H_
#define SRU_SERVER_RPC_CALLS_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/message_form.h"
#include "server/rpc/service_context.h"

namespace sru::server::rpc {

// Take the raw bytes of a request and answer the call, which may be later. `context` and `response`
// outlive the call. With a form, both are in that form.
grpc::ServerUnaryReactor* StartClassify(const ServiceContext& context,
                                        grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                        ClassifyForm form = nullptr);
grpc::ServerUnaryReactor* StartEncode(const ServiceContext& context,
                                      grpc::CallbackServerContext* call,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      EncodeForm form = nullptr);
grpc::ServerUnaryReactor* StartScore(const ServiceContext& context,
                                     grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                     ScoreForm form = nullptr);
grpc::ServerUnaryReactor* StartAnswer(const ServiceContext& context,
                                      grpc::CallbackServerContext* call,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                      AnswerForm form = nullptr);
grpc::ServerUnaryReactor* StartTranslate(const ServiceContext& context,
                                         grpc::CallbackServerContext* call,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response, TranslateForm form = nullptr);

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const ServiceContext& context,
                                                          grpc::CallbackServerContext* call,
                                                          const grpc::ByteBuffer* request);
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartEncodeStream(
    const ServiceContext& context, grpc::CallbackServerContext* call);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_CALLS_H_
