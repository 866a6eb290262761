#include "models/text/byte_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace sru::models {

ByteTokenizer::ByteTokenizer(std::vector<uint8_t> vocabulary) : vocabulary_(std::move(vocabulary)) {
  ids_.fill(kNotFound);
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    ids_[vocabulary_[id]] = static_cast<int32_t>(id);
  }
}

absl::Status ByteTokenizer::AppendIds(std::string_view text, size_t max_tokens,
                                      std::vector<int32_t>* ids) const {
  const size_t count = std::min(text.size(), max_tokens);
  ids->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (ids_[byte] == kNotFound) {
      return InvalidArgument("byte ", i, " of the text is ", byte, " (", ByteName(byte),
                             "), which is not in the model's vocabulary");
    }
    ids->push_back(ids_[byte]);
  }
  return absl::OkStatus();
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
