// The routes below /v2: the Open Inference Protocol over HTTP, as KServe and Triton have it. A request becomes a message of
// inference.GRPCInferenceService, so the rules on models, tensors and parameters are those of its service.
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
#ifndef SRU_SERVER_REST_V2_ROUTES_H_
#define SRU_SERVER_REST_V2_ROUTES_H_

#include "server/rest/route.h"

namespace sru::server::rest {

RouteGroup OpenInferenceRoutes();

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_ROUTES_H_
