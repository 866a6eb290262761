// The rows of sru.v1.InferenceService and sru.v1.AdminService. The calls take the bytes of a
// message, because gRPC's own parsing answers bytes that protobuf refuses (a string that is not
// UTF-8) with UNIMPLEMENTED; here they get INVALID_ARGUMENT and the name of the field.
#ifndef SRU_SERVER_RPC_INFERENCE_METHODS_H_
#define SRU_SERVER_RPC_INFERENCE_METHODS_H_

#include <vector>

#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::rpc {

// `context` must outlive the calls.
std::vector<calls::Method> InferenceMethods(const calls::ServiceContext& context);
std::vector<calls::Method> AdminMethods(const calls::AdminContext& context);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_INFERENCE_METHODS_H_
