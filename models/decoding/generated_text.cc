#include "models/decoding/generated_text.h"

#include <string_view>
#include <utility>

#include "models/decoding/utf8_part.h"

namespace sru::models {

GeneratedText::GeneratedText(const Detokenizer* detokenizer,
                             std::shared_ptr<const StopStrings> stop, const DecodingMemo& memo)
    : detokenizer_(detokenizer),
      stop_(std::move(stop)),
      position_(memo.text_position),
      buffer_(memo.pending_text) {
  AppendBytes(0, false);
}

void GeneratedText::AppendPrompt(const std::vector<int32_t>& ids, bool echo) {
  if (detokenizer_ == nullptr || ids.empty()) return;
  // What is pending is not continued by the prompt's bytes.
  std::string before = Take(buffer_.size(), true);
  std::string text;
  for (const int32_t id : ids) {
    detokenizer_->Append(id, &position_, &text);
    if (!echo) text.clear();
  }
  buffer_ = std::move(before) + text;
  taken_ = 0;
  stop_state_ = StopStrings::kStart;
}

bool GeneratedText::Append(int32_t id, bool may_stop) {
  if (detokenizer_ == nullptr) return false;
  const size_t from = buffer_.size();
  detokenizer_->Append(id, &position_, &buffer_);
  return AppendBytes(from, may_stop);
}

// Follows the bytes of the buffer from `from` on.
bool GeneratedText::AppendBytes(size_t from, bool may_stop) {
  if (stop_ == nullptr) return false;
  for (size_t i = from; i < buffer_.size(); ++i) {
    stop_state_ = stop_->Next(stop_state_, static_cast<unsigned char>(buffer_[i]));
    const size_t match = may_stop ? stop_->match(stop_state_) : 0;
    if (match > 0) {
      buffer_.resize(i + 1 - match);
      stop_state_ = StopStrings::kStart;
      return true;
    }
  }
  return false;
}

std::string GeneratedText::TakeText() {
  const size_t held = stop_ == nullptr ? 0 : stop_->depth(stop_state_);
  return Take(buffer_.size() - held, false);
}

std::string GeneratedText::Finish() {
  stop_state_ = StopStrings::kStart;
  return Take(buffer_.size(), true);
}

std::string GeneratedText::Take(size_t end, bool finish) {
  std::string text;
  while (taken_ < end) {
    const Utf8Part part = FirstUtf8Part(std::string_view(buffer_).substr(taken_));
    if (taken_ + part.bytes > end || (part.kind == Utf8Part::kIncomplete && !finish)) break;
    if (part.kind == Utf8Part::kCharacter) {
      text.append(buffer_, taken_, part.bytes);
    } else {
      text.append(kReplacementCharacter);
    }
    taken_ += part.bytes;
  }
  // Moving what is held back is paid for by what was handed out before it.
  if (taken_ > buffer_.size() / 2) {
    buffer_.erase(0, taken_);
    taken_ = 0;
  }
  return text;
}

void GeneratedText::WriteTo(DecodingMemo* memo) const {
  memo->pending_text = pending();
  memo->text_position = position_;
}

}  // namespace sru::models
