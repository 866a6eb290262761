#include "bench/model_timer.h"

#include <random>

#include "models/kernel_status.h"

namespace sru::bench {

ModelTimer::ModelTimer(const kernels::Executable& executable, const kernels::StackSpec& spec,
                       OutputKind output)
    : executable_(executable), spec_(spec), output_(output) {
  if (output_ == OutputKind::kAuto && spec_.num_labels == 0 &&
      spec_.pooling == kernels::Pooling::kNone) {
    output_ = OutputKind::kTokens;
  }
}

absl::Status ModelTimer::Prepare(const std::vector<int>& lengths) {
  std::mt19937 random(1);
  const int count = static_cast<int>(lengths.size());
  offsets_.assign(1, 0);
  for (int length : lengths) offsets_.push_back(offsets_.back() + length);
  const size_t tokens = num_tokens();
  token_ids_.clear();
  features_.clear();
  if (spec_.vocabulary_size > 0) {
    std::uniform_int_distribution<int32_t> id(0, spec_.vocabulary_size - 1);
    for (size_t t = 0; t < tokens; ++t) token_ids_.push_back(id(random));
  } else {
    std::normal_distribution<float> normal;
    features_.resize(tokens * spec_.input_size);
    for (float& value : features_) value = normal(random);
  }

  const size_t width = spec_.output_size();
  const size_t states = width * spec_.layers.size();
  const bool classify = spec_.num_labels > 0;
  size_t each = 0;
  if (output_ == OutputKind::kStates) each = states;
  if (output_ == OutputKind::kAuto) each = classify ? spec_.num_labels : width;
  token_vectors_.assign(output_ == OutputKind::kAuto ? 0 : tokens * width, 0.0f);
  per_sequence_.assign(each * count, 0.0f);
  outputs_.assign(count, kernels::SequenceOutput());
  for (int b = 0; b < count; ++b) {
    kernels::SequenceOutput& out = outputs_[b];
    float* const result = per_sequence_.data() + b * each;
    switch (output_) {
      case OutputKind::kAuto:
        out.pooling = spec_.pooling;
        (classify ? out.probabilities : out.pooled) = result;
        break;
      case OutputKind::kStates:
        out.final_state = result;
        [[fallthrough]];
      case OutputKind::kTokens:
        out.token_vectors = token_vectors_.data() + offsets_[b] * width;
        break;
    }
  }
  workspace_.reset();  // before making the next one, so that peak memory is not that of two
  return models::ToAbslStatus(executable_.CreateWorkspace({num_tokens(), count}, &workspace_));
}

absl::Status ModelTimer::Run() {
  kernels::RaggedBatch batch;
  batch.num_sequences = static_cast<int>(outputs_.size());
  batch.offsets = offsets_.data();
  batch.token_ids = token_ids_.empty() ? nullptr : token_ids_.data();
  batch.features = features_.empty() ? nullptr : features_.data();
  return models::ToAbslStatus(executable_.Run(batch, outputs_.data(), *workspace_));
}

}  // namespace sru::bench
