#include "server/rest/deepl_routes.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/rest/json_message.h"
#include "server/rest/request_fields.h"
#include "server/rest/translation_call.h"

namespace sru::server::rest {
namespace {

using translation::Splitting;
using translation::TextFormat;
using translation::TextRequest;
using translation::TranslatedText;
using SharedCall = std::shared_ptr<RestCall>;

constexpr char kNoLimit[] = "1000000000000";  // what DeepL answers to customers without one

// Fields of the API that these models cannot honour. Ignoring one would give another translation than was asked for.
constexpr const char* kNotSupported[] = {"glossary_id", "glossary_ids", "style_id",
                                         "translation_memory_id", "custom_instructions"};

// "pt-BR" as the API writes the language of a target; of a source it has no region.
std::string TargetCode(const std::string& code) { return absl::AsciiStrToUpper(code); }
std::string SourceCode(const std::string& code) {
  return absl::AsciiStrToUpper(code.substr(0, code.find_first_of("-_")));
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !ContinuesUtf8(byte); });
}

std::set<std::string> Tags(const RequestFields& fields, const std::string& name) {
  std::set<std::string> tags;
  for (const std::string& value : fields.All(name)) {
    for (const absl::string_view tag : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
      tags.emplace(absl::StripAsciiWhitespace(tag));
    }
  }
  return tags;
}

absl::Status ReadRules(RequestFields& fields, translation::TextRules* rules) {
  const std::string handling = fields.Last("tag_handling");
  if (handling == "html") {
    rules->format = TextFormat::kHtml;
  } else if (handling == "xml") {
    rules->format = TextFormat::kXml;
    rules->outline = fields.Flag("outline_detection", true);
    rules->splitting_tags = Tags(fields, "splitting_tags");
    rules->inline_tags = Tags(fields, "non_splitting_tags");
    rules->ignored_tags = Tags(fields, "ignore_tags");
  } else if (!handling.empty()) {
    return InvalidArgument("Value for 'tag_handling' not supported: expected xml or html.");
  }
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

absl::Status ReadRequest(RequestFields& fields, TextRequest* request) {
  request->texts = fields.All("text");
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
  fields.Flag("outline_detection", true);
  return fields.status();
}

void Translate(const SharedCall& call, translation::TextTranslator& translator) {
  RequestFields fields;
  TextRequest request;
  absl::Status status = ReadFields(call, &fields);
  const bool shows_characters = fields.Flag("show_billed_characters", false);
  if (status.ok()) status = ReadRequest(fields, &request);
  if (!status.ok()) return call->Fail(status);
  std::vector<int64_t> characters;
  for (const std::string& text : request.texts) {
    if (shows_characters) characters.push_back(Characters(text));
  }
  TranslateTexts(call, translator, std::move(request),
                 [call, characters](const std::vector<TranslatedText>& texts) {
                   std::string answer = "{\"translations\":[";
                   for (size_t i = 0; i < texts.size(); ++i) {
                     absl::StrAppend(&answer, i == 0 ? "" : ",", "{\"detected_source_language\":");
                     AppendJsonString(SourceCode(texts[i].source), &answer);
                     answer += ",\"text\":";
                     AppendJsonString(texts[i].translations.front(), &answer);
                     if (!characters.empty()) {
                       absl::StrAppend(&answer, ",\"billed_characters\":", characters[i]);
                     }
                     answer += '}';
                   }
                   ReplyJson(call, answer + "]}");
                 });
}

void Languages(const SharedCall& call, const translation::TextTranslator& translator) {
  RequestFields fields;
  if (absl::Status status = ReadFields(call, &fields); !status.ok()) return call->Fail(status);
  const std::string type = fields.Last("type");
  const bool is_target = type == "target";
  if (!type.empty() && !is_target && type != "source") {
    return call->Fail(
        InvalidArgument("Value for 'type' not supported: expected source or target."));
  }
  const translation::LanguageCatalog catalog = translator.Catalog();
  std::string answer = "[";
  std::string last;
  for (const std::string& code : is_target ? catalog.Targets() : catalog.Sources()) {
    const std::string shown = is_target ? TargetCode(code) : SourceCode(code);
    if (shown == last) continue;
    absl::StrAppend(&answer, last.empty() ? "" : ",", "{\"language\":");
    AppendJsonString(shown, &answer);
    answer += ",\"name\":";
    AppendJsonString(translation::LanguageName(shown), &answer);
    absl::StrAppend(&answer, is_target ? ",\"supports_formality\":false}" : "}");
    last = shown;
  }
  ReplyJson(call, answer + "]");
}

}  // namespace

RouteGroup DeepLRoutes(translation::TextTranslator* translator) {
  RouteGroup group;
  const auto add = [&group](const char* method, const char* path, const char* summary,
                            const std::vector<std::string>& fields,
                            std::function<void(const SharedCall&)> handle) {
    group.routes.push_back(
        TextRoute(method, path, ErrorForm::kDeepL, summary, fields, std::move(handle)));
  };
  const auto languages = [translator](const SharedCall& call) { Languages(call, *translator); };
  add("POST", "/v2/translate", "DeepL's API: translations of texts, sentence by sentence.",
      {"text", "target_lang", "source_lang", "split_sentences", "tag_handling", "splitting_tags",
       "non_splitting_tags", "ignore_tags", "outline_detection", "show_billed_characters"},
      [translator](const SharedCall& call) { Translate(call, *translator); });
  for (const char* const method : {"GET", "POST"}) {
    add(method, "/v2/languages", "DeepL's API: the languages of sources or targets.", {"type"},
        languages);
  }
  add("GET", "/v2/usage", "DeepL's API: the characters since the server's start.", {},
      [translator](const SharedCall& call) {
        ReplyJson(call, absl::StrCat("{\"character_count\":", translator->num_characters(),
                                     ",\"character_limit\":", kNoLimit, "}"));
      });
  return group;
}

}  // namespace sru::server::rest
