#include "kernels/cpu/programs/program_attend.h"

#include <cmath>

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/programs/program_attend.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/programs/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// Keys whose scores are exponentiated together: whole pages.
constexpr size_t kBlockKeys = 16 * kStatePageRows;
// Heads whose scores are kept at a time, so that rows of keys and values are read in one piece.
constexpr size_t kGroupHeads = 8;

using Vector = hn::Vec<FullVector>;

// The last n values of a row, less than a vector, and zeros after them. Nothing past them is
// touched.
HWY_INLINE Vector LoadRest(FullVector d, const float* from, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, n), d, from);
#else
  HWY_ALIGN float values[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < n; ++i) values[i] = from[i];
  return hn::Load(d, values);
#endif
}
HWY_INLINE void StoreRest(Vector v, FullVector d, size_t n, float* to) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
#else
  HWY_ALIGN float values[hn::MaxLanes(d)];
  hn::Store(v, d, values);
  for (size_t i = 0; i < n; ++i) to[i] = values[i];
#endif
}

// scores[i] = scale * q . k_i for four rows, which may be the same, from a column on.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Scores(const float* HWY_RESTRICT q, const float* const (&keys)[4], size_t column,
                       size_t n, float scale, float* HWY_RESTRICT scores) {
  for (size_t i = 0; i < 4; ++i) {
    float sum = 0;
    for (size_t j = 0; j < n; ++j) sum += q[j] * keys[i][column + j];
    scores[i] = scale * sum;
  }
}
#else
HWY_INLINE void Scores(const float* HWY_RESTRICT q, const float* const (&keys)[4], size_t column,
                       size_t n, float scale, float* HWY_RESTRICT scores) {
  const FullVector d;
  const size_t lanes = hn::Lanes(d);
  const float* HWY_RESTRICT k0 = keys[0] + column;
  const float* HWY_RESTRICT k1 = keys[1] + column;
  const float* HWY_RESTRICT k2 = keys[2] + column;
  const float* HWY_RESTRICT k3 = keys[3] + column;
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const auto qs = hn::LoadU(d, q + j);
    sum0 = hn::MulAdd(qs, hn::LoadU(d, k0 + j), sum0);
    sum1 = hn::MulAdd(qs, hn::LoadU(d, k1 + j), sum1);
    sum2 = hn::MulAdd(qs, hn::LoadU(d, k2 + j), sum2);
    sum3 = hn::MulAdd(qs, hn::LoadU(d, k3 + j), sum3);
  }
  if (j < n) {
    const auto qs = LoadRest(d, q + j, n - j);
    sum0 = hn::MulAdd(qs, LoadRest(d, k0 + j, n - j), sum0);
    sum1 = hn::MulAdd(qs, LoadRest(d, k1 + j, n - j), sum1);
    sum2 = hn::MulAdd(qs, LoadRest(d, k2 + j, n - j), sum2);
    sum3 = hn::MulAdd(qs, LoadRest(d, k3 + j, n - j), sum3);
  }
  const hn::CappedTag<float, 4> four;
  const auto sums = SumsOfFour(d, sum0, sum1, sum2, sum3);
  hn::StoreU(hn::Mul(sums, hn::Set(four, scale)), four, scores);
}
#endif

// What AddValues() does to the columns of a head: y = (y * keep + sum_i weights[i] * v_i) * scale,
// or without the y before if there is none yet.
struct HeadWeights {
  HWY_ALIGN float weights[kBlockKeys];
  float largest = -HUGE_VALF;  // of the scores so far
  float sum = 0;               // of their exponentials
  float keep = 0;
  float scale = 1;
};

// Calls body(key, row) for keys [first, last), counted from `first`, and where a column of their
// values is.
template <class Body>
HWY_INLINE void ForEachKey(const PagedRows& values, size_t column, size_t first, size_t last,
                           const Body& body) {
  for (size_t key = first; key < last; key += kStatePageRows) {
    const float* HWY_RESTRICT row = values.Page(key / kStatePageRows) + column;
    const size_t end = last - key < kStatePageRows ? last - key : kStatePageRows;
    for (size_t i = 0; i < end; ++i, row += values.width) body(key - first + i, row);
  }
}

