// Answers calls of methods that no registered service has: UNIMPLEMENTED, as gRPC would, but with a
// helpful text, a metric and a line in the access log. Only those of reflection have an answer.
#ifndef SRU_SERVER_RPC_UNKNOWN_METHOD_H_
#define SRU_SERVER_RPC_UNKNOWN_METHOD_H_

#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/reflection.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::rpc {

// One per gRPC server, which it must outlive: builder.RegisterCallbackGenericService(&unknown).
// Thread-safe.
class UnknownMethodService final : public grpc::CallbackGenericService {
 public:
  UnknownMethodService(Reflection* reflection, telemetry::Metrics* metrics,
                       telemetry::AccessLog* access_log)
      : reflection_(*reflection), metrics_(*metrics), access_log_(*access_log) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

 private:
  Reflection& reflection_;
  telemetry::Metrics& metrics_;
  telemetry::AccessLog& access_log_;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_UNKNOWN_METHOD_H_
