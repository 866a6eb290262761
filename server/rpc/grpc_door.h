// GrpcDoor: the methods of a table as a service of gRPC's library: the one place where calls meet it. Everything that concerns connections
// and not calls happens here: answers of a batch leave together (AnswerGroup), connections with refused calls are read less often
// (ReadPause), and a client that does not take an answer in time loses its connection (UnsentAnswers).
#ifndef SRU_SERVER_RPC_GRPC_DOOR_H_
#define SRU_SERVER_RPC_GRPC_DOOR_H_

#include <functional>

#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "server/calls/method.h"
#include "server/rpc/unsent_answers.h"
#include "server/telemetry/access_log.h"
#include "server/transport/listener.h"
#include "server/transport/read_pause.h"

namespace sru::server::rpc {

// One per gRPC server, which it must outlive: builder.RegisterCallbackGenericService(&door). Thread-safe.
class GrpcDoor final : public grpc::CallbackGenericService {
 public:
  // All must outlive the door.
  struct Options {
    const calls::MethodTable* methods = nullptr;
    // Makes the call of a path that no row has.
    std::function<calls::CallHandler*(calls::Exchange* exchange)> unknown;
    UnsentAnswers* unsent = nullptr;
    absl::Duration send_timeout = absl::InfiniteDuration();  // of `unsent`; for the log
    telemetry::AccessLog* access_log = nullptr;
    transport::Listener* listener = nullptr;     // null: answers leave one by one
    transport::ReadPause* read_pause = nullptr;  // null: none
  };
  explicit GrpcDoor(Options options) : options_(std::move(options)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

 private:
  class GrpcExchange;

  const Options options_;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_GRPC_DOOR_H_
