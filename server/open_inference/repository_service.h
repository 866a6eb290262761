// The handlers of inference.GRPCInferenceService on the port of --admin_listen: those of the model repository, with the rules and errors
// of AdminService.
#ifndef SRU_SERVER_OPEN_INFERENCE_REPOSITORY_SERVICE_H_
#define SRU_SERVER_OPEN_INFERENCE_REPOSITORY_SERVICE_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "inference/open_inference.grpc.pb.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_manager.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::open_inference {

namespace repository_internal {

using Proto = inference::GRPCInferenceService;

using Calls =
    Proto::WithRawCallbackMethod_RepositoryIndex<Proto::WithRawCallbackMethod_RepositoryModelLoad<
        Proto::WithRawCallbackMethod_RepositoryModelUnload<Proto::Service>>>;
// UnknownMethodService answers these.
using Base = Proto::WithGenericMethod_ServerLive<Proto::WithGenericMethod_ServerReady<
    Proto::WithGenericMethod_ModelReady<Proto::WithGenericMethod_ServerMetadata<
        Proto::WithGenericMethod_ModelMetadata<Proto::WithGenericMethod_ModelConfig<
            Proto::WithGenericMethod_ModelStatistics<Proto::WithGenericMethod_ModelInfer<
                Proto::WithGenericMethod_ModelStreamInfer<Calls>>>>>>>>>;

}  // namespace repository_internal

// Thread-safe; must outlive the gRPC server that it is registered with. The pointers must outlive it, as those of AdminService.
class RepositoryService final : public repository_internal::Base {
 public:
  RepositoryService(lifecycle::ModelControl control, lifecycle::ModelManager* manager,
                    telemetry::Metrics* metrics, telemetry::AccessLog* access_log)
      : control_(control), manager_(*manager), metrics_(*metrics), access_log_(*access_log) {}

  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RepositoryModelLoad(grpc::CallbackServerContext* call,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RepositoryModelUnload(grpc::CallbackServerContext* call,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) override;

 private:
  const lifecycle::ModelControl control_;
  lifecycle::ModelManager& manager_;
  telemetry::Metrics& metrics_;
  telemetry::AccessLog& access_log_;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_REPOSITORY_SERVICE_H_
