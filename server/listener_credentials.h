// How each port of gRPC proves who the server is and who its callers are: the one place for it.
#ifndef SRU_SERVER_LISTENER_CREDENTIALS_H_
#define SRU_SERVER_LISTENER_CREDENTIALS_H_

#include <memory>

#include "grpcpp/security/server_credentials.h"
#include "server/options.h"

namespace sru::server {

enum class Listener { kInference, kAdmin };

std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(Listener listener,
                                                             const Options& options);

}  // namespace sru::server

#endif  // SRU_SERVER_LISTENER_CREDENTIALS_H_
