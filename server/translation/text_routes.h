// The routes of two APIs for texts, for which there are clients. Bodies are forms or JSON.
//
// DeepL's (v2), beside the Open Inference Protocol's of the same prefix. The key stands in
// "Authorization: DeepL-Auth-Key KEY", or as a bearer token.
//   POST      /v2/translate        text (several), target_lang, source_lang, split_sentences, ...
//   GET, POST /v2/languages        type: source or target
//   GET       /v2/usage            the characters since the server's start; without a limit, and so
//                                  without status 456
//   GET       /v2/glossary-language-pairs, /v2/glossaries   empty lists
//
// LibreTranslate's. The token of a server that asks for one is the field `api_key`, or stands in
// the header as in other routes.
//   POST      /translate           q (a string or a list), source ("auto"), target, format
//   POST      /detect              q
//   GET       /languages           the languages and what each can be translated into
//   GET       /frontend/settings   what its web page asks first
#ifndef SRU_SERVER_TRANSLATION_TEXT_ROUTES_H_
#define SRU_SERVER_TRANSLATION_TEXT_ROUTES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/in_flight.h"
#include "server/lifecycle/model_registry.h"
#include "server/rest/route.h"
#include "server/translation/request_fields.h"
#include "server/translation/text_translator.h"

namespace sru::server::translation {

// All that this module adds to a server. `registry` and `in_flight` (text_translator.h) outlive the
// routes and their requests.
std::vector<rest::RouteGroup> TextRoutes(const lifecycle::ModelRegistry* registry,
                                         const calls::RequestLimits& limits,
                                         calls::InFlight* in_flight);

// Its parts, and what they share.
rest::RouteGroup DeepLRoutes(const std::shared_ptr<TextTranslator>& translator);
rest::RouteGroup LibreTranslateRoutes(const std::shared_ptr<TextTranslator>& translator);

// The fields of the query and the body, whose memory is given back.
absl::Status ReadFields(const SharedCall& call, RequestFields* fields);

using TextHandler = std::function<void(const SharedCall&, TextTranslator&)>;
// A route that takes a form or JSON, with these fields in its description.
rest::Route TextRoute(const std::string& method, const std::string& path, rest::ErrorForm errors,
                      const std::string& summary, const std::vector<std::string>& fields,
                      const std::shared_ptr<TextTranslator>& translator, TextHandler handle);

void ReplyJson(const SharedCall& call, const nlohmann::json& answer);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_TEXT_ROUTES_H_
