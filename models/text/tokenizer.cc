#include "models/text/tokenizer.h"

#include "absl/status/status.h"
#include "base/status.h"
#include "base/utf8.h"

namespace sru::models {

std::string Detokenizer::Decode(const std::vector<int32_t>& ids) const {
  std::string text;
  Position position;
  for (const int32_t id : ids) Append(id, &position, &text);
  return text;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       size_t max_tokens) const {
  std::vector<int32_t> ids;
  SRU_RETURN_UNLESS_OK(AppendIds(text, max_tokens, &ids));
  return ids;
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == text.size()) return absl::OkStatus();
  return InvalidArgument("not valid UTF-8 at byte ", invalid);
}

std::string ByteName(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace sru::models
