#include "kernels/cpu/program_pick.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/program_pick.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/row_math-inl.h"

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

// Which of the symbols from `id` on stay.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> Stay(D d, V z, V n, size_t id, float worst, int32_t worst_id, float least) {
  const hn::RebindToSigned<D> di;
  const auto limit = hn::Set(d, worst);
  const auto ids = hn::Iota(di, static_cast<int32_t>(id));
  const auto early = hn::RebindMask(d, hn::Not(hn::Gt(ids, hn::Set(di, worst_id))));
  const auto good = hn::Or(hn::Gt(z, limit), hn::And(hn::Eq(z, limit), early));
  return hn::And(good, hn::Ge(n, hn::Set(d, least)));
}

// The sum of n over those of symbols [begin, end) that stay, at most 2^20 of them: sums of whole
// numbers up to 2^53 are exact in float64. Of whole vectors.
double SumTarget(const float* z, const float* n, size_t begin, size_t end, float worst,
                 int32_t worst_id, float least) {
  const hn::CappedTag<double, 8> wide;
  const hn::Rebind<float, decltype(wide)> d;
  auto sum = hn::Zero(wide);
  for (size_t j = begin; j < end; j += hn::Lanes(d)) {
    const auto values = hn::LoadU(d, n + j);
    const auto stay = Stay(d, hn::LoadU(d, z + j), values, j, worst, worst_id, least);
    sum = hn::Add(sum, hn::PromoteTo(wide, hn::IfThenElseZero(stay, values)));
  }
  return hn::GetLane(hn::SumOfLanes(wide, sum));
}

// Writes the symbols that stay to `ids` and returns how many there are. Of whole vectors.
size_t GatherTarget(const float* z, const float* n, size_t size, float worst, int32_t worst_id,
                    float least, int32_t* ids) {
  const FullVector d;
  const hn::RebindToSigned<decltype(d)> di;
  size_t count = 0;
  for (size_t j = 0; j < size; j += hn::Lanes(d)) {
    const auto stay = Stay(d, hn::LoadU(d, z + j), hn::LoadU(d, n + j), j, worst, worst_id, least);
    if (hn::AllFalse(d, stay)) continue;
    count += hn::CompressStore(hn::Iota(di, static_cast<int32_t>(j)), hn::RebindMask(di, stay), di,
                               ids + count);
  }
  return count;
}

// The first j from `begin` on with z_j > limit, or n.
size_t FindBetterTarget(const float* z, size_t begin, size_t n, float limit) {
  const FullVector d;
  const auto limits = hn::Set(d, limit);
  size_t j = begin;
  for (; j % hn::Lanes(d) != 0 && j < n; ++j) {
    if (z[j] > limit) return j;
  }
  for (; j < n; j += hn::Lanes(d)) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Gt(hn::LoadU(d, z + j), limits));
    if (at >= 0) return j + static_cast<size_t>(at);
  }
  return n;
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
  for (size_t j = 0; j < n; j += hn::Lanes(d)) largest = hn::Max(largest, hn::LoadU(d, z + j));
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
HWY_EXPORT(GatherTarget);
HWY_EXPORT(FindBetterTarget);
HWY_EXPORT(FindEqualTarget);
HWY_EXPORT(LargestTarget);

// Symbols of one part of a row, whose sum is kept.
constexpr size_t kPart = 1024;
// A heap of more symbols than this costs more than a partial selection of all.
constexpr size_t kMostInHeap = 256;
constexpr float kOne = 4294967296.0f;  // 2^32

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
  if (n_.size() >= padded_size) return;
  n_ = AlignedBuffer(padded_size);
  ids_ = AlignedArray<int32_t>(padded_size);
  sums_.resize((padded_size + kPart - 1) / kPart);
}

uint64_t SymbolPicker::SumParts(const float* z, size_t size, const Kept& kept) {
  uint64_t sum = 0;
  for (size_t part = 0; part * kPart < size; ++part) {
    sums_[part] = static_cast<uint64_t>(HWY_DYNAMIC_DISPATCH(SumTarget)(
        z, n_.data(), part * kPart, std::min(size, (part + 1) * kPart), kept.worst, kept.worst_id,
        kept.least));
    sum += sums_[part];
  }
  return sum;
}

