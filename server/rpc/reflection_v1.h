// Server reflection under its later name. gRPC 1.51 has grpc.reflection.v1alpha only, and clients of
// today ask for grpc.reflection.v1, whose messages are the same on the wire: so its calls go on to the
// former, within the process. A gRPC that has v1 itself answers these calls before they come here.
#ifndef SRU_SERVER_RPC_REFLECTION_V1_H_
#define SRU_SERVER_RPC_REFLECTION_V1_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/async_generic_service.h"

namespace sru::server {

bool IsReflectionV1(absl::string_view method);

// Answers such a call through `channel`, which leads to the same server. The call has its deadline and
// its end there, and takes one of the threads of reflection as calls of v1alpha do.
grpc::ServerGenericBidiReactor* ForwardReflection(grpc::GenericCallbackServerContext* call,
                                                  const std::shared_ptr<grpc::Channel>& channel);

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_REFLECTION_V1_H_
