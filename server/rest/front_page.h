// The page at / of the HTTP port, for who opens it: what this is, a call that works, and where to
// read on. HTML for browsers, JSON for programs; and the documents at /docs.
#ifndef SRU_SERVER_REST_FRONT_PAGE_H_
#define SRU_SERVER_REST_FRONT_PAGE_H_

#include "server/rest/route.h"

namespace sru::server::rest {

// GET / and GET /docs/{name}. They need no token; if the server `asks_for_tokens`, the page names a
// model only to who has one. `has_tls`: the port speaks TLS.
RouteGroup FrontPageRoutes(bool asks_for_tokens, bool has_tls);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_FRONT_PAGE_H_
