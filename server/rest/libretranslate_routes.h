// LibreTranslate's API for translators:
//
//   POST /translate           q (a string or a list), source ("auto"), target, format (text, html), alternatives
//   POST /detect              q
//   GET  /languages           the languages and what each can be translated into
//   GET  /frontend/settings   what its web page asks first
//
// Bodies are forms or JSON. The token of a server that asks for one is the field `api_key`, or stands in the header as in other routes.
#ifndef SRU_SERVER_REST_LIBRETRANSLATE_ROUTES_H_
#define SRU_SERVER_REST_LIBRETRANSLATE_ROUTES_H_

#include "server/rest/route.h"
#include "server/translation/text_translator.h"

namespace sru::server::rest {

// `translator` outlives the routes and their requests.
RouteGroup LibreTranslateRoutes(translation::TextTranslator* translator);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_LIBRETRANSLATE_ROUTES_H_
