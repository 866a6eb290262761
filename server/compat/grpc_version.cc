#include "server/compat/grpc_version.h"

#include "grpcpp/grpcpp.h"

namespace sru::server {

std::string GrpcVersion() { return grpc::Version(); }

}  // namespace sru::server
