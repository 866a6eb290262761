#include "kernels/cpu/base/weight_layout.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/common/gate_scale.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

NormWeights PackNorm(const LayerSpec& layer, const RowLayout& layout) {
  NormWeights norm{AlignedBuffer(layout.stride()), AlignedBuffer(layout.stride())};
  layout.Pack(layer.norm_weight.data, norm.weight.data());
  layout.Pack(layer.norm_bias.data, norm.bias.data());
  return norm;
}

RowLayout FirstLayerInput(const StackSpec& spec) {
  const LayerSpec& first = spec.layers[0];
  if (HighwayOf(first) == Highway::kInput) return {first.directions, first.hidden_size};
  return {1, first.input_size};
}

void PackGateWeights(const LayerSpec& spec, const RowLayout& rows, int direction, int first,
                     int size, AlignedBuffer* packed) {
  const int k = spec.num_matrices;
  const int last = std::min(first + size, spec.hidden_size);
  packed->Reset(static_cast<size_t>(rows.stride()) * k * size);
  for (int i = 0; i < rows.width(); ++i) {
    const float* from = spec.weight.data + (static_cast<size_t>(i) * spec.directions + direction) *
                                               spec.hidden_size * k;
    float* to = packed->data() + static_cast<size_t>(rows.Position(i)) * k * size;
    for (int j = first; j < last; ++j) {
      for (int gate = 0; gate < k; ++gate) {
        const float scale = IsGateMatrix(gate) ? kExp2GateScale : 1.0f;
        to[gate * size + j - first] = scale * from[j * k + gate];
      }
    }
  }
}

AlignedBuffer PackGateConstants(const LayerSpec& spec, int direction) {
  const int hidden = spec.hidden_size;
  const int padded = RowLayout::RoundUp(hidden);
  AlignedBuffer constants(static_cast<size_t>(4) * padded);
  float* v_f = constants.data();
  float* v_r = v_f + padded;
  float* b_f = v_r + padded;
  float* b_r = b_f + padded;
  for (int j = 0; j < hidden; ++j) {
    const int forget = direction * hidden + j;
    const int reset = spec.output_size() + forget;
    if (!spec.weight_c.empty()) {
      v_f[j] = kExp2GateScale * spec.weight_c.data[forget];
      v_r[j] = kExp2GateScale * spec.weight_c.data[reset];
    }
    b_f[j] = kExp2GateScale * spec.bias.data[forget];
    b_r[j] = kExp2GateScale * spec.bias.data[reset];
  }
  return constants;
}

ScanParameters ScanParametersOf(const LayerSpec& spec, const AlignedBuffer& constants, int first,
                                int size) {
  const int padded = RowLayout::RoundUp(spec.hidden_size);
  const float* at = constants.data() + first;
  return {size, HighwayOf(spec), spec.activation, spec.alpha,
          at,   at + padded,     at + 2 * padded, at + 3 * padded};
}

AlignedBuffer PackProjection(const LayerSpec& spec, const RowLayout& from, const RowLayout& to) {
  AlignedBuffer packed(static_cast<size_t>(from.stride()) * to.stride());
  for (int i = 0; i < spec.input_size; ++i) {
    to.Pack(spec.weight_proj.data + static_cast<size_t>(i) * spec.projection_size,
            packed.data() + static_cast<size_t>(from.Position(i)) * to.stride());
  }
  return packed;
}

bool ReadsEmbedding(const StackSpec& spec, bool looks_up_products) {
  if (spec.vocabulary_size == 0) return false;
  return !looks_up_products || HighwayOf(spec.layers[0]) == Highway::kInput;
}

template <typename T>
AlignedArray<T> PackEmbedding(WeightSource* weights, const StackSpec& spec, const RowLayout& layout,
                              size_t stride) {
  const size_t width = spec.input_size;
  AlignedBuffer padded(stride);
  AlignedArray<T> rows(spec.vocabulary_size * stride);
  ReadRows(weights, spec.embedding, width, [&](size_t first, size_t count, const float* values) {
    for (size_t row = 0; row < count; ++row) {
      T* const to = rows.data() + (first + row) * stride;
      layout.Pack(values + row * width, padded.data());
      if constexpr (std::is_same_v<T, BFloat16>) {
        ToBFloat16Row(padded.data(), stride, to);
      } else {
        std::copy_n(padded.data(), stride, to);
      }
    }
  });
  return rows;
}
template AlignedArray<float> PackEmbedding(WeightSource*, const StackSpec&, const RowLayout&,
                                           size_t);
template AlignedArray<BFloat16> PackEmbedding(WeightSource*, const StackSpec&, const RowLayout&,
                                              size_t);

AlignedBuffer PackVector(WeightSource* weights, const FloatView& vector) {
  const ReadWeights readable(weights, vector);
  AlignedBuffer copy(vector.size);
  std::copy_n(vector.data, vector.size, copy.data());
  return copy;
}

AlignedBuffer PackTransposed(const FloatView& w, const RowLayout& from, const RowLayout& to) {
  AlignedBuffer packed(static_cast<size_t>(from.stride()) * to.stride());
  for (int row = 0; row < to.width(); ++row) {
    for (int column = 0; column < from.width(); ++column) {
      packed.data()[static_cast<size_t>(from.Position(column)) * to.stride() + to.Position(row)] =
          w.data[static_cast<size_t>(row) * from.width() + column];
    }
  }
  return packed;
}

}  // namespace sru::kernels::cpu