// kVectors whole vectors of each of kHeads heads. They are as many sums that do not wait for each
// other.
template <size_t kHeads, size_t kVectors>
HWY_INLINE void AddVectors(const PagedRows& values, size_t column, size_t head_size, size_t first,
                           size_t last, const HeadWeights* heads, float* HWY_RESTRICT y) {
  const FullVector d;
  const size_t lanes = hn::Lanes(d);
  Vector sums[kHeads][kVectors];
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[h][v] = hn::Zero(d);
      if (first == 0) continue;
      sums[h][v] = hn::Mul(hn::LoadU(d, y + h * head_size + v * lanes), hn::Set(d, heads[h].keep));
    }
  }
  ForEachKey(values, column, first, last, [&](size_t key, const float* HWY_RESTRICT row) HWY_ATTR {
    for (size_t h = 0; h < kHeads; ++h) {
      const auto weight = hn::Set(d, heads[h].weights[key]);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[h][v] = hn::MulAdd(weight, hn::LoadU(d, row + h * head_size + v * lanes), sums[h][v]);
      }
    }
  });
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::Mul(sums[h][v], hn::Set(d, heads[h].scale)), d, y + h * head_size + v * lanes);
    }
  }
}

// The last n columns of a head, less than a vector.
HWY_INLINE void AddRest(const PagedRows& values, size_t column, size_t n, size_t first, size_t last,
                        const HeadWeights& head, float* HWY_RESTRICT y) {
  const FullVector d;
  auto sum = hn::Zero(d);
  if (first != 0) sum = hn::Mul(LoadRest(d, y, n), hn::Set(d, head.keep));
  ForEachKey(values, column, first, last, [&](size_t key, const float* HWY_RESTRICT row) HWY_ATTR {
    sum = hn::MulAdd(hn::Set(d, head.weights[key]), LoadRest(d, row, n), sum);
  });
  StoreRest(hn::Mul(sum, hn::Set(d, head.scale)), d, n, y);
}

// Adds the values of keys [first, last), `head_size` columns for each head from `column` on.
void AddValues(const PagedRows& values, size_t column, size_t head_size, size_t num_heads,
               size_t first, size_t last, const HeadWeights* heads, float* y) {
  const size_t lanes = hn::Lanes(FullVector());
  size_t h = 0;
  const auto at = [&](size_t head) { return head * head_size; };
  if (head_size == lanes) {
    for (; h + 8 <= num_heads; h += 8) {
      AddVectors<8, 1>(values, column + at(h), head_size, first, last, heads + h, y + at(h));
    }
  } else if (head_size == 2 * lanes) {
    for (; h + 4 <= num_heads; h += 4) {
      AddVectors<4, 2>(values, column + at(h), head_size, first, last, heads + h, y + at(h));
    }
  } else if (head_size == 4 * lanes) {
    for (; h + 2 <= num_heads; h += 2) {
      AddVectors<2, 4>(values, column + at(h), head_size, first, last, heads + h, y + at(h));
    }
  }
  for (; h < num_heads; ++h) {
    const HeadWeights* head = heads + h;
    const size_t from = column + at(h);
    float* const to = y + at(h);
    size_t j = 0;
    for (; j + 8 * lanes <= head_size; j += 8 * lanes) {
      AddVectors<1, 8>(values, from + j, head_size, first, last, head, to + j);
    }
    for (; j + 4 * lanes <= head_size; j += 4 * lanes) {
      AddVectors<1, 4>(values, from + j, head_size, first, last, head, to + j);
    }
    for (; j + 2 * lanes <= head_size; j += 2 * lanes) {
      AddVectors<1, 2>(values, from + j, head_size, first, last, head, to + j);
    }
    for (; j + lanes <= head_size; j += lanes) {
      AddVectors<1, 1>(values, from + j, head_size, first, last, head, to + j);
    }
    if (j < head_size) AddRest(values, from + j, head_size - j, first, last, *head, to + j);
  }
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

// Makes of the scores of `count` keys, which are the first ones or follow those before them, their
// exponentials.
HWY_INLINE void Exponentiate(bool starts, size_t count, HeadWeights* head) {
  const FullVector d;
  // Whole vectors; what is past the last key counts nothing.
  size_t padded = count;
  for (; padded % hn::Lanes(d) != 0; ++padded) head->weights[padded] = -HUGE_VALF;
  auto largest = hn::Set(d, head->largest);
  for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
    largest = Larger(largest, hn::Load(d, head->weights + j));
  }
  const float now = MaxOf(d, largest);
  // How much of what came before is left.
  head->keep = starts ? 0.0f : hn::GetLane(Exp(d, hn::Set(d, head->largest - now)));
  head->sum = head->sum * head->keep + ExpAndSum(head->weights, padded, now);
  head->largest = now;
}

