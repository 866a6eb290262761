#include "server/rest/libretranslate_routes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/rest/json_message.h"
#include "server/rest/request_fields.h"
#include "server/rest/translation_call.h"
#include "server/translation/detection.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
using translation::TextRequest;
using translation::TranslatedText;
using SharedCall = std::shared_ptr<RestCall>;

// A list of JSON values; one value alone if the request was not for a list.
template <typename Append>
void AppendEach(const std::vector<TranslatedText>& texts, bool is_list, std::string* answer,
                const Append& append) {
  if (is_list) *answer += '[';
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) *answer += ',';
    append(texts[i]);
  }
  if (is_list) *answer += ']';
}

void AppendDetected(const std::string& language, int confidence, std::string* answer) {
  absl::StrAppend(answer, "{\"confidence\":", confidence, ",\"language\":");
  AppendJsonString(language, answer);
  *answer += '}';
}

// Reads the fields and checks the token.
absl::Status Begin(const SharedCall& call, RequestFields* fields) {
  absl::Status status = ReadFields(call, fields);
  // Who may not call learns nothing else.
  absl::Status access = call->Authenticate(fields->Last("api_key"));
  return access.ok() ? status : access;
}

absl::Status ReadRequest(RequestFields& fields, TextRequest* request) {
  for (const char* const name : {"q", "source", "target"}) {
    if (fields.All(name).empty()) {
      return InvalidArgument("Invalid request: missing ", name, " parameter");
    }
  }
  request->texts = fields.All("q");
  request->source = fields.Last("source");
  if (request->source == "auto") request->source.clear();
  request->target = fields.Last("target");
  const std::string format = fields.Last("format");
  if (format == "html") {
    request->rules.format = translation::TextFormat::kHtml;
  } else if (!format.empty() && format != "text") {
    return InvalidArgument("format: expected text or html, found '", format.substr(0, 32), "'");
  }
  request->alternatives =
      static_cast<int>(fields.Integer("alternatives", 0, 0, translation::kMostAlternatives));
  return fields.status();
}

void Translate(const SharedCall& call, translation::TextTranslator& translator) {
  RequestFields fields;
  TextRequest request;
  absl::Status status = Begin(call, &fields);
  if (status.ok()) status = ReadRequest(fields, &request);
  if (!status.ok()) return call->Fail(status);
  const bool is_list = fields.is_list("q");
  const bool is_detected = request.source.empty();
  const bool has_alternatives = request.alternatives > 0;
  TranslateTexts(
      call, translator, std::move(request),
      [call, is_list, is_detected, has_alternatives](const std::vector<TranslatedText>& texts) {
        std::string answer = "{";
        if (has_alternatives) {
          answer += "\"alternatives\":";
          AppendEach(texts, is_list, &answer, [&answer](const TranslatedText& text) {
            answer += '[';
            for (size_t i = 1; i < text.translations.size(); ++i) {
              if (i > 1) answer += ',';
              AppendJsonString(text.translations[i], &answer);
            }
            answer += ']';
          });
          answer += ',';
        }
        if (is_detected) {
          answer += "\"detectedLanguage\":";
          AppendEach(texts, is_list, &answer, [&answer](const TranslatedText& text) {
            AppendDetected(text.source, text.confidence, &answer);
          });
          answer += ',';
        }
        answer += "\"translatedText\":";
        AppendEach(texts, is_list, &answer, [&answer](const TranslatedText& text) {
          AppendJsonString(text.translations.front(), &answer);
        });
        ReplyJson(call, answer + "}");
      });
}

void Detect(const SharedCall& call, const translation::TextTranslator& translator) {
  RequestFields fields;
  absl::Status status = Begin(call, &fields);
  if (status.ok() && !fields.has("q")) {
    status = InvalidArgument("Invalid request: missing q parameter");
  }
  if (!status.ok()) return call->Fail(status);
  const translation::LanguageCatalog catalog = translator.Catalog();
  std::vector<translation::DetectedLanguage> found =
      translation::DetectLanguages(fields.Last("q"), /*is_markup=*/false);
  if (found.empty()) found.push_back({"en", 0});
  std::string answer;
  for (const translation::DetectedLanguage& language : found) {
    const translation::LanguageKey key = translation::KeyOf(language.code);
    std::string code = catalog.FindCode(key, /*is_source=*/true);
    if (code.empty()) code = catalog.FindCode(key, /*is_source=*/false);
    answer += answer.empty() ? '[' : ',';
    AppendDetected(code.empty() ? language.code : code, language.confidence, &answer);
  }
  ReplyJson(call, answer + "]");
}

void Languages(const SharedCall& call, const translation::TextTranslator& translator) {
  RequestFields fields;
  if (absl::Status status = Begin(call, &fields); !status.ok()) return call->Fail(status);
  const translation::LanguageCatalog catalog = translator.Catalog();
  std::string answer = "[";
  for (const std::string& code : catalog.Sources()) {
    absl::StrAppend(&answer, answer.size() > 1 ? "," : "", "{\"code\":");
    AppendJsonString(code, &answer);
    answer += ",\"name\":";
    AppendJsonString(translation::LanguageName(code), &answer);
    answer += ",\"targets\":[";
    bool is_first = true;
    for (const std::string& target : catalog.TargetsOf(code)) {
      if (!std::exchange(is_first, false)) answer += ',';
      AppendJsonString(target, &answer);
    }
    answer += "]}";
  }
  ReplyJson(call, answer + "]");
}

void Settings(const SharedCall& call, const translation::TextTranslator& translator) {
  const translation::LanguageCatalog catalog = translator.Catalog();
  const std::vector<std::string> targets = catalog.Targets();
  const std::string target = targets.empty() ? "en" : targets.front();
  const json settings = {
      {"apiKeys", true},
      {"charLimit", -1},
      {"filesTranslation", false},
      {"frontendTimeout", 500},
      {"keyRequired", !call->Authenticate("").ok()},
      {"language",
       {{"source", {{"code", "auto"}, {"name", "Auto Detect"}}},
        {"target", {{"code", target}, {"name", translation::LanguageName(target)}}}}},
      {"suggestions", false},
      {"supportedFilesFormat", json::array()}};
  ReplyJson(call, settings.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

RouteGroup LibreTranslateRoutes(translation::TextTranslator* translator) {
  RouteGroup group;
  const auto add = [&group, translator](const char* method, const char* path, const char* summary,
                                        const std::vector<std::string>& fields, auto handle) {
    Route route =
        TextRoute(method, path, ErrorForm::kLibreTranslate, summary, fields,
                  [translator, handle](const SharedCall& call) { handle(call, *translator); });
    route.token_in_body = true;
    group.routes.push_back(std::move(route));
  };
  add("POST", "/translate", "LibreTranslate's API: translations of texts, sentence by sentence.",
      {"q", "source", "target", "format", "alternatives", "api_key"}, Translate);
  add("POST", "/detect", "LibreTranslate's API: the language of a text.", {"q", "api_key"}, Detect);
  add("GET", "/languages", "LibreTranslate's API: the languages and their targets.", {"api_key"},
      Languages);
  add("GET", "/frontend/settings", "LibreTranslate's API: what its web page asks first.", {},
      Settings);
  return group;
}

}  // namespace sru::server::rest
