// DeepL's API (v2) for translators, beside the Open Inference Protocol's routes of the same prefix:
//
//   POST      /v2/translate   text (several), target_lang, source_lang, split_sentences, tag_handling, ...
//   GET, POST /v2/languages   type: source or target
//   GET       /v2/usage       the characters since the server's start; there is no limit, and so no status 456
//
// Bodies are forms or JSON. The key stands in "Authorization: DeepL-Auth-Key KEY", or as a bearer token.
#ifndef SRU_SERVER_REST_DEEPL_ROUTES_H_
#define SRU_SERVER_REST_DEEPL_ROUTES_H_

#include "server/rest/route.h"
#include "server/translation/text_translator.h"

namespace sru::server::rest {

// `translator` outlives the routes and their requests.
RouteGroup DeepLRoutes(translation::TextTranslator* translator);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_DEEPL_ROUTES_H_
