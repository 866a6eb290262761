#include "server/transport/connection_handover.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/grpc_version.h"
#include "server/base/log.h"

#if SRU_GRPC_IS_CURRENT
#include "grpcpp/passive_listener.h"
#endif

namespace sru::server {

#if SRU_GRPC_IS_CURRENT

namespace {

class PassiveHandover final : public ConnectionHandover {
 public:
  PassiveHandover(grpc::ServerBuilder* builder,
                  std::shared_ptr<grpc::ServerCredentials> credentials) {
    builder->experimental().AddPassiveListener(std::move(credentials), listener_);
  }

  void HandOver(int /*listening_socket*/, int connection) override {
    const absl::Status status = listener_->AcceptConnectedFd(connection);
    // Nothing that a caller does leads here, but for one who comes while the server shuts down.
    if (!status.ok()) LogInfo(absl::StrCat("gRPC did not take a connection: ", status.message()));
  }

 private:
  std::unique_ptr<grpc::experimental::PassiveListener> listener_;
};

}  // namespace

std::unique_ptr<ConnectionHandover> ConnectionHandover::AddTo(
    grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials) {
  return std::make_unique<PassiveHandover>(builder, std::move(credentials));
}

#else  // an older gRPC

namespace {

class AcceptorHandover final : public ConnectionHandover {
 public:
  AcceptorHandover(grpc::ServerBuilder* builder,
                   std::shared_ptr<grpc::ServerCredentials> credentials)
      : acceptor_(builder->experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
            std::move(credentials))) {}

  void HandOver(int listening_socket, int connection) override {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listening_socket;
    parameters.fd = connection;
    acceptor_->HandleNewConnection(&parameters);
  }

 private:
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
};

}  // namespace

std::unique_ptr<ConnectionHandover> ConnectionHandover::AddTo(
    grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials) {
  return std::make_unique<AcceptorHandover>(builder, std::move(credentials));
}

#endif  // SRU_GRPC_IS_CURRENT

}  // namespace sru::server