void SymbolPicker::KeepBest(const float* z, size_t size, size_t k, Kept* kept) {
  const IsBetter is_better{z};
  int32_t* const ids = ids_.data();
  const auto keep = [&](int32_t worst) {
    kept->worst = z[worst];
    kept->worst_id = worst;
  };
  if (k > kMostInHeap) {
    // Logits that are no numbers have no order, and are left out.
    const size_t count = HWY_DYNAMIC_DISPATCH(GatherTarget)(z, n_.data(), size, kept->worst,
                                                            kept->worst_id, kept->least, ids);
    if (count <= k) return;
    std::nth_element(ids, ids + k - 1, ids + count, is_better);
    return keep(ids[k - 1]);
  }
  // As the order of a heap it puts the worst on top. Symbols come in ascending order, so an equal one
  // does not replace what is held.
  std::iota(ids, ids + k, 0);
  std::make_heap(ids, ids + k, is_better);
  for (size_t j = k;; ++j) {
    j = HWY_DYNAMIC_DISPATCH(FindBetterTarget)(z, j, size, z[ids[0]]);
    if (j >= size) return keep(ids[0]);
    std::pop_heap(ids, ids + k, is_better);
    ids[k - 1] = static_cast<int32_t>(j);
    std::push_heap(ids, ids + k, is_better);
  }
}

int32_t SymbolPicker::WorstOfNucleus(const float* z, size_t size, const Kept& kept, double sum,
                                     double part) {
  // Symbols below this have together less than what may be missing, rounding included.
  const double small = 0.999 * (1 - part) * sum / static_cast<double>(size);
  const float least = std::max({kept.least, 1.0f, std::floor(static_cast<float>(small))});
  int32_t* const ids = ids_.data();
  const size_t count =
      HWY_DYNAMIC_DISPATCH(GatherTarget)(z, n_.data(), size, kept.worst, kept.worst_id, least, ids);
  const auto n = [&](size_t i) { return static_cast<uint64_t>(n_.data()[ids[i]]); };
  const double wanted = part * sum;
  // What is before `begin` is better than what is in [begin, end), which has the worst one.
  constexpr size_t kFew = 16;
  uint64_t before = 0;
  size_t begin = 0;
  size_t end = count;
  while (end - begin > kFew) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(ids + begin, ids + middle, ids + end, IsBetter{z});
    uint64_t better = before;
    for (size_t i = begin; i < middle; ++i) better += n(i);
    if (static_cast<double>(better) >= wanted) {
      end = middle;
    } else {
      before = better;
      begin = middle;
    }
  }
  std::sort(ids + begin, ids + end, IsBetter{z});
  while (begin + 1 < end && static_cast<double>(before + n(begin)) < wanted) before += n(begin++);
  return ids[begin];
}

int32_t SymbolPicker::Pick(const float* z, size_t size, float largest, const Sampling& sampling) {
  HWY_DYNAMIC_DISPATCH(WeighTarget)(z, size, largest, sampling.temperature, n_.data());
  Kept kept = {-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max(), 0};
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < size) {
    KeepBest(z, size, sampling.top_k, &kept);
  }
  // min_p = 1 times 2^32 is exact, as every product by a power of two.
  kept.least = std::floor(kOne * sampling.min_p);
  uint64_t sum = SumParts(z, size, kept);
  if (sum == 0) return kNone;
  if (sampling.top_p > 0) {
    kept.worst_id = WorstOfNucleus(z, size, kept, static_cast<double>(sum), sampling.top_p);
    kept.worst = z[kept.worst_id];
    sum = SumParts(z, size, kept);
  }
  uint64_t limit =
      static_cast<uint64_t>(static_cast<unsigned __int128>(sampling.random) * sum >> 64);
  size_t part = 0;
  while (sums_[part] <= limit) limit -= sums_[part++];
  for (size_t j = part * kPart; j < size; ++j) {
    const auto id = static_cast<int32_t>(j);
    const float n = n_.data()[j];
    if (!(n >= kept.least) || !(z[j] > kept.worst || (z[j] == kept.worst && id <= kept.worst_id))) {
      continue;
    }
    const auto whole = static_cast<uint64_t>(n);
    if (whole > limit) return id;
    limit -= whole;
  }
  return kNone;
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
