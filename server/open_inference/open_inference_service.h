// The handlers of inference.GRPCInferenceService on the port of --listen. They take raw bytes for the reason that
// server/rpc/inference_service.h gives. The methods of the repository are those of RepositoryService.
#ifndef SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_SERVICE_H_
#define SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_SERVICE_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "inference/open_inference.grpc.pb.h"
#include "server/rpc/service_context.h"

namespace sru::server::open_inference {

namespace open_inference_internal {

using Proto = inference::GRPCInferenceService;

using Calls = Proto::WithRawCallbackMethod_ModelInfer<
    Proto::WithRawCallbackMethod_ModelStreamInfer<Proto::Service>>;
using Lookups = Proto::WithRawCallbackMethod_ServerLive<Proto::WithRawCallbackMethod_ServerReady<
    Proto::WithRawCallbackMethod_ModelReady<Proto::WithRawCallbackMethod_ServerMetadata<
        Proto::WithRawCallbackMethod_ModelMetadata<Proto::WithRawCallbackMethod_ModelConfig<
            Proto::WithRawCallbackMethod_ModelStatistics<Calls>>>>>>>;
// UnknownMethodService answers these.
using Base = Proto::WithGenericMethod_RepositoryIndex<Proto::WithGenericMethod_RepositoryModelLoad<
    Proto::WithGenericMethod_RepositoryModelUnload<Lookups>>>;

}  // namespace open_inference_internal

// Thread-safe; must outlive the gRPC server that it is registered with.
class OpenInferenceService final : public open_inference_internal::Base {
 public:
  struct Options {
    rpc::ServiceContext context;
    std::function<bool()> ready;  // whether the server serves
    absl::Duration max_queue_delay;
  };
  explicit OpenInferenceService(Options options) : options_(std::move(options)) {}

  // The channel to the server itself, by which the requests of streams go. To be called before the first call arrives.
  void SetChannel(std::shared_ptr<grpc::Channel> channel) { channel_ = std::move(channel); }

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* call,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelStatistics(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* call,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      grpc::CallbackServerContext* call) override;

 private:
  const Options options_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_SERVICE_H_
