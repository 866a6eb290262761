#include "kernels/cpu/base/layer_norm.h"

#include <cmath>

#include "kernels/stack_spec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/base/layer_norm.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

void NormalizeRow(const RowLayout& layout, const float* weight, const float* bias, const float* x,
                  float* y) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t stride = static_cast<size_t>(layout.stride());
  const size_t padded = static_cast<size_t>(layout.padded());
  const size_t size = static_cast<size_t>(layout.size);

  V sum = hn::Zero(d);
  for (size_t j = 0; j < stride; j += lanes) sum = hn::Add(sum, hn::Load(d, x + j));
  const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(layout.width());

  const V mean_v = hn::Set(d, mean);
  V squares = hn::Zero(d);
  for (int segment = 0; segment < layout.segments; ++segment) {
    for (size_t j = 0; j < size; j += lanes) {
      const V difference = hn::Sub(hn::Load(d, x + segment * padded + j), mean_v);
      const V kept = hn::IfThenElseZero(hn::FirstN(d, size - j), difference);
      squares = hn::MulAdd(kept, kept, squares);
    }
  }
  const float variance =
      hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(layout.width());

  if (!(variance <= kLargestVariance)) {
    NormalizeHugeRow(layout, weight, bias, kLayerNormEpsilon, x, y);
    for (int segment = 0; segment < layout.segments; ++segment) {
      for (size_t j = size; j < padded; ++j) y[segment * padded + j] = 0;
    }
    return;
  }

  const V scale = hn::Set(d, 1.0f / std::sqrt(variance + kLayerNormEpsilon));
  for (size_t j = 0; j < stride; j += lanes) {
    const V normalized = hn::Mul(hn::Sub(hn::Load(d, x + j), mean_v), scale);
    hn::Store(hn::MulAdd(normalized, hn::Load(d, weight + j), hn::Load(d, bias + j)), d, y + j);
  }
}

void NormalizeRowsTarget(const RowLayout& layout, const float* weight, const float* bias,
                         const float* x, int rows, float* y) {
  const size_t stride = static_cast<size_t>(layout.stride());
  for (int t = 0; t < rows; ++t) {
    NormalizeRow(layout, weight, bias, x + t * stride, y + t * stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(NormalizeRowsTarget);

void NormalizeHugeRow(const RowLayout& layout, const float* weight, const float* bias,
                      float epsilon, const float* x, float* y) {
  double sum = 0;
  for (int i = 0; i < layout.width(); ++i) sum += x[layout.Position(i)];
  const double mean = sum / layout.width();
  double squares = 0;
  for (int i = 0; i < layout.width(); ++i) {
    const double difference = x[layout.Position(i)] - mean;
    squares += difference * difference;
  }
  const double scale = 1.0 / std::sqrt(squares / layout.width() + epsilon);
  for (int i = 0; i < layout.width(); ++i) {
    const int at = layout.Position(i);
    y[at] = static_cast<float>((x[at] - mean) * scale * weight[at] + bias[at]);
  }
}

void NormalizeRows(const RowLayout& layout, const float* weight, const float* bias, const float* x,
                   int rows, float* y) {
  HWY_DYNAMIC_DISPATCH(NormalizeRowsTarget)(layout, weight, bias, x, rows, y);
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
