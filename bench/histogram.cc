#include "bench/histogram.h"

#include <algorithm>
#include <cmath>

namespace sru::bench {
namespace {

constexpr int kSubBits = 7;  // 128 buckets per power of two
constexpr int64_t kSubCount = 1 << kSubBits;
constexpr int kNumBuckets = (63 - kSubBits + 1) * kSubCount;

}  // namespace

Histogram::Histogram() : buckets_(kNumBuckets) {}

int Histogram::BucketOf(int64_t value) {
  if (value < 2 * kSubCount) return static_cast<int>(value);
  const int shift = 63 - __builtin_clzll(static_cast<uint64_t>(value)) - kSubBits;
  return static_cast<int>(shift * kSubCount + (value >> shift));
}

int64_t Histogram::ValueOf(int bucket) {
  if (bucket < 2 * kSubCount) return bucket;
  const int shift = static_cast<int>(bucket / kSubCount) - 1;
  const int64_t low = (bucket - shift * kSubCount) << shift;
  return low + (int64_t{1} << shift) / 2;
}

void Histogram::Add(int64_t value) {
  value = std::max<int64_t>(value, 0);
  ++buckets_[BucketOf(value)];
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
  ++count_;
}

void Histogram::Merge(const Histogram& other) {
  for (int i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

int64_t Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  // The product may be a rounding error above a whole number, which must not raise the rank.
  const double position = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(count_);
  const auto rank = static_cast<int64_t>(std::ceil(position * (1 - 1e-12)));
  if (rank <= 1) return min_;
  if (rank >= count_) return max_;
  int64_t seen = 0;
  for (int i = 0; i < kNumBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(ValueOf(i), min_, max_);
  }
  return max_;
}

}  // namespace sru::bench
