#include "kernels/cpu/program_attend.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/program_attend.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// Keys whose scores are exponentiated together: whole pages.
constexpr size_t kBlockKeys = 16 * kStatePageRows;

// scores[i] = scale * q . k_i for four rows, which may be the same.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Scores(const float* HWY_RESTRICT q, const float* const (&keys)[4], size_t n,
                       float scale, float* HWY_RESTRICT scores) {
  for (size_t i = 0; i < 4; ++i) {
    float sum = 0;
    for (size_t j = 0; j < n; ++j) sum += q[j] * keys[i][j];
    scores[i] = scale * sum;
  }
}
#else
// Adds the blocks of 4 lanes to each other.
template <class D, class V>
HWY_INLINE auto SumOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

// The sums of the lanes of four vectors.
template <class D, class V>
HWY_INLINE auto SumsOfFour(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> pairs;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto first = hn::BitCast(pairs, ab);
  const auto second = hn::BitCast(pairs, ce);
  const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, first, second)),
                         hn::BitCast(d, hn::InterleaveUpper(pairs, first, second)));
  return SumOfBlocks(d, sums);
}

HWY_INLINE void Scores(const float* HWY_RESTRICT q, const float* const (&keys)[4], size_t n,
                       float scale, float* HWY_RESTRICT scores) {
  const FullVector d;
  const size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const auto qs = hn::LoadU(d, q + j);
    sum0 = hn::MulAdd(qs, hn::LoadU(d, keys[0] + j), sum0);
    sum1 = hn::MulAdd(qs, hn::LoadU(d, keys[1] + j), sum1);
    sum2 = hn::MulAdd(qs, hn::LoadU(d, keys[2] + j), sum2);
    sum3 = hn::MulAdd(qs, hn::LoadU(d, keys[3] + j), sum3);
  }
  auto sums = SumsOfFour(d, sum0, sum1, sum2, sum3);
  const hn::CappedTag<float, 4> four;
  if (j + 4 <= n) {
    auto rest0 = hn::Zero(four);
    auto rest1 = hn::Zero(four);
    auto rest2 = hn::Zero(four);
    auto rest3 = hn::Zero(four);
    for (; j + 4 <= n; j += 4) {
      const auto qs = hn::LoadU(four, q + j);
      rest0 = hn::MulAdd(qs, hn::LoadU(four, keys[0] + j), rest0);
      rest1 = hn::MulAdd(qs, hn::LoadU(four, keys[1] + j), rest1);
      rest2 = hn::MulAdd(qs, hn::LoadU(four, keys[2] + j), rest2);
      rest3 = hn::MulAdd(qs, hn::LoadU(four, keys[3] + j), rest3);
    }
    sums = hn::Add(sums, SumsOfFour(four, rest0, rest1, rest2, rest3));
  }
  for (; j < n; ++j) {
    HWY_ALIGN const float column[4] = {keys[0][j], keys[1][j], keys[2][j], keys[3][j]};
    sums = hn::MulAdd(hn::Set(four, q[j]), hn::Load(four, column), sums);
  }
  hn::StoreU(hn::Mul(sums, hn::Set(four, scale)), four, scores);
}
#endif

// y = y * keep + sum_i weights[i] * v_i for the values of keys [first, last), some columns of which
// are y's.
HWY_INLINE void AddValues(const PagedRows& values, size_t column, size_t first, size_t last,
                          const float* HWY_RESTRICT weights, size_t n, float keep,
                          float* HWY_RESTRICT y) {
  // Calls body(weight, row) for each key.
  const auto for_each_key = [&](const auto& body) HWY_ATTR {
    const float* HWY_RESTRICT weight = weights;
    for (size_t key = first; key < last; key += kStatePageRows) {
      const float* HWY_RESTRICT row = values.Page(key / kStatePageRows) + column;
      const size_t end = last - key < kStatePageRows ? last - key : kStatePageRows;
      for (size_t i = 0; i < end; ++i, row += values.width) body(*weight++, row);
    }
  };
  const FullVector d;
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    const auto keeps = hn::Set(d, keep);
    auto y0 = hn::Mul(hn::LoadU(d, y + j), keeps);
    auto y1 = hn::Mul(hn::LoadU(d, y + j + lanes), keeps);
    auto y2 = hn::Mul(hn::LoadU(d, y + j + 2 * lanes), keeps);
    auto y3 = hn::Mul(hn::LoadU(d, y + j + 3 * lanes), keeps);
    for_each_key([&](float weight, const float* row) HWY_ATTR {
      const auto w = hn::Set(d, weight);
      y0 = hn::MulAdd(w, hn::LoadU(d, row + j), y0);
      y1 = hn::MulAdd(w, hn::LoadU(d, row + j + lanes), y1);
      y2 = hn::MulAdd(w, hn::LoadU(d, row + j + 2 * lanes), y2);
      y3 = hn::MulAdd(w, hn::LoadU(d, row + j + 3 * lanes), y3);
    });
    hn::StoreU(y0, d, y + j);
    hn::StoreU(y1, d, y + j + lanes);
    hn::StoreU(y2, d, y + j + 2 * lanes);
    hn::StoreU(y3, d, y + j + 3 * lanes);
  }
  ForEachVector(n - j, [&](auto part, size_t at) HWY_ATTR {
    auto sum = hn::Mul(hn::LoadU(part, y + j + at), hn::Set(part, keep));
    for_each_key([&](float weight, const float* row) HWY_ATTR {
      sum = hn::MulAdd(hn::Set(part, weight), hn::LoadU(part, row + j + at), sum);
    });
    hn::StoreU(sum, part, y + j + at);
  });
}

