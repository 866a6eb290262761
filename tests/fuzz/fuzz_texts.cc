#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "server/rest/memory_hold.h"
#include "server/translation/document.h"
#include "server/translation/request_fields.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"

namespace sru::fuzz {
namespace {

using server::translation::Document;
using server::translation::Splitting;
using server::translation::TextFormat;
using server::translation::TextRange;
using server::translation::TextRules;

// Each unit is translated into itself, its characters as pieces in the opposite order.
v1::Translation Itself(const Document::Unit& unit) {
  v1::Translation translation;
  v1::Hypothesis* const hypothesis = translation.add_hypotheses();
  hypothesis->set_text(unit.text);
  if (!unit.needs_alignment() || unit.text.size() > 64) return translation;
  for (size_t at = 0; at < unit.text.size();) {
    size_t end = at + 1;
    while (end < unit.text.size() && ContinuesUtf8(unit.text[end])) ++end;
    translation.add_source_tokens(unit.text.substr(at, end - at));
    hypothesis->add_tokens(unit.text.substr(at, end - at));
    at = end;
  }
  const int count = hypothesis->tokens_size();
  for (int t = 0; t < count; ++t) {
    for (int s = 0; s < count; ++s) hypothesis->add_alignment(s == count - 1 - t ? 1 : 0);
  }
  return translation;
}

void FuzzDocument(const std::string& text, const TextRules& rules) {
  const auto document = Document::Parse(
      text, rules,
      [](std::string_view part, Splitting splitting) {
        return server::translation::SplitSentences(part, "en", splitting);
      },
      [](int64_t /*bytes*/) { return absl::OkStatus(); });
  if (!document.ok()) {
    Require(rules.format != TextFormat::kPlain, "plain text can be read");
    return;
  }
  std::vector<v1::Translation> translations;
  for (const Document::Unit& unit : (*document)->units()) {
    Require(!unit.text.empty(), "a unit has text");
    Require(FindInvalidUtf8(unit.text) == unit.text.size(), "a unit is UTF-8");
    translations.push_back(Itself(unit));
  }
  const std::string again = *(*document)->Assemble(translations, false);
  Require(FindInvalidUtf8(again) == again.size(), "the text is UTF-8");
  // A < becomes four bytes, an element an end of up to its size, and tags may come twice.
  Require(again.size() <= 8 * text.size(), "the text is not many times as long");
  Require(2 * static_cast<int64_t>(again.size()) <= (*document)->AnswerBytes(translations),
          "the memory of the text is reserved");
  if (rules.format != TextFormat::kPlain) return;
  std::string expected = text;
  if (rules.splitting != Splitting::kSentences) {
    Require(again.size() == expected.size(), "only ends of lines differ");
    return;
  }
  Require(again == expected, "what stands between units stays");
}

void RequireFields(server::translation::RequestFields fields) {
  for (const char* const name : {"text", "q", ""}) {
    for (const std::string& value : fields.All(name)) {
      Require(FindInvalidUtf8(value) == value.size(), "a value is UTF-8");
    }
  }
}

}  // namespace

void FuzzTexts(std::string_view bytes) {
  const auto [name, input] = SplitName(bytes);
  const std::string text(input);
  if (name == "form" || name == "json") {
    server::rest::MemoryHold memory(nullptr);
    server::translation::RequestFields fields;
    const absl::Status status =
        name == "form" ? fields.AddForm(text, &memory) : fields.AddJson(text, &memory);
    if (status.ok()) RequireFields(std::move(fields));
    return;
  }
  if (FindInvalidUtf8(text) != text.size()) return;
  TextRules rules;
  const auto has = [name = name](std::string_view word) { return name.find(word) != name.npos; };
  if (has("html")) rules.format = TextFormat::kHtml;
  if (has("xml")) rules.format = TextFormat::kXml;
  if (has("whole")) rules.splitting = Splitting::kNone;
  if (has("no newlines")) rules.splitting = Splitting::kNoNewlines;
  rules.splitting_tags = {"p"};
  rules.ignored_tags = {"x"};
  FuzzDocument(text, rules);
}

}  // namespace sru::fuzz
