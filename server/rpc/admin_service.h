// The handlers of sru.v1.AdminService: they check a request, hand it to the model manager's thread
// and map the status. No thread of gRPC waits for a model to load.
#ifndef SRU_SERVER_RPC_ADMIN_SERVICE_H_
#define SRU_SERVER_RPC_ADMIN_SERVICE_H_

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_manager.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "sru/v1/admin.grpc.pb.h"

namespace sru::server::rpc {

// Thread-safe; must outlive the gRPC server that it is registered with. Takes raw bytes for the
// reason that inference_service.h gives.
class AdminService final
    : public v1::AdminService::WithRawCallbackMethod_LoadModel<
          v1::AdminService::WithRawCallbackMethod_UnloadModel<v1::AdminService::Service>> {
 public:
  // The pointers must outlive the service. Requests are answered by the manager's thread, or by its
  // BeginStop(), which must be called before the gRPC server is shut down.
  AdminService(lifecycle::ModelControl control, lifecycle::ModelManager* manager,
               telemetry::Metrics* metrics, telemetry::AccessLog* access_log)
      : control_(control), manager_(*manager), metrics_(*metrics), access_log_(*access_log) {}

  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* call,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* call,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;

 private:
  const lifecycle::ModelControl control_;
  lifecycle::ModelManager& manager_;
  telemetry::Metrics& metrics_;
  telemetry::AccessLog& access_log_;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_ADMIN_SERVICE_H_
