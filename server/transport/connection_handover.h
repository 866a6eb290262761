// Hands connections that were accepted elsewhere to a gRPC server, which treats them as if it had
// accepted them itself. How differs by gRPC's version.
//
// HandOver() may be called from one thread at a time, once the server has started.
#ifndef SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_
#define SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_

#include <memory>

#include "grpcpp/server_builder.h"

namespace sru::server {

class ConnectionHandover {
 public:
  // Before `builder` builds the server.
  static std::unique_ptr<ConnectionHandover> AddTo(
      grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  virtual ~ConnectionHandover() = default;

  // Takes `connection` over: gRPC closes it, at once when the server has been shut down.
  virtual void HandOver(int listening_socket, int connection) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_
