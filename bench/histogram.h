// Histogram of non-negative 64-bit values, here nanoseconds, with a bounded relative error.
//
// Values below 256 are exact; above that, each power of two is divided into 128 equal buckets, so
// that a reported value is within 1/256 (0.4%) of a recorded one. The memory is constant (58 KB),
// and adding a value takes a few instructions. HdrHistogram has the same idea.
//
// Not thread-safe: each thread fills a histogram of its own, and they are merged.
#ifndef SRU_BENCH_HISTOGRAM_H_
#define SRU_BENCH_HISTOGRAM_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace sru::bench {

class Histogram {
 public:
  Histogram();

  // Negative values count as 0.
  void Add(int64_t value);
  void Merge(const Histogram& other);

  int64_t count() const { return count_; }
  // Exact; 0 if nothing was added.
  int64_t min() const { return count_ == 0 ? 0 : min_; }
  int64_t max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  // The smallest value that at least `percent` percent of the values do not exceed (nearest rank),
  // for `percent` in [0, 100]; 0 if nothing was added. 0 gives the minimum and 100 the maximum,
  // both exact.
  int64_t Percentile(double percent) const;

 private:
  static int BucketOf(int64_t value);
  // The middle of the values that fall into a bucket.
  static int64_t ValueOf(int bucket);

  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  int64_t min_ = std::numeric_limits<int64_t>::max();
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_HISTOGRAM_H_
