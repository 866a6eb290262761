#include "models/decoding/sampling_options.h"

#include <algorithm>

#include "base/status.h"

namespace sru::models {
namespace {

// NaN is in no range.
absl::Status CheckRange(const char* field, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("sampling.", field, ": expected a number in [", least, ", ", most,
                         "], found ", value);
}

absl::Status CheckLogitBias(const SamplingOptions& options, int vocabulary_size) {
  if (options.logit_bias.size() > kMaxLogitBiases) {
    return InvalidArgument("sampling.logit_bias: expected at most ", kMaxLogitBiases,
                           " entries, found ", options.logit_bias.size());
  }
  std::vector<int32_t> ids;
  ids.reserve(options.logit_bias.size());
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || id >= vocabulary_size) {
      return InvalidArgument("sampling.logit_bias: expected token ids in [0, ", vocabulary_size,
                             ") as keys, found ", id);
    }
    if (!(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
      return InvalidArgument("sampling.logit_bias[", id, "]: expected a number in [",
                             -kMaxLogitBias, ", ", kMaxLogitBias, "], found ", bias);
    }
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return absl::OkStatus();
  return InvalidArgument("sampling.logit_bias: expected each token id once, found ", *twice,
                         " twice");
}

}  // namespace

absl::Status ValidateSampling(const SamplingOptions& options, int vocabulary_size) {
  absl::Status status = CheckRange("temperature", options.temperature, 0, kMaxTemperature);
  if (!status.ok()) return status;
  if (options.top_k < 0) {
    return InvalidArgument("sampling.top_k: expected 0 (off) or a positive number, found ",
                           options.top_k);
  }
  status.Update(CheckRange("top_p", options.top_p, 0, 1));
  status.Update(CheckRange("min_p", options.min_p, 0, 1));
  if (options.repetition_penalty != 0 && !(options.repetition_penalty >= kLeastRepetitionPenalty &&
                                           options.repetition_penalty <= kMaxRepetitionPenalty)) {
    status.Update(InvalidArgument("sampling.repetition_penalty: expected 0 (off) or a number in [",
                                  kLeastRepetitionPenalty, ", ", kMaxRepetitionPenalty, "], found ",
                                  options.repetition_penalty));
  }
  status.Update(
      CheckRange("presence_penalty", options.presence_penalty, -kMaxPenalty, kMaxPenalty));
  status.Update(
      CheckRange("frequency_penalty", options.frequency_penalty, -kMaxPenalty, kMaxPenalty));
  status.Update(CheckLogitBias(options, vocabulary_size));
  return status;
}

}  // namespace sru::models
