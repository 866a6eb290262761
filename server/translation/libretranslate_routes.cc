#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/translation/request_fields.h"
#include "server/translation/text_routes.h"

namespace sru::server::translation {
namespace {

using nlohmann::json;

json Detected(const std::string& language, int confidence) {
  return {{"confidence", confidence}, {"language", language}};
}

// Reads the fields and checks the token.
absl::Status Begin(const SharedCall& call, RequestFields* fields) {
  absl::Status status = ReadFields(call, fields);
  if (!status.ok() && !absl::IsInvalidArgument(status)) return status;  // the token was not read
  // Who may not call learns nothing else.
  absl::Status access = call->Authenticate(fields->Last("api_key"));
  if (!access.ok()) return access;
  return status.ok() ? fields->status() : status;
}

// Its clients know two languages by codes of its own.
std::string CodeOf(const std::string& code) {
  return code == "zt" ? "zh-Hant" : (code == "pb" ? "pt-BR" : code);
}

absl::Status ReadLibreRequest(RequestFields& fields, TextRequest* request) {
  for (const char* const name : {"q", "source", "target"}) {
    const bool is_missing = fields.All(name).empty();
    SRU_RETURN_UNLESS_OK(fields.status());
    if (is_missing) {
      return InvalidArgument("Invalid request: missing ", name, " parameter");
    }
  }
  request->texts = fields.All("q");
  request->texts_field = "q";
  request->source = CodeOf(fields.Last("source"));
  if (request->source == "auto") request->source.clear();
  request->target = CodeOf(fields.Last("target"));
  const std::string format = fields.Last("format");
  if (format == "html") {
    request->rules.format = TextFormat::kHtml;
  } else if (!format.empty() && format != "text") {
    return InvalidArgument("format: expected text or html, found '", format.substr(0, 32), "'");
  }
  return fields.status();
}

void TranslateLibre(const SharedCall& call, TextTranslator& translator) {
  RequestFields fields;
  TextRequest request;
  absl::Status status = Begin(call, &fields);
  // As many as somebody would like to have; there are none.
  const std::string alternatives = fields.Last("alternatives");
  const bool has_alternatives = !alternatives.empty() && alternatives != "0";
  if (status.ok()) status = ReadLibreRequest(fields, &request);
  if (!status.ok()) return call->Fail(status);
  const bool is_list = fields.is_list("q");
  const bool is_detected = request.source.empty();
  translator.Translate(
      call, std::move(request),
      [call, is_list, is_detected, has_alternatives](const std::vector<TranslatedText>& texts) {
        json answer;
        for (const TranslatedText& text : texts) {
          answer["translatedText"].push_back(text.text);
          if (is_detected) {
            answer["detectedLanguage"].push_back(Detected(text.source, text.confidence));
          }
          if (has_alternatives) answer["alternatives"].push_back(json::array());
        }
        if (!is_list) {
          for (json& value : answer) value = json(std::move(value.front()));
        }
        ReplyJson(call, answer);
      });
}

void Detect(const SharedCall& call, const TextTranslator& translator) {
  RequestFields fields;
  absl::Status status = Begin(call, &fields);
  if (status.ok() && !fields.has("q")) {
    status = InvalidArgument("Invalid request: missing q parameter");
  }
  const std::string text = fields.Last("q");
  if (status.ok()) status = fields.status();
  if (!status.ok()) return call->Fail(status);
  const LanguageCatalog catalog = translator.Catalog();
  std::vector<DetectedLanguage> found = DetectLanguages(text);
  if (found.empty()) found.push_back({"en", 0});
  json answer = json::array();
  for (const DetectedLanguage& language : found) {
    const LanguageKey key = KeyOf(language.code);
    std::string code = catalog.FindCode(key, /*is_source=*/true);
    if (code.empty()) code = catalog.FindCode(key, /*is_source=*/false);
    answer.push_back(Detected(code.empty() ? language.code : code, language.confidence));
  }
  ReplyJson(call, answer);
}

// Asks for no token, since some clients send none here. To make the page takes time with the square
// of the number of models, so each thread keeps it.
void LibreLanguages(const SharedCall& call, const TextTranslator& translator) {
  thread_local std::pair<int64_t, std::string> kept{-1, ""};
  const int64_t generation = translator.catalog_generation();
  if (kept.first == generation) return call->Reply(rest::JsonResponse(kept.second));
  const LanguageCatalog catalog = translator.Catalog();
  json answer = json::array();
  for (const std::string& code : catalog.Sources()) {
    answer.push_back(
        {{"code", code}, {"name", LanguageName(code)}, {"targets", catalog.TargetsOf(code)}});
  }
  kept = {generation, rest::JsonText(answer)};
  call->Reply(rest::JsonResponse(kept.second));
}

void Settings(const SharedCall& call, const TextTranslator& translator) {
  const LanguageCatalog catalog = translator.Catalog();
  const std::vector<std::string> targets = catalog.Targets();
  const std::string target = targets.empty() ? "en" : targets.front();
  const json settings = {{"apiKeys", true},
                         {"charLimit", -1},
                         {"filesTranslation", false},
                         {"frontendTimeout", 500},
                         {"keyRequired", !call->Authenticate("").ok()},
                         {"language",
                          {{"source", {{"code", "auto"}, {"name", "Auto Detect"}}},
                           {"target", {{"code", target}, {"name", LanguageName(target)}}}}},
                         {"suggestions", false},
                         {"supportedFilesFormat", json::array()}};
  ReplyJson(call, settings);
}

}  // namespace

rest::RouteGroup LibreTranslateRoutes(const std::shared_ptr<TextTranslator>& translator) {
  rest::RouteGroup group;
  const auto add = [&](const char* method, const char* path, const char* summary,
                       const std::vector<std::string>& fields, TextHandler handle) {
    rest::Route route = TextRoute(method, path, rest::ErrorForm::kLibreTranslate, summary, fields,
                                  translator, std::move(handle));
    route.token_in_body = true;
    if (fields.empty()) route.content_types.clear();
    group.routes.push_back(std::move(route));
  };
  add("POST", "/translate", "LibreTranslate's API: translations of texts, sentence by sentence.",
      {"q", "source", "target", "format", "api_key"}, TranslateLibre);
  add("POST", "/detect", "LibreTranslate's API: the language of a text.", {"q", "api_key"}, Detect);
  add("GET", "/languages", "LibreTranslate's API: the languages and their targets.", {},
      LibreLanguages);
  add("GET", "/frontend/settings", "LibreTranslate's API: what its web page asks first.", {},
      Settings);
  return group;
}

}  // namespace sru::server::translation
