// Buckets: the sizes that launches are recorded for. A batch runs in the smallest bucket that holds
// it; what it lacks is skipped by the kernels, which read the batch's true sizes on the device.
#ifndef SRU_KERNELS_CUDA_DEVICE_BUCKET_H_
#define SRU_KERNELS_CUDA_DEVICE_BUCKET_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

namespace sru::kernels::cuda {

// Token counts of buckets, ascending: multiples of 16 up to 128, then eight per doubling. Products
// run on all of a bucket's rows, so past 128 tokens at most an eighth of their work is wasted. The
// last but one holds `max_tokens`; one more follows, for products that cannot use that one's rows
// (product_plan.h).
inline std::vector<int> TokenBuckets(int max_tokens) {
  std::vector<int> buckets;
  int step = 16;
  for (int tokens = 16;; tokens += step) {
    buckets.push_back(tokens);
    if (buckets.size() > 1 && buckets[buckets.size() - 2] >= max_tokens) return buckets;
    if (tokens >= 16 * step) step *= 2;
  }
}

// Row counts of buckets of an axis that has inputs alone, such as adjustments, whose spare rows
// cost no more than their copy: powers of two from 16 on. As of TokenBuckets(), the last but one
// holds `max_rows`.
inline std::vector<int> InputBuckets(int max_rows) {
  std::vector<int> buckets = {16};
  while (buckets.back() < max_rows) buckets.push_back(2 * buckets.back());
  buckets.push_back(2 * buckets.back());
  return buckets;
}

// A power of four: a spare sequence costs a block that ends at once, and a row of results to copy;
// not more than `max_sequences`.
inline int SequenceBucket(int sequences, int max_sequences) {
  int bucket = 1;
  while (bucket < sequences) bucket *= 4;
  return std::min(bucket, max_sequences);
}

// What a recorded graph depends on.
struct Bucket {
  // What any of the bucket's sequences wants, and what the batch brings.
  enum Flag : uint32_t {
    kLabels = 1,  // logits or probabilities
    kPooled = 2,
    kFinalState = 4,
    kTokenVectors = 8,
    kFeatures = 16,  // else token ids
    kInitialState = 32,
  };

  int tokens = 0;
  int sequences = 0;
  uint32_t flags = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  bool operator<(const Bucket& o) const {
    return std::tie(tokens, sequences, flags) < std::tie(o.tokens, o.sequences, o.flags);
  }
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_BUCKET_H_
