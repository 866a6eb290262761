// The routes below /v1 that are calls of sru.v1.InferenceService, with the proto's JSON form (json_message.h):
//
//   POST /v1/classify, /v1/encode, /v1/score, /v1/answer, /v1/translate
//   POST /v1/generate       answered by server-sent events of one GenerateResponse each
//   GET  /v1/models         ListModelsResponse, and OpenAI's list of models in the same object
//   GET  /v1/models/{name}  GetModelResponse, likewise; ?version=N
#ifndef SRU_SERVER_REST_V1_ROUTES_H_
#define SRU_SERVER_REST_V1_ROUTES_H_

#include "server/rest/route.h"

namespace sru::server::rest {

RouteGroup V1Routes(const calls::MethodTable& methods);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V1_ROUTES_H_
