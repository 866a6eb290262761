#include "kernels/cpu/programs/program_pick.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/programs/program_pick.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/programs/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// n_j = floor(2^32 e^((z_j - largest) / temperature)). Of whole vectors.
void WeighTarget(const float* z, size_t size, float largest, float temperature, float* n) {
  const FullVector d;
  const auto shift = hn::Set(d, largest);
  const auto divisor = hn::Set(d, temperature);
  const auto one = hn::Set(d, 4294967296.0f);
  for (size_t j = 0; j < size; j += hn::Lanes(d)) {
    const auto x = hn::Div(hn::Sub(hn::LoadU(d, z + j), shift), divisor);
    hn::StoreU(hn::Floor(hn::Mul(Exp(d, x), one)), d, n + j);
  }
}

// The sum of n over symbols [begin, end), at most 2^20 of them: sums of whole numbers up to 2^53
// are exact in float64. `of` is what is added of a vector n at an index. Of whole vectors of
// FullVector.
template <class Of>
HWY_INLINE double Sum(const float* n, size_t begin, size_t end, const Of& of) {
  const hn::CappedTag<double, 8> wide;
  const hn::Rebind<float, decltype(wide)> d;
  const size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(wide);
  auto odd = hn::Zero(wide);
  size_t j = begin;
  for (; j + 2 * lanes <= end; j += 2 * lanes) {
    even = hn::Add(even, hn::PromoteTo(wide, of(d, hn::LoadU(d, n + j), j)));
    odd = hn::Add(odd, hn::PromoteTo(wide, of(d, hn::LoadU(d, n + j + lanes), j + lanes)));
  }
  for (; j < end; j += lanes) {
    even = hn::Add(even, hn::PromoteTo(wide, of(d, hn::LoadU(d, n + j), j)));
  }
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(even, odd)));
}

// Of the symbols with z >= worst and n >= least.
double SumTarget(const float* z, const float* n, size_t begin, size_t end, float worst,
                 float least) {
  if (worst == -HUGE_VALF && least == 0) {
    return Sum(n, begin, end, [](auto d, auto values, size_t /*j*/) {
      return hn::IfThenElseZero(hn::Ge(values, hn::Zero(d)), values);  // NaN is left out
    });
  }
  return Sum(n, begin, end, [&](auto d, auto values, size_t j) {
    const auto good = hn::Ge(hn::LoadU(d, z + j), hn::Set(d, worst));
    return hn::IfThenElseZero(hn::And(good, hn::Ge(values, hn::Set(d, least))), values);
  });
}

// How many symbols have z >= worst and n >= least. Of whole vectors.
size_t CountTarget(const float* z, const float* n, size_t size, float worst, float least) {
  const FullVector d;
  size_t count = 0;
  for (size_t j = 0; j < size; j += hn::Lanes(d)) {
    const auto good = hn::Ge(hn::LoadU(d, z + j), hn::Set(d, worst));
    count += hn::CountTrue(d, hn::And(good, hn::Ge(hn::LoadU(d, n + j), hn::Set(d, least))));
  }
  return count;
}

// Writes the symbols with worst <= z < bound and n >= least to `ids`, and returns how many there
// are. Of whole vectors.
size_t GatherTarget(const float* z, const float* n, size_t size, float worst, float least,
                    float bound, int32_t* ids) {
  const FullVector d;
  const hn::RebindToSigned<decltype(d)> di;
  size_t count = 0;
  for (size_t j = 0; j < size; j += hn::Lanes(d)) {
    const auto logits = hn::LoadU(d, z + j);
    const auto good = hn::And(hn::Ge(logits, hn::Set(d, worst)), hn::Lt(logits, hn::Set(d, bound)));
    const auto stay = hn::And(good, hn::Ge(hn::LoadU(d, n + j), hn::Set(d, least)));
    if (hn::AllFalse(d, stay)) continue;
    // Compressing into memory is slow on some processors.
    const auto mask = hn::RebindMask(di, stay);
    hn::StoreU(hn::Compress(hn::Iota(di, static_cast<int32_t>(j)), mask), di, ids + count);
    count += hn::CountTrue(d, stay);
  }
  return count;
}

