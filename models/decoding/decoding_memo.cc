#include "models/decoding/decoding_memo.h"

namespace sru::models {

void AppendGivenTokens(const Detokenizer* detokenizer, const std::vector<int32_t>& ids,
                       DecodingMemo* memo) {
  memo->position += static_cast<int64_t>(ids.size());
  memo->pending_text.clear();
  if (detokenizer == nullptr) return;
  std::string text;
  for (const int32_t id : ids) {
    detokenizer->Append(id, &memo->text_position, &text);
    text.clear();
  }
}

}  // namespace sru::models
