// Documents through a translation of words into capitals, for markup_test.py. Reads, and answers
// each document by its text and its units:
//
//   FORMAT MODE SIZE\n<bytes>   ->   SIZE\n<bytes>COUNT\n, and SIZE\n<bytes> for each unit
//
// FORMAT: html, xml. MODE: keep the order, reverse it, drop a third of the words, say each twice,
// none; with the suffix "_pieces" words are pieces of up to three characters, otherwise one piece
// each.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/utf8.h"
#include "server/translation/document.h"

namespace sru::server::translation {
namespace {

// A word as a tokenizer cuts it.
std::vector<std::string> PiecesOf(const std::string& word, bool many) {
  std::vector<std::string> pieces = {"\u2581"};
  size_t characters = 0;
  for (const char byte : word) {
    const bool is_start = !ContinuesUtf8(byte);
    if (many && is_start && characters == 3) {
      pieces.emplace_back();
      characters = 0;
    }
    if (is_start) ++characters;
    pieces.back() += byte;
  }
  return pieces;
}

std::vector<size_t> OrderOf(size_t words, const std::string& mode) {
  std::vector<size_t> order;
  for (size_t i = 0; i < words; ++i) {
    if (absl::StartsWith(mode, "none") || (absl::StartsWith(mode, "drop") && i % 3 == 1)) continue;
    order.insert(order.end(), absl::StartsWith(mode, "twice") ? 2 : 1, i);
  }
  if (absl::StartsWith(mode, "reverse")) std::reverse(order.begin(), order.end());
  return order;
}

v1::Translation Translate(const std::string& text, const std::string& mode) {
  const bool many = absl::EndsWith(mode, "_pieces");
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  v1::Translation translation;
  std::vector<int> first;  // piece of each word
  for (const std::string& word : words) {
    first.push_back(translation.source_tokens_size());
    for (const std::string& piece : PiecesOf(word, many)) translation.add_source_tokens(piece);
  }
  translation.add_source_tokens("</s>");
  v1::Hypothesis* const hypothesis = translation.add_hypotheses();
  for (const size_t word : OrderOf(words.size(), mode)) {
    const std::string capitals = absl::AsciiStrToUpper(words[word]);
    if (!hypothesis->text().empty()) hypothesis->mutable_text()->push_back(' ');
    hypothesis->mutable_text()->append(capitals);
    int source = first[word];
    for (const std::string& piece : PiecesOf(capitals, many)) {
      hypothesis->add_tokens(piece);
      for (int s = 0; s < translation.source_tokens_size(); ++s) {
        hypothesis->add_alignment(s == source ? 0.9f : 0.01f);
      }
      ++source;
    }
  }
  return translation;
}

void Write(const std::string& text) { std::cout << text.size() << '\n' << text; }

int Run() {
  std::string format, mode;
  size_t size = 0;
  while (std::cin >> format >> mode >> size) {
    std::string text(size, '\0');
    std::cin.get();
    std::cin.read(text.data(), static_cast<std::streamsize>(size));
    TextRules rules;
    rules.format = format == "xml" ? TextFormat::kXml : TextFormat::kHtml;
    rules.ignored_tags = {"keep"};
    if (rules.format == TextFormat::kXml) rules.inline_tags = {"a", "b", "br", "em", "i", "span"};
    const auto document = Document::Parse(
        text, rules,
        [](std::string_view part, Splitting splitting) {
          return SplitSentences(part, "en", splitting);
        },
        [](int64_t /*bytes*/) { return absl::OkStatus(); });
    if (!document.ok()) return 1;
    std::vector<v1::Translation> translations;
    for (const Document::Unit& unit : (*document)->units()) {
      translations.push_back(Translate(unit.text, mode));
    }
    Write(*(*document)->Assemble(translations, /*join_with_spaces=*/false));
    std::cout << translations.size() << '\n';
    for (const Document::Unit& unit : (*document)->units()) Write(unit.text);
  }
  return 0;
}

}  // namespace
}  // namespace sru::server::translation

int main() { return sru::server::translation::Run(); }
