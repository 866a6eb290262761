// CallMethod: a call of a method whose message is the body of an HTTP request, with one answer or a stream of them. MethodRoutes: the
// routes POST /SERVICE/METHOD, by which Connect and gRPC-Web make such calls.
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

// Answers `call`. `method`, which must have one request, outlives it.
void CallMethod(const std::shared_ptr<RestCall>& call, const calls::Method& method,
                const CallForm& form);

// Reads what a service answered. What the memory holds for the request is free by then.
absl::Status ReadAnswer(const std::shared_ptr<RestCall>& call, const absl::Cord& bytes,
                        google::protobuf::Message* response);

// Of all methods, but those with a stream of requests are refused.
RouteGroup MethodRoutes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_METHOD_CALL_H_
