// What Predict answers of a row of logits, by a block per row: the logarithm of the sum of
// exponentials, the target's log-probability, and the best candidates. Sums are made in an order
// that depends on the vocabulary alone.
//
// Candidates are ordered by a key of 64 bits, in which larger logits come first and, of equal ones,
// smaller ids. Each thread knows the best key of its part of the row. The `count`-th best of these is
// at most the `count`-th best of the row, so the candidates are among the keys from there on. Those
// are few, unless the best are all in the parts of a few threads; if they do not fit into shared
// memory, the candidates are found one after the other.
#ifndef SRU_KERNELS_CUDA_PREDICT_CUH_
#define SRU_KERNELS_CUDA_PREDICT_CUH_

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/operation_args.h"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/shared_memory.cuh"

namespace sru::kernels::cuda {

inline constexpr int kPredictThreads = 256;
// Keys that are sorted at a time.
inline constexpr int kPredictKeys = 1024;

struct PredictShared {
  unsigned long long best[kPredictThreads];  // of each thread's part
  unsigned long long keys[kPredictKeys];
  unsigned long long threshold;
  int num_keys;
  float sums[kPredictThreads / kWarpSize];
};

// Of numbers; what a NaN's place is does not matter.
__device__ __forceinline__ unsigned long long KeyOf(float logit, int id) {
  const uint32_t bits = FloatToBits(logit + 0.0f);  // -0 is 0
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | ~static_cast<uint32_t>(id);
}
__device__ __forceinline__ float LogitOf(unsigned long long key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return BitsToFloat((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}
__device__ __forceinline__ int32_t IdOf(unsigned long long key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// A row's logits, and what a block's threads do with them together.
class PredictRow {
 public:
  __device__ __forceinline__ PredictRow(const PredictArgs& args, PredictShared* shared)
      : logits_(args.logits + int64_t{blockIdx.x} * args.logit_stride),
        bias_(args.bias),
        size_(args.vocabulary_size),
        shared_(*shared) {}

  __device__ __forceinline__ float Logit(int v) const {
    return bias_ != nullptr ? logits_[v] + bias_[v] : logits_[v];
  }

  // The best key of this thread's part, of those that are smaller than `limit`; 0 = none.
  __device__ __forceinline__ unsigned long long Best(unsigned long long limit) const {
    unsigned long long best = 0;
    for (int v = Thread(); v < size_; v += kPredictThreads) {
      const unsigned long long key = KeyOf(Logit(v), v);
      if (key < limit && key > best) best = key;
    }
    return best;
  }

  // What every thread gets of all threads' values.
  __device__ __forceinline__ float Max(float value) {
    value = WarpMax(value);
    if (Thread() % kWarpSize == 0) shared_.sums[Thread() / kWarpSize] = value;
    __syncthreads();
    float result = shared_.sums[0];
    for (int i = 1; i < kPredictThreads / kWarpSize; ++i) result = fmaxf(result, shared_.sums[i]);
    __syncthreads();
    return result;
  }
  __device__ __forceinline__ float Sum(float value) {
    value = WarpSum(value);
    if (Thread() % kWarpSize == 0) shared_.sums[Thread() / kWarpSize] = value;
    __syncthreads();
    float result = shared_.sums[0];
    for (int i = 1; i < kPredictThreads / kWarpSize; ++i) result += shared_.sums[i];
    __syncthreads();
    return result;
  }

  // The sum of exp(logit - top).
  __device__ __forceinline__ float SumOfExponentials(float top) {
    float sum = 0.0f;
    for (int v = Thread(); v < size_; v += kPredictThreads) sum += expf(Logit(v) - top);
    return Sum(sum);
  }

  // The `count` best keys, in order, by `write(place, key)`. `best` is Best() of everything.
  template <typename Write>
  __device__ __forceinline__ void Choose(int count, unsigned long long best, const Write& write) {
    if (count <= kPredictThreads && Collect(count, best)) {
      for (int i = Thread(); i < shared_.num_keys; i += kPredictThreads) {
        const unsigned long long key = shared_.keys[i];
        int place = 0;
        for (int j = 0; j < shared_.num_keys; ++j) place += shared_.keys[j] > key ? 1 : 0;
        if (place < count) write(place, key);
      }
      return;
    }
    unsigned long long limit = ~0ULL;
    for (int place = 0; place < count; ++place) {
      limit = BestOfBlock(Best(limit));
      if (Thread() == 0) write(place, limit);
    }
  }

 private:
  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }

  // Puts the keys among which the candidates are into shared memory; false if there are too many.
  __device__ __forceinline__ bool Collect(int count, unsigned long long best) {
    shared_.best[Thread()] = best;
    if (Thread() == 0) {
      shared_.num_keys = 0;
      shared_.threshold = 0;
    }
    __syncthreads();
    int place = 0;
    for (int i = 0; i < kPredictThreads; ++i) place += shared_.best[i] > best ? 1 : 0;
    // Exactly one thread has this place: keys differ, and at least `count` threads have a part.
    if (place == count - 1 && best != 0) shared_.threshold = best;
    __syncthreads();
    const unsigned long long threshold = shared_.threshold;
    if (best != 0 && best >= threshold) {
      for (int v = Thread(); v < size_; v += kPredictThreads) {
        const unsigned long long key = KeyOf(Logit(v), v);
        if (key < threshold) continue;
        const int at = atomicAdd(&shared_.num_keys, 1);
        if (at < kPredictKeys) shared_.keys[at] = key;
      }
    }
    __syncthreads();
    return shared_.num_keys <= kPredictKeys;
  }

  __device__ __forceinline__ unsigned long long BestOfBlock(unsigned long long mine) {
    __syncthreads();  // what was there before has been read
    shared_.best[Thread()] = mine;
    for (int half = kPredictThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (Thread() < half && shared_.best[Thread() + half] > shared_.best[Thread()]) {
        shared_.best[Thread()] = shared_.best[Thread() + half];
      }
    }
    __syncthreads();
    return shared_.best[0];
  }

  const float* const logits_;
  const float* const bias_;
  const int size_;
  PredictShared& shared_;
};

// A template only so that a header may hold it.
template <typename T>
__global__ void __launch_bounds__(kPredictThreads) PredictKernel(const PredictArgs args) {
  const int number = args.first + static_cast<int>(blockIdx.x);
  if (number >= args.header->num_tokens) return;  // the whole block
  PredictRow row(args, reinterpret_cast<PredictShared*>(DynamicShared()));
  const unsigned long long best = row.Best(~0ULL);
  const T top = row.Max(best == 0 ? -HUGE_VALF : LogitOf(best));
  const T log_sum = logf(row.SumOfExponentials(top));
  const int target = args.targets[number];
  if (threadIdx.x == 0) {
    args.log_prob[number] = target < 0 ? 0.0f : row.Logit(target) - top - log_sum;
  }
  const int count = args.counts[number];
  if (count == 0) return;
  PredictCandidate* candidates = args.candidates + int64_t{number} * args.max_candidates;
  row.Choose(count, best, [&](int place, unsigned long long key) {
    candidates[place] = {IdOf(key), LogitOf(key) - top - log_sum};
  });
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PREDICT_CUH_
