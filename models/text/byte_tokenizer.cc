#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

class ByteTokenizer final : public Tokenizer, public Detokenizer {
 public:
  explicit ByteTokenizer(std::vector<uint8_t> vocabulary) : vocabulary_(std::move(vocabulary)) {
    ids_.fill(kNotFound);
    for (size_t id = 0; id < vocabulary_.size(); ++id) {
      ids_[vocabulary_[id]] = static_cast<int32_t>(id);
    }
  }

  int32_t Lookup(std::string_view token) const override {
    return token.size() == 1 ? IdOf(token[0]) : kNotFound;
  }
  int32_t unknown_id() const override { return kNotFound; }
  int size() const override { return static_cast<int>(vocabulary_.size()); }
  std::string TokenName(int32_t id) const override {
    const uint8_t byte = vocabulary_[id];
    return byte < 0x80 ? std::string(1, static_cast<char>(byte)) : ByteName(byte);
  }

  const Detokenizer* detokenizer() const override { return this; }
  void Append(int32_t id, Position* position, std::string* text) const override {
    text->push_back(static_cast<char>(vocabulary_[id]));
    position->at_start = false;
  }

 private:
  int32_t IdOf(char byte) const { return ids_[static_cast<unsigned char>(byte)]; }

  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override {
    sink->Reserve(text.size());
    const auto id_at = [&](size_t at) { return IdOf(text[at]); };
    for (size_t begin = 0; begin < text.size() && !sink->is_full();) {
      const size_t most = std::min(sink->room(), text.size() - begin);
      size_t end = begin;
      while (end < begin + most && id_at(end) != kNotFound) ++end;
      const bool is_known = end == begin + most;
      // The bytes of a character before one that is unknown, too.
      while (!is_known && !sink->refuses_unknown() && end > begin && ContinuesUtf8(text[end])) {
        --end;
      }
      sink->AddBytes(begin, end, id_at);
      begin = end;
      if (is_known) continue;
      end += sink->refuses_unknown() ? 1 : CodePointBytes(text[begin]);
      sink->AddUnknown(begin, std::min(end, text.size()));
      begin = end;
    }
    return absl::OkStatus();
  }

  std::string Missing(std::string_view text, size_t begin, size_t /*end*/) const override {
    while (IdOf(text[begin]) != kNotFound) ++begin;
    const auto byte = static_cast<unsigned char>(text[begin]);
    return absl::StrCat("byte ", begin, " of the text is ", byte, " (", ByteName(byte),
                        "), which is not in the model's vocabulary");
  }

  const std::vector<uint8_t> vocabulary_;
  std::array<int32_t, 256> ids_;  // kNotFound: not in the vocabulary
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer(std::vector<uint8_t> vocabulary) {
  return std::make_unique<ByteTokenizer>(std::move(vocabulary));
}

}  // namespace sru::models
