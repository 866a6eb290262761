#include "models/text/byte_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "models/text/code_point.h"

namespace sru::models {

ByteTokenizer::ByteTokenizer(std::vector<uint8_t> vocabulary) : vocabulary_(std::move(vocabulary)) {
  ids_.fill(kNotFound);
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    ids_[vocabulary_[id]] = static_cast<int32_t>(id);
  }
}

absl::Status ByteTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  sink->Reserve(text.size());
  const auto id_at = [&](size_t at) { return ids_[static_cast<unsigned char>(text[at])]; };
  for (size_t begin = 0; begin < text.size() && !sink->is_full();) {
    const size_t most = std::min(sink->room(), text.size() - begin);
    size_t end = begin;
    while (end < begin + most && id_at(end) != kNotFound) ++end;
    const bool is_known = end == begin + most;
    // The bytes of a character before one that is unknown, too.
    while (!is_known && !sink->refuses_unknown() && end > begin && ContinuesUtf8(text[end])) --end;
    sink->AddBytes(begin, end, id_at);
    begin = end;
    if (is_known) continue;
    end += sink->refuses_unknown() ? 1 : CodePointBytes(text[begin]);
    sink->AddUnknown(begin, std::min(end, text.size()));
    begin = end;
  }
  return absl::OkStatus();
}

std::string ByteTokenizer::Missing(std::string_view text, size_t begin, size_t /*end*/) const {
  while (ids_[static_cast<unsigned char>(text[begin])] != kNotFound) ++begin;
  const auto byte = static_cast<unsigned char>(text[begin]);
  return absl::StrCat("byte ", begin, " of the text is ", byte, " (", ByteName(byte),
                      "), which is not in the model's vocabulary");
}

int32_t ByteTokenizer::Lookup(std::string_view token) const {
  return token.size() == 1 ? ids_[static_cast<unsigned char>(token[0])] : kNotFound;
}

std::string ByteTokenizer::TokenName(int32_t id) const {
  const uint8_t byte = vocabulary_[id];
  return byte < 0x80 ? std::string(1, static_cast<char>(byte)) : ByteName(byte);
}

void ByteTokenizer::Append(int32_t id, Position* position, std::string* text) const {
  text->push_back(static_cast<char>(vocabulary_[id]));
  position->at_start = false;
}

}  // namespace sru::models
