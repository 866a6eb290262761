#include "models/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/valid_utf8.h"

namespace sru::models {
namespace {

// Counts the code points of a text, from its beginning on.
class CodePointCount {
 public:
  explicit CodePointCount(std::string_view text) : text_(text) {}

  // How many begin before a byte, which is none before the one that was asked about last.
  uint32_t Before(size_t byte) {
    for (; at_ < byte; ++at_) count_ += ContinuesUtf8(text_[at_]) ? 0 : 1;
    return count_;
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;
  uint32_t count_ = 0;
};

void CountCodePoints(std::string_view text, std::vector<TextSpan>* spans) {
  CodePointCount begins(text);
  CodePointCount ends(text);
  for (TextSpan& span : *spans) {
    span.begin_char = begins.Before(span.begin_byte);
    const bool is_within = span.begin_byte < text.size() && ContinuesUtf8(text[span.begin_byte]);
    if (is_within && span.begin_char > 0) --span.begin_char;
    span.end_char = ends.Before(span.end_byte);
  }
}

}  // namespace

std::string Detokenizer::Decode(const std::vector<int32_t>& ids) const {
  std::string text;
  Position position;
  for (const int32_t id : ids) Append(id, &position, &text);
  return text;
}

void EncodedText::Cut(size_t tokens) {
  if (tokens >= ids.size()) return;
  if (unknown_end == ids.size()) --unknown;
  ids.resize(tokens);
  if (spans.size() > tokens) spans.resize(tokens);
}

TokenSink::TokenSink(const EncodeOptions& options, int32_t unknown_id, int32_t replacement_id,
                     EncodedText* to)
    : most_(options.max_tokens),
      unknown_id_(unknown_id),
      replacement_id_(replacement_id),
      use_(options.unknown != UnknownUse::kDefault ? options.unknown
           : unknown_id == Tokenizer::kNotFound    ? UnknownUse::kRefuse
                                                   : UnknownUse::kReplace),
      spans_(options.spans),
      to_(*to) {}

void TokenSink::Reserve(size_t tokens) {
  to_.ids.reserve(std::min(tokens, most_));
  if (spans_) to_.spans.reserve(std::min(tokens, most_));
}

void TokenSink::AddUnknown(size_t begin, size_t end) {
  const bool replaces = use_ == UnknownUse::kReplace && replacement_id_ != Tokenizer::kNotFound;
  if (!replaces && use_ != UnknownUse::kSkip) {
    refused_ = TextSpan{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    most_ = 0;
    return;
  }
  ++to_.unknown;
  if (!replaces) return;
  Append(replacement_id_, begin, end);
  to_.unknown_end = to_.ids.size();
}

void TokenSink::ExtendUnknown(size_t end) {
  // A skipped token is not in the lists, so there is no place to extend.
  const bool is_last = to_.unknown_end > 0 && to_.unknown_end == to_.ids.size();
  if (spans_ && is_last) to_.spans.back().end_byte = static_cast<uint32_t>(end);
}

void TokenSink::Clear() { to_ = EncodedText(); }

absl::StatusOr<EncodedText> Tokenizer::Encode(std::string_view text,
                                              const EncodeOptions& options) const {
  EncodedText encoded;
  TokenSink sink = SinkOf(options, &encoded);
  SRU_RETURN_UNLESS_OK(AppendTokens(text, &sink));
  if (const auto& refused = sink.refused(); refused.has_value()) {
    return InvalidArgument(Missing(text, refused->begin_byte, refused->end_byte), "; ",
                           kUnknownAdvice);
  }
  if (options.spans) CountCodePoints(text, &encoded.spans);
  return encoded;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       size_t max_tokens) const {
  EncodeOptions options;
  options.max_tokens = max_tokens;
  SRU_ASSIGN_OR_RETURN(EncodedText encoded, Encode(text, options));
  return std::move(encoded.ids);
}

int32_t Tokenizer::ReplacementId() const {
  int32_t id = unknown_id();
  for (const char* const token : {"\xEF\xBF\xBD", "?", " "}) {
    if (id == kNotFound) id = Lookup(token);
  }
  return id;
}

std::string Tokenizer::Missing(std::string_view /*text*/, size_t begin, size_t end) const {
  return absl::StrCat("the word of ", end - begin, " bytes at byte ", begin,
                      " is not in the model's vocabulary",
                      unknown_id() == kNotFound ? ", which has no <unk>" : "");
}

absl::Status CheckUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return absl::OkStatus();
  return InvalidArgument("not valid UTF-8 at byte ", FindInvalidUtf8(text));
}

std::string ByteName(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace sru::models
