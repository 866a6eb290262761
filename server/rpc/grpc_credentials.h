// The credentials of a port of gRPC's library, with certificates that change while it runs.
#ifndef SRU_SERVER_RPC_GRPC_CREDENTIALS_H_
#define SRU_SERVER_RPC_GRPC_CREDENTIALS_H_

#include <functional>
#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::rpc {

// `files` gives the files for a connection that has just come, never null; it runs on the library's
// threads, one at a time. With a `client_ca` at the start, clients must show a certificate of one
// of its authorities. A null `files`: connections are in the clear.
std::shared_ptr<grpc::ServerCredentials> MakeCredentials(
    std::function<std::shared_ptr<const transport::TlsPem>()> files);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_GRPC_CREDENTIALS_H_
