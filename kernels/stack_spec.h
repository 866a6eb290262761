// StackSpec: the plain description of a model that models/ hands to a backend: sizes, variants and
// views of float32 weights. What the views point to is read until Backend::Compile() returns, which
// copies what it needs, and not after that (weight_source.h).
//
// One layer, per direction and hidden dimension (Lei et al., EMNLP 2018, equations 1 to 4, in the
// order of the published package: both gates read c_{t-1}):
//
//   f_t = sigmoid(U1_t + v_f * c_{t-1} + b_f)             forget gate
//   c_t = f_t * c_{t-1} + (1 - f_t) * U0_t                state
//   r_t = sigmoid(U2_t + v_r * c_{t-1} + b_r)             reset gate
//   h_t = r_t * g(c_t) + (1 - r_t) * s_t                  output, s_t being the highway term
//
//   U_t = n(x_t) W             without a projection
//         n(x_t) W_proj W      with one
//   n   = layer norm           LayerNorm::kBefore
//         identity             otherwise
//   g   = identity or tanh     Activation
//   s_t = alpha * x_t          num_matrices = 3
//         U3_t                 num_matrices = 4
//         0                    without a skip term
//
// The forward direction runs t = 0..L-1, the backward direction t = L-1..0. The layer's output is
// the token vector [forward h_t | backward h_t], normalized with LayerNorm::kAfter; it is the next
// layer's x_t.
#ifndef SRU_KERNELS_STACK_SPEC_H_
#define SRU_KERNELS_STACK_SPEC_H_

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "kernels/enum_names.h"
#include "kernels/host_and_device.h"
#include "kernels/status.h"

namespace sru::kernels {

// Larger sizes are refused so that products of sizes fit in 64 bits and tokens x features in
// memory.
inline constexpr int kMaxSize = 1 << 20;

// A read-only view of float32 values; empty means that the tensor is absent.
struct FloatView {
  const float* data = nullptr;
  size_t size = 0;

  bool empty() const { return size == 0; }
  FloatView Part(size_t begin, size_t count) const { return {data + begin, count}; }
};

// g, applied to the state on its way into h.
enum class Activation { kIdentity, kTanh };

constexpr const char* ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kIdentity:
      return "identity";
    case Activation::kTanh:
      return "tanh";
  }
  return "";
}

inline constexpr auto kAllActivations = AllNamed<ActivationName>();

// kBefore: the products see the normalized input, the highway term the input as it was.
enum class LayerNorm { kNone, kBefore, kAfter };

// How the token vectors of a sequence, h_0 to h_{L-1} of the last layer, become one vector p:
//
//   kNone   no p: the model answers with token vectors only
//   kFirst  p = h_0 = [forward h_0 | backward h_0]  the token vector of the first token: its
//                                                   backward half has seen the whole sequence
//   kLast   p = [forward h_{L-1} | backward h_0]    the h that each direction ends with
//   kMax    p = max_t h_t                           per dimension
//   kMean   p = 1/L sum_t h_t                       per dimension
enum class Pooling { kNone, kFirst, kLast, kMax, kMean };

// As config.json and the command lines write them.
constexpr const char* PoolingName(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
      return "none";
    case Pooling::kFirst:
      return "first";
    case Pooling::kLast:
      return "last";
    case Pooling::kMax:
      return "max";
    case Pooling::kMean:
      return "mean";
  }
  return "";
}

inline constexpr auto kAllPoolings = AllNamed<PoolingName>();

// The equation of a pooling as the backends compute it, per dimension: what a running pool does
// with each h, and whether L divides the result. The reference backend has the equations as they
// are.
enum class PoolingStep { kNothing, kFirst, kLast, kLargest, kSum };
struct PoolingRule {
  PoolingStep step = PoolingStep::kNothing;
  bool divides = false;
};
SRU_HOST_DEVICE constexpr PoolingRule RuleOf(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
      break;
    case Pooling::kFirst:
      return {PoolingStep::kFirst, false};
    case Pooling::kLast:
      return {PoolingStep::kLast, false};
    case Pooling::kMax:
      return {PoolingStep::kLargest, false};
    case Pooling::kMean:
      return {PoolingStep::kSum, true};
  }
  return {};
}

