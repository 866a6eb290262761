// Stacks with random weights and random ragged batches, for tests and benchmarks of backends.
#ifndef SRU_KERNELS_TESTING_RANDOM_STACK_H_
#define SRU_KERNELS_TESTING_RANDOM_STACK_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace sru::testing {

// What RandomStack() makes; the defaults are the published package's.
struct StackOptions {
  int input_size = 32;
  int hidden_size = 16;
  int num_layers = 2;
  int directions = 2;
  int projection_size = 0;
  int vocabulary_size = 50;  // 0 = features only
  bool has_skip_term = true;
  bool v1 = false;
  bool input_to_hidden = false;
  float alpha = 1.7f;
  kernels::Activation activation = kernels::Activation::kIdentity;
  kernels::LayerNorm layer_norm = kernels::LayerNorm::kNone;
  kernels::Pooling pooling = kernels::Pooling::kMax;
  int num_labels = 5;
};

// The variants of the published package, and widths that fill no vector, for every backend.
inline std::vector<std::pair<std::string, StackOptions>> StackVariants() {
  std::vector<std::pair<std::string, StackOptions>> variants;
  const auto add = [&](const std::string& name, auto change) {
    StackOptions options;
    change(options);
    variants.emplace_back(name, options);
  };
  add("bidirectional", [](StackOptions&) {});
  add("unidirectional", [](StackOptions& o) { o.directions = 1, o.input_size = 16; });
  add("wider_input", [](StackOptions& o) { o.input_size = 40; });
  add("odd", [](StackOptions& o) { o.input_size = 13, o.hidden_size = 19; });
  add("odd_same_width", [](StackOptions& o) { o.input_size = 38, o.hidden_size = 19; });
  add("one_wide", [](StackOptions& o) { o.input_size = 1, o.hidden_size = 1; });
  add("many_vectors", [](StackOptions& o) { o.input_size = 24, o.hidden_size = 112; });
  add("projection", [](StackOptions& o) { o.projection_size = 7; });
  add("no_skip", [](StackOptions& o) { o.has_skip_term = false, o.input_size = 9; });
  add("tanh", [](StackOptions& o) { o.activation = kernels::Activation::kTanh; });
  add("v1", [](StackOptions& o) { o.v1 = true; });
  add("norm_before", [](StackOptions& o) { o.layer_norm = kernels::LayerNorm::kBefore; });
  add("norm_after", [](StackOptions& o) { o.layer_norm = kernels::LayerNorm::kAfter; });
  add("norm_before_odd", [](StackOptions& o) {
    o.layer_norm = kernels::LayerNorm::kBefore, o.input_size = 13, o.hidden_size = 5;
  });
  add("norm_after_odd", [](StackOptions& o) {
    o.layer_norm = kernels::LayerNorm::kAfter, o.input_size = 13, o.hidden_size = 5;
  });
  add("norm_projection_tanh", [](StackOptions& o) {
    o.layer_norm = kernels::LayerNorm::kBefore, o.projection_size = 5,
    o.activation = kernels::Activation::kTanh;
  });
  add("input_to_hidden", [](StackOptions& o) { o.input_to_hidden = true, o.input_size = 10; });
  add("input_to_hidden_odd",
      [](StackOptions& o) { o.input_to_hidden = true, o.input_size = 10, o.hidden_size = 3; });
  add("features", [](StackOptions& o) { o.vocabulary_size = 0; });
  add("four_layers", [](StackOptions& o) { o.num_layers = 4, o.alpha = 1.0f; });
  return variants;
}

