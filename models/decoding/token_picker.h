// TokenPicker: what a backend needs to pick the next token of one sample (kernels/program.h,
// ops::Predict), from what the call asks for and the tokens so far.
//
//   TokenPicker picker(options, seed, sample, memo);
//   picker.AddPrompt(ids);
//   for each token:
//     sampling = picker.Next();
//     picker.AppendAdjustments(banned, &adjustments);
//     ... Run() ...
//     picker.OnPicked(id);
#ifndef SRU_MODELS_DECODING_TOKEN_PICKER_H_
#define SRU_MODELS_DECODING_TOKEN_PICKER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/program.h"
#include "models/decoding/decoding_memo.h"
#include "models/decoding/sampling_options.h"

namespace sru::models {

// Not thread-safe. A copy goes on by itself.
class TokenPicker {
 public:
  // `options` are valid (ValidateSampling()). Goes on from `memo`, of whose tokens those are
  // remembered that were kept.
  TokenPicker(std::shared_ptr<const SamplingOptions> options, uint64_t seed, int sample,
              const DecodingMemo& memo);

  // Makes a copy pick as that sample, before its first token.
  void set_sample(int sample) { sample_ = sample; }

  // Tokens that the text goes on from.
  void AddPrompt(const std::vector<int32_t>& ids);

  // For the next token.
  kernels::Sampling Next() const;
  // Appends the adjustments of the next token, by ascending id. `banned` ascends; none of them is
  // picked (stop tokens, as long as the text is shorter than it must be).
  void AppendAdjustments(const std::vector<int32_t>& banned,
                         std::vector<kernels::Adjustment>* adjustments) const;
  // The token that was picked, or that the text has otherwise.
  void OnPicked(int32_t id);

  // Tokens of the sequence before the next one.
  int64_t position() const { return position_; }
  // Writes the members that concern picking: position, counts and prompt_ids.
  void WriteTo(DecodingMemo* memo) const;

 private:
  // What concerns one token.
  struct Entry {
    int32_t id = 0;
    int32_t count = 0;  // in the text
    bool in_prompt = false;
    float bias = 0;
  };

  // Adds what `more`, in any order, says of its tokens.
  void Merge(std::vector<Entry> more);
  kernels::Adjustment AdjustmentOf(const Entry& entry) const;

  std::shared_ptr<const SamplingOptions> options_;
  uint64_t seed_;
  int sample_;
  int64_t position_;
  std::vector<Entry> entries_;  // by ascending id
};

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_TOKEN_PICKER_H_
