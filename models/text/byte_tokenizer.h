// One token per byte. Text may be any bytes; there is no unknown symbol, no start and no end. A
// character of several bytes is skipped or replaced as a whole, if one of them is unknown.
#ifndef SRU_MODELS_TEXT_BYTE_TOKENIZER_H_
#define SRU_MODELS_TEXT_BYTE_TOKENIZER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer.h"

namespace sru::models {

class ByteTokenizer final : public Tokenizer, public Detokenizer {
 public:
  // The bytes that the model knows; the id of a byte is its index. They must differ.
  explicit ByteTokenizer(std::vector<uint8_t> vocabulary);

  // The id of a token of one byte.
  int32_t Lookup(std::string_view token) const override;

  int32_t unknown_id() const override { return kNotFound; }
  int size() const override { return static_cast<int>(vocabulary_.size()); }
  std::string TokenName(int32_t id) const override;

  const Detokenizer* detokenizer() const override { return this; }
  void Append(int32_t id, Position* position, std::string* text) const override;

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;
  std::string Missing(std::string_view text, size_t begin, size_t end) const override;

  const std::vector<uint8_t> vocabulary_;
  std::array<int32_t, 256> ids_;  // kNotFound: not in the vocabulary
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_BYTE_TOKENIZER_H_
