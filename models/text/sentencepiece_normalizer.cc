#include "models/text/sentencepiece_normalizer.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/utf8.h"
#include "models/text/code_point.h"

namespace sru::models {
namespace {

// The longest text that a rule replaces, and the longest replacement. Rules of Unicode's normal
// forms have a few characters, and NFKC's longest replacement has 33 bytes. A damaged file could
// have circles, and one made to do harm could turn each character into megabytes.
constexpr size_t kMaxRuleBytes = 256;

// The bits of a unit of the double array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7fffffffu; }
uint32_t Label(uint32_t unit) { return unit & 0x800000ffu; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    const SentencePieceModel& model, const ByteTrie& protected_pieces) {
  SentencePieceNormalizer normalizer(model, protected_pieces);
  if (!model.character_map.empty()) {
    SRU_RETURN_UNLESS_OK(normalizer.ReadRules(model.character_map));
  }
  return normalizer;
}

absl::Status SentencePieceNormalizer::ReadRules(std::string_view compiled) {
  const absl::Status damaged =
      absl::InvalidArgumentError("precompiled_charsmap: the rules are damaged");
  uint32_t trie_bytes;
  if (compiled.size() < sizeof(trie_bytes)) return damaged;
  std::memcpy(&trie_bytes, compiled.data(), sizeof(trie_bytes));
  compiled.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= compiled.size()) {
    return damaged;
  }
  units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), compiled.data(), trie_bytes);
  replacements_ = compiled.substr(trie_bytes);
  // Each replacement is then a text that ends, and valid; a value may still point into the middle
  // of one, see Replace().
  if (replacements_.back() != '\0' || FindInvalidUtf8(replacements_) != replacements_.size()) {
    return damaged;
  }
  for (std::string_view rest = replacements_; !rest.empty();) {
    const size_t size = rest.find('\0');
    if (size > kMaxRuleBytes) {
      return InvalidArgument("precompiled_charsmap: expected replacements of at most ",
                             kMaxRuleBytes, " bytes, found ", size);
    }
    rest.remove_prefix(size + 1);
  }
  return absl::OkStatus();
}

std::pair<std::string_view, size_t> SentencePieceNormalizer::Replace(std::string_view text) const {
  if (!protected_pieces_->empty()) {
    const size_t length = protected_pieces_->LongestPrefix(text);
    if (length > 0) return {text.substr(0, length), length};
  }
  size_t longest = 0;
  uint32_t value = 0;
  if (!units_.empty()) {
    size_t node = Offset(units_[0]);
    const size_t end = std::min(text.size(), kMaxRuleBytes);
    for (size_t i = 0; i < end; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= units_.size() || Label(units_[node]) != byte) break;
      const uint32_t unit = units_[node];
      node ^= Offset(unit);
      if (!HasLeaf(unit)) continue;
      if (node >= units_.size()) break;
      longest = i + 1;
      value = Value(units_[node]);
    }
  }
  // The last two are what a damaged file could do: a rule that ends, or a replacement that starts,
  // within a character.
  if (longest == 0 || value >= replacements_.size() ||
      (longest < text.size() && ContinuesUtf8(text[longest])) ||
      ContinuesUtf8(replacements_[value])) {
    const size_t length = CodePointBytes(text[0]);
    return {text.substr(0, length), length};
  }
  return {std::string_view(replacements_.data() + value), longest};
}

std::string SentencePieceNormalizer::Normalize(std::string_view text, size_t most, bool* is_whole,
                                               Origins* origins) const {
  *is_whole = true;
  const size_t text_bytes = text.size();
  const std::string_view space = model_->escape_whitespaces ? kPieceSpace : " ";
  const bool remove_spaces = model_->remove_extra_whitespaces;
  if (remove_spaces) {
    while (!text.empty()) {
      const auto [replaced, length] = Replace(text);
      if (replaced != " ") break;
      text.remove_prefix(length);
    }
  }
  std::string normalized;
  const auto note_origins = [&](size_t begin, size_t end) {
    if (origins != nullptr) origins->resize(normalized.size(), {begin, end});
  };
  if (text.empty()) return normalized;
  normalized.reserve(std::min(text.size() + text.size() / 2, most));
  if (model_->add_dummy_prefix) normalized += space;
  note_origins(text_bytes - text.size(), text_bytes - text.size());
  bool after_space = remove_spaces;
  while (!text.empty()) {
    if (normalized.size() >= most) {
      *is_whole = false;
      return normalized;
    }
    auto [replaced, length] = Replace(text);
    const size_t at = text_bytes - text.size();
    text.remove_prefix(length);
    if (after_space) {
      replaced.remove_prefix(std::min(replaced.find_first_not_of(' '), replaced.size()));
    }
    if (replaced.empty()) continue;
    for (const char c : replaced) {
      if (c == ' ') {
        normalized += space;
      } else {
        normalized += c;
      }
    }
    note_origins(at, at + length);
    after_space = remove_spaces && replaced.back() == ' ';
  }
  if (remove_spaces) {
    size_t size = normalized.size();
    while (size >= space.size() &&
           normalized.compare(size - space.size(), space.size(), space) == 0) {
      size -= space.size();
    }
    normalized.resize(size);
    if (origins != nullptr) origins->resize(size);
  }
  return normalized;
}

}  // namespace sru::models
