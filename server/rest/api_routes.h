// The routes of the APIs that the gateway always has.
#ifndef SRU_SERVER_REST_API_ROUTES_H_
#define SRU_SERVER_REST_API_ROUTES_H_

#include <vector>

#include "server/calls/method.h"
#include "server/rest/route.h"

namespace sru::server::rest {

// The calls of sru.v1.InferenceService below /v1, with the proto's JSON form (json_message.h):
//
//   POST /v1/NAME           each call with one answer: /v1/classify, /v1/encode and so on
//   POST /v1/generate       answered by server-sent events of one GenerateResponse each
//   GET  /v1/models         ListModelsResponse, and OpenAI's list of models in the same object
//   GET  /v1/models/{name}  GetModelResponse, likewise; ?version=N
RouteGroup V1Routes(const calls::MethodTable& methods);

// POST /v1/completions: OpenAI's API for texts that go on from a prompt, for language models.
RouteGroup CompletionsRoutes();

// What clients of other servers call (client_request.h):
//
//   POST /v1/embeddings     OpenAI's vectors of texts
//   POST /embed             text-embeddings-inference's
//   GET  /info              its limits, and the model that /embed without a name means
//   GET  /health            200 when calls can be served, otherwise 503
//   POST /pipelines/{model}, POST /     Hugging Face's pipelines: the model's task decides which
//   POST /tokenize, POST /detokenize    vLLM's; without `model` the only language model, as in
//   GET  /tokenizer_info                /v1/completions, else the only model with a vocabulary
RouteGroup ClientRoutes();

// The Open Inference Protocol over HTTP, as KServe and Triton have it. A request becomes a message
// of inference.GRPCInferenceService, so the rules on models, tensors and parameters are those of
// its service.
//
//   GET  /v2                                          the server's name, version and extensions
//   GET  /v2/health/live                              {"live": true}
//   GET  /v2/health/ready                             {"ready": true}, with 503 if it is false
//   GET  /v2/models/stats                             statistics of all models
//   GET  /v2/models/NAME[/versions/VERSION]           the model's tensors
//   GET  /v2/models/NAME[/versions/VERSION]/ready     {"name", "ready"}, with 503 if it is false
//   GET  /v2/models/NAME[/versions/VERSION]/config    as Triton's clients want it
//   GET  /v2/models/NAME[/versions/VERSION]/stats
//   POST /v2/models/NAME[/versions/VERSION]/infer     v2_request.h, v2_response.h
//   POST /v2/repository/...                           501: over gRPC, on the port of --admin_listen
RouteGroup OpenInferenceRoutes();

// All of these, and those of the methods by Connect and gRPC-Web (method_call.h).
std::vector<RouteGroup> ApiRoutes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_API_ROUTES_H_