// Makes of scores their softmax, given the largest and the sum of the exponentials.
HWY_INLINE void FinishWeights(float largest, float sum, size_t n, float* HWY_RESTRICT scores) {
  const FullVector d;
  const size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, largest);
  const auto scale = hn::Set(d, 1.0f / sum);
  HWY_ALIGN float part[hn::MaxLanes(d)] = {};
  for (size_t j = 0; j < n; j += lanes) {
    const size_t count = n - j < lanes ? n - j : lanes;
    for (size_t i = 0; i < count; ++i) part[i] = scores[j + i];
    hn::Store(hn::Mul(Exp(d, hn::Sub(hn::Load(d, part), shift)), scale), d, part);
    for (size_t i = 0; i < count; ++i) scores[j + i] = part[i];
  }
}

// One row and head: y = sum_s a_s v_s over the first `num_keys` keys, at least one. The softmax is
// computed block by block with the largest score so far. `attention` gets the a_s unless it is null.
void AttendHead(const AttendCall& call, const float* q, size_t key_column, size_t key_size,
                size_t value_column, size_t value_size, size_t num_keys, float* y,
                float* attention) {
  const FullVector d;
  HWY_ALIGN float scores[kBlockKeys];
  float largest = -HUGE_VALF;
  float sum = 0;
  for (size_t j = 0; j < value_size; ++j) y[j] = 0;
  for (size_t first = 0; first < num_keys; first += kBlockKeys) {
    const size_t count = num_keys - first < kBlockKeys ? num_keys - first : kBlockKeys;
    for (size_t key = 0; key < count; key += kStatePageRows) {
      const float* page = call.keys.Page((first + key) / kStatePageRows) + key_column;
      const size_t end = count - key < kStatePageRows ? count - key : kStatePageRows;
      for (size_t i = 0; i < end; i += 4) {
        // The last one again in place of those that there are not.
        const float* four[4];
        for (size_t k = 0; k < 4; ++k) {
          four[k] = page + (i + k < end ? i + k : end - 1) * call.keys.width;
        }
        Scores(q, four, key_size, call.scale, scores + key + i);
      }
    }
    if (attention != nullptr) {
      for (size_t j = 0; j < count; ++j) attention[first + j] = scores[j];
    }
    // Whole vectors; what is past the last key counts nothing.
    size_t padded = count;
    for (; padded % hn::Lanes(d) != 0; ++padded) scores[padded] = -HUGE_VALF;
    auto block_largest = hn::Set(d, largest);
    for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
      block_largest = hn::Max(block_largest, hn::Load(d, scores + j));
    }
    const float now = MaxOf(d, block_largest);
    // How much of what came before is left.
    const float keep = first == 0 ? 0.0f : hn::GetLane(Exp(d, hn::Set(d, largest - now)));
    sum = sum * keep + ExpAndSum(scores, padded, now);
    AddValues(call.values, value_column, first, first + count, scores, value_size, keep, y);
    largest = now;
  }
  const float scale = 1.0f / sum;
  for (size_t j = 0; j < value_size; ++j) y[j] *= scale;
  if (attention != nullptr) FinishWeights(largest, sum, num_keys, attention);
}

void AttendRowsTarget(const AttendCall& call, int begin, int end) {
  const size_t heads = static_cast<size_t>(call.heads);
  const size_t key_size = call.keys.width / heads;
  const size_t value_size = call.values.width / heads;
  // Head by head, so that its part of the keys stays in the cache.
  for (size_t head = 0; head < heads; ++head) {
    for (int row = begin; row < end; ++row) {
      const int num_keys = call.causal ? call.num_keys - (call.rows - 1 - row) : call.num_keys;
      const float* q = call.q + row * call.keys.width + head * key_size;
      float* y = call.y + row * call.values.width + head * value_size;
      float* attention = nullptr;
      if (call.attention != nullptr && head == 0) {
        attention = call.attention + static_cast<size_t>(row) * call.num_keys;
        for (int j = num_keys > 0 ? num_keys : 0; j < call.num_keys; ++j) attention[j] = 0;
      }
      if (num_keys > 0) {
        AttendHead(call, q, head * key_size, key_size, head * value_size, value_size,
                   static_cast<size_t>(num_keys), y, attention);
      } else {
        for (size_t j = 0; j < value_size; ++j) y[j] = 0;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(AttendRowsTarget);

void AttendRows(const AttendCall& call, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(AttendRowsTarget)(call, begin, end);
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
