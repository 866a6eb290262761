// TranslateTexts: answers a request for translations of texts, in whatever dialect, by calls of Translate (server/translation).
#ifndef SRU_SERVER_REST_TRANSLATION_CALL_H_
#define SRU_SERVER_REST_TRANSLATION_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/rest/request_fields.h"
#include "server/rest/route.h"
#include "server/translation/text_translator.h"

namespace sru::server::rest {

// Calls `done` with the translations, or fails the request.
void TranslateTexts(const std::shared_ptr<RestCall>& call, translation::TextTranslator& translator,
                    translation::TextRequest request,
                    std::function<void(std::vector<translation::TranslatedText> texts)> done);

// The fields of the query and the body, whose memory is given back.
absl::Status ReadFields(const std::shared_ptr<RestCall>& call, RequestFields* fields);

// A route that takes a form or JSON, with these fields in its description.
Route TextRoute(const std::string& method, const std::string& path, ErrorForm errors,
                const std::string& summary, const std::vector<std::string>& fields,
                std::function<void(const std::shared_ptr<RestCall>&)> handle);

void ReplyJson(const std::shared_ptr<RestCall>& call, const nlohmann::json& answer);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_TRANSLATION_CALL_H_
