// The handlers of sru.v1.InferenceService: they convert a request, hand it to the batcher, map the
// status and record the call. No thread waits for a result: the batcher's `done` writes the answer.
//
// The methods take the raw bytes of a message, because gRPC answers bytes that protobuf cannot
// parse (a string that is not UTF-8) with UNIMPLEMENTED; here such bytes get INVALID_ARGUMENT and
// the name of the field.
#ifndef SRU_SERVER_RPC_INFERENCE_SERVICE_H_
#define SRU_SERVER_RPC_INFERENCE_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/base/clock.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/rpc/byte_budget.h"
#include "server/rpc/in_flight.h"
#include "server/rpc/received_messages.h"
#include "server/rpc/request_limits.h"
#include "server/rpc/unsent_answers.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "server/transport/listener.h"
#include "server/transport/read_pause.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::server {

// Everything that the handlers use; it must outlive the service.
struct ServiceContext {
  const ModelRegistry* registry = nullptr;
  const ModelManager* manager = nullptr;  // for the states in ListModels
  Metrics* metrics = nullptr;
  InFlight* in_flight = nullptr;
  UnsentAnswers* unsent = nullptr;
  ByteBudget* budget = nullptr;
  AccessLog* access_log = nullptr;
  Listener* listener = nullptr;     // to find a call's socket; null: answers leave one by one
  ReadPause* read_pause = nullptr;  // for connections with refused calls; null: none
  const Clock* clock = nullptr;
  RequestLimits limits;
  absl::Duration send_timeout = absl::InfiniteDuration();  // of `unsent`; for the log

  ReceivedMessages* received = nullptr;
};

// Thread-safe; must outlive the gRPC server that it is registered with.
class Service final : public v1::InferenceService::WithRawCallbackMethod_Classify<
                          v1::InferenceService::WithRawCallbackMethod_Encode<
                              v1::InferenceService::WithRawCallbackMethod_ListModels<
                                  v1::InferenceService::WithRawCallbackMethod_GetModel<
                                      v1::InferenceService::Service>>>> {
 public:
  explicit Service(const ServiceContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* Classify(grpc::CallbackServerContext* call,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* call,
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

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_INFERENCE_SERVICE_H_
