// TranslateTexts: answers a request for translations of texts, in whatever dialect, by calls of
// Translate.
#ifndef SRU_SERVER_TRANSLATION_TRANSLATION_CALL_H_
#define SRU_SERVER_TRANSLATION_TRANSLATION_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/rest/route.h"
#include "server/translation/request_fields.h"
#include "server/translation/text_translator.h"

namespace sru::server::translation {

// Calls `done` with the translations, or fails the request.
void TranslateTexts(const std::shared_ptr<rest::RestCall>& call, TextTranslator& translator,
                    TextRequest request,
                    std::function<void(std::vector<TranslatedText> texts)> done);

// The fields of the query and the body, whose memory is given back.
absl::Status ReadFields(const std::shared_ptr<rest::RestCall>& call, RequestFields* fields);

// A route that takes a form or JSON, with these fields in its description.
rest::Route TextRoute(const std::string& method, const std::string& path, rest::ErrorForm errors,
                      const std::string& summary, const std::vector<std::string>& fields,
                      std::function<void(const std::shared_ptr<rest::RestCall>&)> handle);

void ReplyJson(const std::shared_ptr<rest::RestCall>& call, const nlohmann::json& answer);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_TRANSLATION_CALL_H_
