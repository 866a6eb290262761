// The routes of the APIs.
#ifndef SRU_SERVER_REST_API_ROUTES_H_
#define SRU_SERVER_REST_API_ROUTES_H_

#include <vector>

#include "server/calls/method.h"
#include "server/rest/route.h"

namespace sru::server::rest {

// The calls of sru.v1.InferenceService below /v1, with the proto's JSON form (json_message.h);
// Generate is answered by server-sent events of one GenerateResponse each. GET /v1/models and
// /v1/models/{name} answer with OpenAI's members, too.
RouteGroup V1Routes(const calls::MethodTable& methods);

// POST /v1/completions: OpenAI's API for texts that go on from a prompt, for language models.
RouteGroup CompletionsRoutes();

// The routes that clients written for other servers call (client_request.h), among them their probe
// and the description of the server. Texts for a vocabulary without `model` are for the only
// language model, as in /v1/completions, else for the only model with a vocabulary.
RouteGroup ClientRoutes();

// The Open Inference Protocol over HTTP, as KServe and Triton have it. A request becomes a message
// of inference.GRPCInferenceService, so the rules on models, tensors and parameters are those of
// its service. The answer of a probe that is false has the status 503.
RouteGroup OpenInferenceRoutes();

// GET / and GET /docs/{name}. They need no token; if the server `asks_for_tokens`, the page names a
// model only to who has one. `has_tls`: the port speaks TLS.
RouteGroup FrontPageRoutes(bool asks_for_tokens, bool has_tls);

// What the gateway always has: all of these but the front page, and those of the methods by Connect
// and gRPC-Web (method_call.h).
std::vector<RouteGroup> ApiRoutes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_API_ROUTES_H_
