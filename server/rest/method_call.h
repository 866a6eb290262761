// CallMethod: calls a method with the message in the body of an HTTP request, and answers with one message or a stream of them.
// MethodRoutes: the routes POST /SERVICE/METHOD, by which Connect and gRPC-Web make such calls.
#ifndef SRU_SERVER_REST_METHOD_CALL_H_
#define SRU_SERVER_REST_METHOD_CALL_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/message.h"
#include "server/calls/method.h"
#include "server/rest/route.h"
#include "server/rest/web_protocol.h"

namespace sru::server::rest {

// Answers `call`. `method` must outlive it and must not have a stream of requests.
void CallMethod(const std::shared_ptr<RestCall>& call, const calls::Method& method,
                const CallForm& form);

// Parses the answer of a service and reserves memory for it.
absl::Status ReadAnswer(const std::shared_ptr<RestCall>& call, const absl::Cord& bytes,
                        google::protobuf::Message* response);

// Returns a route for each method. Calls of methods with a stream of requests are refused.
RouteGroup MethodRoutes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_METHOD_CALL_H_
