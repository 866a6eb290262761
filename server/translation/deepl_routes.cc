#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "server/translation/request_fields.h"
#include "server/translation/text_routes.h"

namespace sru::server::translation {
namespace {

using nlohmann::json;

constexpr int64_t kNoLimit = 1'000'000'000'000;  // what DeepL answers to customers without one

constexpr size_t kMostTags = 1000;
constexpr size_t kLongestTag = 64;

// Fields of the API that these models cannot honour. Ignoring one would give another translation
// than was asked for.
constexpr const char* kNotSupported[] = {"glossary_id", "glossary_ids", "style_id",
                                         "translation_memory_id", "custom_instructions"};

// "pt-BR" as the API writes the language of a target; of a source it has no region.
std::string TargetCode(const std::string& code) { return absl::AsciiStrToUpper(code); }
std::string SourceCode(const std::string& code) {
  return absl::AsciiStrToUpper(code.substr(0, code.find_first_of("-_")));
}

// Names of HTML's elements are compared in lower case.
absl::Status ReadTags(RequestFields& fields, const std::string& name, TextFormat format,
                      std::set<std::string>* tags) {
  for (const std::string& value : fields.All(name)) {
    for (absl::string_view tag : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
      tag = absl::StripAsciiWhitespace(tag);
      tags->insert(format == TextFormat::kHtml ? absl::AsciiStrToLower(tag) : std::string(tag));
      if (tag.size() > kLongestTag || tags->size() > kMostTags) {
        return InvalidArgument("Value for '", name, "' not supported: expected at most ", kMostTags,
                               " tags of at most ", kLongestTag, " bytes.");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRules(RequestFields& fields, TextRules* rules) {
  const std::string handling = fields.Last("tag_handling");
  if (handling == "html") {
    rules->format = TextFormat::kHtml;
  } else if (handling == "xml") {
    rules->format = TextFormat::kXml;
  } else if (!handling.empty()) {
    return InvalidArgument("Value for 'tag_handling' not supported: expected xml or html.");
  }
  rules->outline = fields.Flag("outline_detection", true);
  SRU_RETURN_UNLESS_OK(ReadTags(fields, "splitting_tags", rules->format, &rules->splitting_tags));
  SRU_RETURN_UNLESS_OK(ReadTags(fields, "non_splitting_tags", rules->format, &rules->inline_tags));
  SRU_RETURN_UNLESS_OK(ReadTags(fields, "ignore_tags", rules->format, &rules->ignored_tags));
  const std::string splitting = fields.Last("split_sentences");
  if (splitting == "0" || splitting == "false") {
    rules->splitting = Splitting::kNone;
  } else if (splitting == "nonewlines") {
    rules->splitting = Splitting::kNoNewlines;
  } else if (!splitting.empty() && splitting != "1" && splitting != "true") {
    return InvalidArgument(
        "Value for 'split_sentences' not supported: expected 0, 1 or nonewlines.");
  }
  return absl::OkStatus();
}

absl::Status ReadDeepLRequest(RequestFields& fields, TextRequest* request) {
  request->texts = fields.All("text");
  SRU_RETURN_UNLESS_OK(fields.status());  // says more than that there is none
  if (request->texts.empty()) return InvalidArgument("Parameter 'text' not specified.");
  request->target = fields.Last("target_lang");
  if (request->target.empty()) return InvalidArgument("Parameter 'target_lang' not specified.");
  request->source = fields.Last("source_lang");
  SRU_RETURN_UNLESS_OK(ReadRules(fields, &request->rules));
  const std::string formality = fields.Last("formality");
  if (formality == "more" || formality == "less") {
    return InvalidArgument("'formality' is not supported for given 'target_lang'.");
  }
  if (!formality.empty() && formality != "default" && formality != "prefer_more" &&
      formality != "prefer_less") {
    return InvalidArgument(
        "Value for 'formality' not supported: expected default, more, less, prefer_more or "
        "prefer_less.");
  }
  for (const char* const name : kNotSupported) {
    if (!fields.Last(name).empty()) {
      return InvalidArgument("Parameter '", name, "' is not supported.");
    }
  }
  // White space and punctuation are always kept.
  fields.Flag("preserve_formatting", true);
  return fields.status();
}

void TranslateDeepL(const SharedCall& call, TextTranslator& translator) {
  RequestFields fields;
  TextRequest request;
  absl::Status status = ReadFields(call, &fields);
  const bool shows_characters = fields.Flag("show_billed_characters", false);
  if (status.ok()) status = ReadDeepLRequest(fields, &request);
  if (!status.ok()) return call->Fail(status);
  std::vector<int64_t> characters;
  for (const std::string& text : request.texts) {
    if (shows_characters) characters.push_back(CountUtf8(text));
  }
  translator.Translate(call, std::move(request),
                       [call, characters](const std::vector<TranslatedText>& texts) {
                         json answer;
                         for (size_t i = 0; i < texts.size(); ++i) {
                           json& text = answer["translations"].emplace_back();
                           text["detected_source_language"] = SourceCode(texts[i].source);
                           text["text"] = texts[i].text;
                           if (!characters.empty()) text["billed_characters"] = characters[i];
                         }
                         ReplyJson(call, answer);
                       });
}

void DeepLLanguages(const SharedCall& call, const TextTranslator& translator) {
  RequestFields fields;
  if (absl::Status status = ReadFields(call, &fields); !status.ok()) return call->Fail(status);
  const std::string type = fields.Last("type");
  if (!fields.status().ok()) return call->Fail(fields.status());
  const bool is_target = type == "target";
  if (!type.empty() && !is_target && type != "source") {
    return call->Fail(
        InvalidArgument("Value for 'type' not supported: expected source or target."));
  }
  const LanguageCatalog catalog = translator.Catalog();
  json answer = json::array();
  std::string last;
  for (const std::string& code : is_target ? catalog.Targets() : catalog.Sources()) {
    const std::string shown = is_target ? TargetCode(code) : SourceCode(code);
    if (shown == last) continue;
    json& language = answer.emplace_back();
    language["language"] = shown;
    language["name"] = LanguageName(shown);
    if (is_target) language["supports_formality"] = false;
    last = shown;
  }
  ReplyJson(call, answer);
}

}  // namespace

rest::RouteGroup DeepLRoutes(const std::shared_ptr<TextTranslator>& translator) {
  rest::RouteGroup group;
  const auto add = [&](const char* method, const char* path, const char* summary,
                       const std::vector<std::string>& fields, TextHandler handle) {
    group.routes.push_back(TextRoute(method, path, rest::ErrorForm::kDeepL, summary, fields,
                                     translator, std::move(handle)));
  };
  add("POST", "/v2/translate", "DeepL's API: translations of texts, sentence by sentence.",
      {"text", "target_lang", "source_lang", "split_sentences", "tag_handling", "splitting_tags",
       "non_splitting_tags", "ignore_tags", "outline_detection", "show_billed_characters"},
      TranslateDeepL);
  for (const char* const method : {"GET", "POST"}) {
    add(method, "/v2/languages", "DeepL's API: the languages of sources or targets.", {"type"},
        DeepLLanguages);
  }
  add("GET", "/v2/usage", "DeepL's API: the characters since the server's start.", {},
      [](const SharedCall& call, const TextTranslator& of) {
        ReplyJson(call, {{"character_count", of.num_characters()}, {"character_limit", kNoLimit}});
      });
  // Clients ask which glossaries there are, and fail if the answer is 404.
  const auto add_empty = [&add](const char* path, const char* summary, const char* list) {
    add("GET", path, summary, {}, [list](const SharedCall& call, const TextTranslator& /*of*/) {
      ReplyJson(call, {{list, json::array()}});
    });
  };
  add_empty("/v2/glossary-language-pairs",
            "DeepL's API: an empty list, as there are no glossaries.", "supported_languages");
  add_empty("/v2/glossaries", "DeepL's API: an empty list.", "glossaries");
  return group;
}

}  // namespace sru::server::translation