// Four rows of a page, from row `first` on.
HWY_INLINE void PrefetchRows(const float* page, size_t width, size_t first, size_t column,
                             size_t n) {
  constexpr size_t kLine = 64 / sizeof(float);
  const float* row = page + first * width + column;
  for (size_t i = 0; i < 4; ++i, row += width) {
    for (size_t j = 0; j < n; j += kLine) hwy::Prefetch(row + j);
  }
}

// Heads [head, head + num_heads) of one row: y = sum_s a_s v_s over the first `num_keys` keys, at
// least one. The softmax is computed block by block with the largest score so far. `attention` gets
// the a_s of the first head unless it is null. The first row of a call asks for keys and values
// ahead.
void AttendHeads(const AttendCall& call, int row, bool first_row, size_t head, size_t num_heads,
                 size_t num_keys, float* attention) {
  const size_t key_size = call.keys.width / call.heads;
  const size_t value_size = call.values.width / call.heads;
  const float* q = call.q + row * call.keys.width + head * key_size;
  float* y = call.y + row * call.values.width + head * value_size;
  HeadWeights heads[kGroupHeads];
  for (size_t first = 0; first < num_keys; first += kBlockKeys) {
    const size_t count = num_keys - first < kBlockKeys ? num_keys - first : kBlockKeys;
    for (size_t key = 0; key < count; key += kStatePageRows) {
      const size_t at_page = (first + key) / kStatePageRows;
      const float* page = call.keys.Page(at_page) + head * key_size;
      const size_t end = count - key < kStatePageRows ? count - key : kStatePageRows;
      const float* next = nullptr;
      if (first_row) {
        next =
            first + key + kStatePageRows < num_keys ? call.keys.Page(at_page + 1) : call.next_keys;
      }
      for (size_t i = 0; i < end; i += 4) {
        // The last one again in place of those that there are not.
        const float* four[4];
        for (size_t k = 0; k < 4; ++k) {
          four[k] = page + (i + k < end ? i + k : end - 1) * call.keys.width;
        }
        // What is read next is on its way meanwhile: the values of these keys, and the next page of
        // keys.
        if (first_row) {
          PrefetchRows(call.values.Page(at_page), call.values.width, i, head * value_size,
                       num_heads * value_size);
        }
        if (next != nullptr) {
          PrefetchRows(next, call.keys.width, i, head * key_size, num_heads * key_size);
        }
        for (size_t h = 0; h < num_heads; ++h) {
          Scores(q + h * key_size, four, h * key_size, key_size, call.scale,
                 heads[h].weights + key + i);
        }
      }
    }
    if (attention != nullptr) {
      for (size_t j = 0; j < count; ++j) attention[first + j] = heads[0].weights[j];
    }
    for (size_t h = 0; h < num_heads; ++h) {
      Exponentiate(first == 0, count, &heads[h]);
      if (first + count == num_keys) heads[h].scale = 1.0f / heads[h].sum;
    }
    AddValues(call.values, head * value_size, value_size, num_heads, first, first + count, heads,
              y);
  }
  if (attention != nullptr) FinishWeights(heads[0].largest, heads[0].sum, num_keys, attention);
}

void AttendRowsTarget(const AttendCall& call, int begin, int end) {
  const size_t heads = static_cast<size_t>(call.heads);
  for (int row = begin; row < end; ++row) {
    const int num_keys = call.causal ? call.num_keys - (call.rows - 1 - row) : call.num_keys;
    float* attention = nullptr;
    if (call.attention != nullptr) {
      attention = call.attention + static_cast<size_t>(row) * call.num_keys;
      for (int j = num_keys > 0 ? num_keys : 0; j < call.num_keys; ++j) attention[j] = 0;
    }
    if (num_keys <= 0) {
      float* y = call.y + row * call.values.width;
      for (size_t j = 0; j < call.values.width; ++j) y[j] = 0;
      continue;
    }
    for (size_t head = 0; head < heads; head += kGroupHeads) {
      AttendHeads(call, row, row == begin, head,
                  heads - head < kGroupHeads ? heads - head : kGroupHeads,
                  static_cast<size_t>(num_keys), head == 0 ? attention : nullptr);
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
