// CallMethod: calls a method with the message in the body of an HTTP request, and answers with one
// message or a stream of them. MethodRoutes: the routes POST /SERVICE/METHOD, by which Connect and
// gRPC-Web make such calls.
#ifndef SRU_SERVER_REST_METHOD_CALL_H_
#define SRU_SERVER_REST_METHOD_CALL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/message.h"
#include "server/calls/message_cord.h"
#include "server/calls/method.h"
#include "server/rest/route.h"
#include "server/rest/web_protocol.h"

namespace sru::server::rest {

// Answers `call`. `method` must outlive it and must not have a stream of requests.
void CallMethod(const SharedCall& call, const calls::Method& method, const CallForm& form);

// Parses the answer of a service and reserves memory for it.
absl::Status ReadAnswer(const SharedCall& call, const calls::LocalAnswer& answer,
                        google::protobuf::Message* response);

// The full name of the method that takes such a request: "/sru.v1.InferenceService/GetModel" for a
// sru.v1.GetModelRequest.
std::string MethodOf(const google::protobuf::Message& request);

// Calls the method of this request; `reply` gets its answer, a Response. Other ends fail the
// request.
template <typename Response, typename Reply>
void AskMethod(const SharedCall& call, const google::protobuf::Message& request, Reply reply) {
  call->Unary(MethodOf(request), calls::ToCord(request),
              [call, reply = std::move(reply)](const calls::LocalAnswer& answer) {
                if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
                Response response;
                const absl::Status status = ReadAnswer(call, answer, &response);
                status.ok() ? reply(response) : call->Fail(status);
              });
}

// Returns a route for each method. Calls of methods with a stream of requests are refused.
RouteGroup MethodRoutes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_METHOD_CALL_H_
