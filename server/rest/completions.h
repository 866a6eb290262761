// POST /v1/completions: OpenAI's API for texts that go on from a prompt, for language models.
#ifndef SRU_SERVER_REST_COMPLETIONS_H_
#define SRU_SERVER_REST_COMPLETIONS_H_

#include "server/rest/route.h"

namespace sru::server::rest {

RouteGroup CompletionsRoutes();

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_COMPLETIONS_H_