size_t FindEqualTarget(const float* z, size_t n, float logit) {
  const FullVector d;
  const auto wanted = hn::Set(d, logit);
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, z + j), wanted));
    if (at >= 0) return j + static_cast<size_t>(at);
  }
  return n;
}

float LargestTarget(const float* z, size_t n) {
  const FullVector d;
  auto largest = hn::Set(d, -HUGE_VALF);
  for (size_t j = 0; j < n; j += hn::Lanes(d)) largest = Larger(largest, hn::LoadU(d, z + j));
  return MaxOf(d, largest);
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {
namespace {

HWY_EXPORT(WeighTarget);
HWY_EXPORT(SumTarget);
HWY_EXPORT(CountTarget);
HWY_EXPORT(GatherTarget);
HWY_EXPORT(FindEqualTarget);
HWY_EXPORT(LargestTarget);

// Symbols of one part of a row, whose sum is kept: whole vectors.
constexpr size_t kPart = 1024;
constexpr size_t kMostSummed = size_t{1} << 20;  // by SumTarget()
constexpr size_t kVector = 16;                   // at most
constexpr float kOne = 4294967296.0f;            // 2^32
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// How often the logits between which what is kept ends are halved before the rest is partially
// sorted.
constexpr int kHalvings = 7;

// The order of symbols: the best first.
struct IsBetter {
  const float* z;
  bool operator()(int32_t a, int32_t b) const { return z[a] != z[b] ? z[a] > z[b] : a < b; }
};

}  // namespace

float Adjusted(const Adjustment& adjustment, float z) {
  if (std::isinf(adjustment.add)) return adjustment.add;
  const float scaled = z > 0 ? z / adjustment.scale : z * adjustment.scale;
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::clamp(scaled + adjustment.add, -kMost, kMost);
}

size_t FindLogit(const float* z, size_t n, float logit) {
  return HWY_DYNAMIC_DISPATCH(FindEqualTarget)(z, n, logit);
}

float LargestLogit(const float* z, size_t n) { return HWY_DYNAMIC_DISPATCH(LargestTarget)(z, n); }

void SymbolPicker::Add(size_t padded_size) {
  n_.AtLeast(padded_size);
  ids_.AtLeast(padded_size);
  sums_.AtLeast((padded_size + kPart - 1) / kPart);
}

void SymbolPicker::LayOut(RunPlan* plan) {
  plan->Add(&n_);
  plan->Add(&sums_);
  plan->Add(&ids_);
}

uint64_t SymbolPicker::SumRange(const float* z, size_t begin, size_t end, float worst,
                                float least) const {
  uint64_t sum = 0;
  for (size_t from = begin; from < end; from += kMostSummed) {
    const size_t to = std::min(end, from + kMostSummed);
    sum += static_cast<uint64_t>(
        HWY_DYNAMIC_DISPATCH(SumTarget)(z, n_.data(), from, to, worst, least));
  }
  return sum;
}

uint64_t SymbolPicker::SumParts(const float* z, size_t size, const Kept& kept) {
  // Symbols up to the worst may be equal to it, later ones may not.
  const float better = std::nextafter(kept.worst, kInfinity);
  uint64_t sum = 0;
  for (size_t part = 0; part * kPart < size; ++part) {
    const size_t begin = part * kPart;
    const size_t end = std::min(size, begin + kPart);
    if (kept.worst_id >= end) {
      sums_[part] = SumRange(z, begin, end, kept.worst, kept.least);
    } else if (kept.worst_id < begin) {
      sums_[part] = SumRange(z, begin, end, better, kept.least);
    } else {
      const size_t vector = kept.worst_id / kVector * kVector;
      sums_[part] = SumRange(z, begin, vector, kept.worst, kept.least) +
                    SumRange(z, vector + kVector, end, better, kept.least);
      for (size_t j = vector; j < vector + kVector; ++j) {
        if (Keeps(kept, z, j)) sums_[part] += static_cast<uint64_t>(n_.data()[j]);
      }
    }
    sum += sums_[part];
  }
  return sum;
}

template <typename Total, typename Weight, typename Enough>
void SymbolPicker::KeepBest(const float* z, size_t size, float largest, float temperature,
                            const Total& total, const Weight& weight, const Enough& enough,
                            Kept* kept) {
  // Those from `low` on are enough, those from `high` on are not, and come to `before`. Where n is
  // 0, at 22.2 temperatures below the largest logit, nothing is picked.
  const float least = std::max(kept->least, 1.0f);
  float low = std::max(kept->worst, largest - 22.5f * temperature);
  float high = std::nextafter(largest, kInfinity);
  uint64_t before = 0;
  for (int i = 0; i < kHalvings; ++i) {
    const float middle = low + (high - low) / 2;
    if (!(middle > low && middle < high)) break;
    const uint64_t best = total(middle, least);
    if (enough(best)) {
      low = middle;
    } else {
      high = middle;
      before = best;
    }
  }
  int32_t* const ids = ids_.data();
  size_t end = HWY_DYNAMIC_DISPATCH(GatherTarget)(z, n_.data(), size, low, least, high, ids);
  if (low == kept->worst) {
    end = std::remove_if(ids, ids + end, [&](int32_t id) { return !Keeps(*kept, z, id); }) - ids;
  }
  if (end == 0) return;
  // What is before `begin` is better than what is in [begin, end), which has the worst one.
  constexpr size_t kFew = 16;
  size_t begin = 0;
  while (end - begin > kFew) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(ids + begin, ids + middle, ids + end, IsBetter{z});
    uint64_t better = before;
    for (size_t i = begin; i < middle; ++i) better += weight(ids[i]);
    if (enough(better)) {
      end = middle;
    } else {
      before = better;
      begin = middle;
    }
  }
  std::sort(ids + begin, ids + end, IsBetter{z});
  for (; begin + 1 < end; ++begin) {
    before += weight(ids[begin]);
    if (enough(before)) break;
  }
  kept->worst = z[ids[begin]];
  kept->worst_id = ids[begin];
}

int32_t SymbolPicker::Pick(const float* z, size_t size, float largest, const Sampling& sampling) {
  HWY_DYNAMIC_DISPATCH(WeighTarget)(z, size, largest, sampling.temperature, n_.data());
  Kept kept;
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < size) {
    const uint64_t wanted = sampling.top_k;
    KeepBest(
        z, size, largest, sampling.temperature,
        [&](float worst, float least) {
          return HWY_DYNAMIC_DISPATCH(CountTarget)(z, n_.data(), size, worst, least);
        },
        [](int32_t /*id*/) { return 1; }, [&](uint64_t count) { return count >= wanted; }, &kept);
  }
  kept.least = std::floor(kOne * sampling.min_p);
  uint64_t sum = SumParts(z, size, kept);
  if (sum == 0) return kNone;
  if (sampling.top_p > 0) {
    const double wanted = sampling.top_p * static_cast<double>(sum);
    KeepBest(
        z, size, largest, sampling.temperature,
        [&](float worst, float least) { return SumRange(z, 0, size, worst, least); },
        [&](int32_t id) { return static_cast<uint64_t>(n_.data()[id]); },
        [&](uint64_t best) { return static_cast<double>(best) >= wanted; }, &kept);
    sum = SumParts(z, size, kept);
  }
  uint64_t limit =
      static_cast<uint64_t>(static_cast<unsigned __int128>(sampling.random) * sum >> 64);
  size_t part = 0;
  while (sums_[part] <= limit) limit -= sums_[part++];
  for (size_t j = part * kPart; j < size; ++j) {
    if (!Keeps(kept, z, j)) continue;
    const auto n = static_cast<uint64_t>(n_.data()[j]);
    if (n > limit) return static_cast<int32_t>(j);
    limit -= n;
  }
  return kNone;
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
