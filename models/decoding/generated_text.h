// GeneratedText: the text of one sample as its tokens come.
//
// What is handed out is final: whole characters of UTF-8 that no stop string can begin with any
// more. Bytes that are no character become U+FFFD, each maximal broken part one (utf8_part.h); an
// incomplete character at the end becomes one only when the text has ended. The pieces together are
// the same, however the bytes are divided among tokens. Time and memory: linear in the bytes of the
// tokens; what is held back is at most a stop string and a character, if TakeText() is called after
// every token.
//
// A model without a detokenizer has no text: TakeText() is always empty, and no stop string ever
// appears.
#ifndef SRU_MODELS_DECODING_GENERATED_TEXT_H_
#define SRU_MODELS_DECODING_GENERATED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/decoding/decoding_memo.h"
#include "models/decoding/stop_strings.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// Not thread-safe. A copy goes on by itself, as the samples of one prompt do.
class GeneratedText {
 public:
  // `detokenizer` must outlive this object; it and `stop` may be null. Goes on from `memo`: bytes
  // that were pending are sent first, unless they become part of a stop string.
  GeneratedText(const Detokenizer* detokenizer, std::shared_ptr<const StopStrings> stop,
                const DecodingMemo& memo);

  // Tokens that the text goes on from. They are part of it only with `echo`, and never of a stop
  // string.
  void AppendPrompt(const std::vector<int32_t>& ids, bool echo);

  // Appends the text of a generated token. True when a stop string has appeared, whose last byte
  // this token has: the text has ended before it, and nothing more may be appended. With `may_stop`
  // false none ends the text.
  bool Append(int32_t id, bool may_stop);

  // What is added to the text since the last call, as far as it is final.
  std::string TakeText();
  // The rest: nothing comes after it.
  std::string Finish();

  // Bytes that TakeText() has not handed out.
  std::string pending() const { return buffer_.substr(taken_); }
  // Writes the members that concern the text: pending_text and text_position.
  void WriteTo(DecodingMemo* memo) const;

 private:
  bool AppendBytes(size_t from, bool may_stop);
  // Moves what ends before `end` out of the buffer.
  std::string Take(size_t end, bool finish);

  const Detokenizer* detokenizer_;
  std::shared_ptr<const StopStrings> stop_;
  Detokenizer::Position position_;
  StopStrings::State stop_state_ = StopStrings::kStart;
  std::string buffer_;
  size_t taken_ = 0;  // bytes of buffer_ that have been handed out
};

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_GENERATED_TEXT_H_