inline std::vector<float> RandomValues(size_t count, unsigned seed, float deviation = 1.0f,
                                       float mean = 0.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A specification that owns what its views point to.
class RandomStack {
 public:
  RandomStack(const StackOptions& o, unsigned seed) : random_(seed) {
    spec_.input_size = o.input_size;
    spec_.vocabulary_size = o.vocabulary_size;
    spec_.embedding = Values(o.vocabulary_size * o.input_size, 1.0f);
    int input = o.input_size;
    const int output = o.directions * o.hidden_size;
    if (o.input_to_hidden) {
      spec_.input_to_hidden = Values(output * input, 1.0f / std::sqrt(static_cast<float>(input)));
      input = output;
    }
    for (int i = 0; i < o.num_layers; ++i) {
      kernels::LayerSpec layer;
      layer.input_size = input;
      layer.hidden_size = o.hidden_size;
      layer.directions = o.directions;
      if (o.projection_size < input && o.projection_size < output) {
        layer.projection_size = o.projection_size;
      }
      layer.has_skip_term = o.has_skip_term;
      layer.num_matrices = o.has_skip_term && input != output ? 4 : 3;
      layer.alpha = o.alpha;
      layer.activation = o.activation;
      layer.layer_norm = o.layer_norm;
      const int inner = layer.product_size();
      // As the published package initializes: with layer norm the products start small. Larger ones
      // make the gates' feedback amplify one rounding of the input past the tests' tolerance.
      const float gain = o.layer_norm == kernels::LayerNorm::kNone ? 1.0f : 0.1f;
      layer.weight =
          Values(inner * output * layer.num_matrices, gain / std::sqrt(static_cast<float>(inner)));
      layer.weight_proj =
          Values(input * layer.projection_size, 1.0f / std::sqrt(static_cast<float>(input)));
      if (!o.v1) layer.weight_c = Values(2 * output, 0.7f);
      layer.bias = Values(2 * output, 0.5f);
      if (o.layer_norm != kernels::LayerNorm::kNone) {
        const int width = o.layer_norm == kernels::LayerNorm::kBefore ? input : output;
        layer.norm_weight = Values(width, 1.0f);
        layer.norm_bias = Values(width, 0.3f);
      }
      spec_.layers.push_back(layer);
      input = output;
    }
    spec_.pooling = o.pooling;
    spec_.num_labels = o.num_labels;
    spec_.classifier_weight =
        Values(o.num_labels * output, 1.0f / std::sqrt(static_cast<float>(output)));
    spec_.classifier_bias = Values(o.num_labels, 0.5f);
  }

  const kernels::StackSpec& spec() const { return spec_; }

 private:
  kernels::FloatView Values(int size, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float>& values = storage_.emplace_back(size);
    for (float& value : values) value = normal(random_);
    return {values.data(), values.size()};
  }

  std::mt19937 random_;
  std::deque<std::vector<float>> storage_;
  kernels::StackSpec spec_;
};

// A batch that owns its arrays.
class RandomBatch {
 public:
  RandomBatch(const kernels::StackSpec& spec, const std::vector<int>& lengths, bool initial_state,
              unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    offsets_.push_back(0);
    for (int length : lengths) offsets_.push_back(offsets_.back() + length);
    const int tokens = offsets_.back();
    if (spec.vocabulary_size > 0) {
      std::uniform_int_distribution<int32_t> id(0, spec.vocabulary_size - 1);
      for (int t = 0; t < tokens; ++t) token_ids_.push_back(id(random));
    } else {
      for (int i = 0; i < tokens * spec.input_size; ++i) features_.push_back(normal(random));
    }
    if (initial_state) {
      const size_t size = lengths.size() * spec.layers.size() * spec.output_size();
      for (size_t i = 0; i < size; ++i) initial_state_.push_back(normal(random));
      for (size_t b = 0; b < lengths.size(); ++b) {
        initial_states_.push_back(initial_state_.data() + size / lengths.size() * b);
      }
    }
  }

  kernels::RaggedBatch view() const {
    kernels::RaggedBatch batch;
    batch.num_sequences = static_cast<int>(offsets_.size()) - 1;
    batch.offsets = offsets_.data();
    batch.token_ids = token_ids_.empty() ? nullptr : token_ids_.data();
    batch.features = features_.empty() ? nullptr : features_.data();
    batch.initial_states = initial_states_.empty() ? nullptr : initial_states_.data();
    return batch;
  }

 private:
  std::vector<int32_t> offsets_;
  std::vector<int32_t> token_ids_;
  std::vector<float> features_;
  std::vector<float> initial_state_;
  std::vector<const float*> initial_states_;  // [sequence]: into the one above
};

// Every output that a model has, for every sequence of a batch.
class OutputArrays {
 public:
  OutputArrays(const kernels::StackSpec& spec, const kernels::RaggedBatch& batch,
               kernels::Pooling pooling)
      : width_(spec.output_size()),
        layers_(static_cast<int>(spec.layers.size())),
        labels_(spec.num_labels) {
    const size_t n = batch.num_sequences;
    token_vectors.assign(static_cast<size_t>(batch.num_tokens()) * width_, kUnwritten);
    pooled.assign(n * width_, kUnwritten);
    final_state.assign(n * layers_ * width_, kUnwritten);
    logits.assign(n * labels_, kUnwritten);
    probabilities.assign(n * labels_, kUnwritten);
    for (size_t b = 0; b < n; ++b) {
      kernels::SequenceOutput out;
      out.pooling = pooling;
      out.token_vectors = &token_vectors[static_cast<size_t>(batch.offsets[b]) * width_];
      if (pooling != kernels::Pooling::kNone) out.pooled = &pooled[b * width_];
      out.final_state = &final_state[b * layers_ * width_];
      if (labels_ > 0 && pooling == spec.pooling) {
        out.logits = &logits[b * labels_];
        out.probabilities = &probabilities[b * labels_];
      }
      outputs.push_back(out);
    }
  }

  static constexpr float kUnwritten = -12345.0f;

  std::vector<float> token_vectors, pooled, final_state, logits, probabilities;
  std::vector<kernels::SequenceOutput> outputs;

 private:
  int width_;
  int layers_;
  int labels_;
};

inline const auto& OutputKinds() {
  static const std::pair<const char*, std::vector<float> OutputArrays::*> kKinds[] = {
      {"token_vectors", &OutputArrays::token_vectors},
      {"pooled", &OutputArrays::pooled},
      {"final_state", &OutputArrays::final_state},
      {"logits", &OutputArrays::logits},
      {"probabilities", &OutputArrays::probabilities}};
  return kKinds;
}

// The kinds of which not all bits are the same.
inline std::string DifferentKinds(const OutputArrays& a, const OutputArrays& b) {
  std::string different;
  for (const auto& [name, kind] : OutputKinds()) {
    const size_t bytes = (a.*kind).size() * sizeof(float);
    if ((a.*kind).size() != (b.*kind).size() ||
        (bytes > 0 && std::memcmp((a.*kind).data(), (b.*kind).data(), bytes) != 0)) {
      different += std::string(different.empty() ? "" : ", ") + name;
    }
  }
  return different;
}

}  // namespace sru::testing

#endif  // SRU_KERNELS_TESTING_RANDOM_STACK_H_
