// Hands connections that were accepted elsewhere to a gRPC server, which treats them as if it had
// accepted them itself. How differs by gRPC's version.
//
// HandOver() may be called from one thread at a time, once the server has started.
#ifndef SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_
#define SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_

#include <memory>
#include <string>

#include "grpcpp/server_builder.h"
#include "server/transport/receive_ledger.h"

namespace sru::server::transport {

class ConnectionHandover {
 public:
  // Before `builder` builds the server. What arrives is entered into `ledger` (null: nowhere) where
  // gRPC lets us receive it, which an older one does not.
  static std::unique_ptr<ConnectionHandover> AddTo(
      grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials,
      std::shared_ptr<ReceiveLedger> ledger);
  virtual ~ConnectionHandover() = default;

  // Takes `connection` over: gRPC closes it, at once when the server has been shut down. `peer` is
  // its name in the ledger.
  virtual void HandOver(int listening_socket, int connection, const std::string& peer) = 0;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_CONNECTION_HANDOVER_H_
