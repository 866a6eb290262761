#include "server/listener_credentials.h"

namespace sru::server {

std::shared_ptr<grpc::ServerCredentials> ListenerCredentials(Listener /*listener*/,
                                                             const Options& /*options*/) {
  return grpc::InsecureServerCredentials();
}

}  // namespace sru::server