// kFirst and kLast pick the h of one token. Here they are translated to a walk over the h of one
// direction, where kFirst picks the h of the walk's first step and kLast that of its last. The
// other steps do not depend on the order.
//
// For a scan, which takes the backward direction from the last token to the first.
SRU_HOST_DEVICE constexpr PoolingStep PoolingInTime(PoolingStep step, bool backward) {
  return step == PoolingStep::kFirst && backward ? PoolingStep::kLast : step;
}
// For rows in memory, which are taken from the first token to the last in both directions.
SRU_HOST_DEVICE constexpr PoolingStep PoolingOverTokens(PoolingStep step, bool backward) {
  return step == PoolingStep::kLast && backward ? PoolingStep::kFirst : step;
}

inline bool ParsePooling(std::string_view name, Pooling* pooling) {
  return ParseNamed<PoolingName>(name, pooling);
}

// Added to the variance in layer norm, as in the published package.
inline constexpr float kLayerNormEpsilon = 1e-5f;

struct LayerSpec {
  int input_size = 0;       // features of x_t
  int hidden_size = 0;      // per direction
  int directions = 1;       // 1 or 2
  int projection_size = 0;  // inner size of the low-rank factorisation; 0 = none
  int num_matrices = 3;     // of W: 3, or 4 when the highway term has its own
  bool has_skip_term = true;
  float alpha = 1.0f;  // highway scale; read only when num_matrices = 3 and has_skip_term
  Activation activation = Activation::kIdentity;
  LayerNorm layer_norm = LayerNorm::kNone;

  FloatView weight;       // [projection_size or input_size][directions][hidden_size][num_matrices]
  FloatView weight_proj;  // [input_size][projection_size]; empty when projection_size = 0
  FloatView weight_c;     // [forget|reset][directions][hidden_size]; empty = zeros (v1)
  FloatView bias;         // [forget|reset][directions][hidden_size]
  FloatView norm_weight;  // [input_size] (kBefore) or [output_size()] (kAfter)
  FloatView norm_bias;    // as norm_weight

  int output_size() const { return directions * hidden_size; }
  int product_size() const { return projection_size > 0 ? projection_size : input_size; }
};

// Where a layer's highway term s_t comes from.
enum class Highway {
  kNone,    // 0
  kInput,   // alpha * x_t
  kMatrix,  // U3_t
};
inline Highway HighwayOf(const LayerSpec& layer) {
  if (!layer.has_skip_term) return Highway::kNone;
  return layer.num_matrices == 4 ? Highway::kMatrix : Highway::kInput;
}

struct StackSpec {
  int input_size = 0;         // features per token: the embedding's width, or the caller's features
  int vocabulary_size = 0;    // rows of the embedding; 0 = the model takes features only
  FloatView embedding;        // [vocabulary_size][input_size]
  FloatView input_to_hidden;  // [layers[0].input_size][input_size]; empty = none
  std::vector<LayerSpec> layers;
  // The model's own; must not be kNone when there is a classifier.
  Pooling pooling = Pooling::kNone;
  int num_labels = 0;           // 0 = no classifier
  FloatView classifier_weight;  // [num_labels][output_size()]
  FloatView classifier_bias;    // [num_labels]; empty = zeros

  // Width of a token vector and of a pooled vector. Needs at least one layer.
  int output_size() const { return layers.back().output_size(); }
};

// Calls `visit` for every view of the specification, absent ones included.
void ForEachWeight(StackSpec* spec, const std::function<void(FloatView*)>& visit);

// Checks that sizes, variants and views agree; the message names the layer and the field.
Status Validate(const StackSpec& spec);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_STACK_SPEC_H_
