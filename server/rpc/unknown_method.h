// Answers calls of methods that no registered service has: UNIMPLEMENTED, as gRPC would, but with a
// helpful text, a metric and a line in the access log. Reflection by its later name is forwarded
// (reflection_v1.h).
#ifndef SRU_SERVER_RPC_UNKNOWN_METHOD_H_
#define SRU_SERVER_RPC_UNKNOWN_METHOD_H_

#include <memory>
#include <utility>

#include "grpcpp/channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server {

// One per gRPC server, which it must outlive: builder.RegisterCallbackGenericService(&unknown).
// Thread-safe.
class UnknownMethodService final : public grpc::CallbackGenericService {
 public:
  UnknownMethodService(Metrics* metrics, AccessLog* access_log)
      : metrics_(*metrics), access_log_(*access_log) {}

  // The channel to the server itself; without one there is no reflection by its later name. To be
  // called before the first call arrives.
  void SetChannel(std::shared_ptr<grpc::Channel> channel) { channel_ = std::move(channel); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

 private:
  Metrics& metrics_;
  AccessLog& access_log_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_UNKNOWN_METHOD_H_
