// How a symbol is picked from a row of logits (program.h's Predict has the equations), by a block,
// or by a cluster of kBlocks blocks with a part of the row each.
//
// Nothing is sorted. The symbols that top_k and top_p leave are those from a key on (logits.cuh),
// which is found 8 bits at a time: each pass over the row sums what the symbols weigh by the next
// bits of their places. A place is first how far the logit is below the best one, in 24 bits, then
// the logit's own bits: the first 8 bits of a logit are its sign and most of its exponent, which
// are the same for thousands of symbols, and additions to one sum wait for each other. Two or three
// passes mostly leave one symbol at the border. Symbols weigh 1 each for top_k and n_v for top_p.
// Of equal logits at the border, the smallest ids stay. The symbol that a number below the sum of
// all n_v falls on is found by ids: each warp sums a part of the row, and the part that has the
// symbol is scanned. Weights are whole numbers, so threads may add them in any order.
#ifndef SRU_KERNELS_CUDA_KERNELS_PICK_CUH_
#define SRU_KERNELS_CUDA_KERNELS_PICK_CUH_

#include "kernels/cuda/kernels/block_math.cuh"
#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/logits.cuh"
#include "kernels/cuda/kernels/operation_args.h"

namespace sru::kernels::cuda {

// floor(a b / 2^64).
__device__ __forceinline__ Word64 MultiplyHigh(Word64 a, Word64 b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<Word64>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// Sums of weights by 8 bits of the place. Each is in two words, since shared memory has no native
// addition of 64 bits.
struct PickSums {
  static constexpr int kCount = 256;

  __device__ __forceinline__ void Add(uint32_t i, Word64 weight) {
    const auto added = static_cast<unsigned>(weight);
    const unsigned before = atomicAdd(&low[i], added);
    // Exactly one of those that add sees each carry.
    const unsigned carry = before + added < before ? 1 : 0;
    const unsigned above = static_cast<unsigned>(weight >> 32) + carry;
    if (above != 0) atomicAdd(&high[i], above);
  }
  // The sum over all blocks.
  template <int kBlocks>
  __device__ __forceinline__ Word64 Get(int i) {
    return (SumOfBlocks<kBlocks>(high[i]) << 32) + SumOfBlocks<kBlocks>(low[i]);
  }

  unsigned low[kCount];
  unsigned high[kCount];
  unsigned symbols[kCount];  // how many have been added; none in the first pass
};

template <int kThreads>
struct PickShared {
  PickSums sums;
  Word64 parts[BlockShared<kThreads>::kWarps];
  // What one thread finds for all.
  Word64 before;
  Word64 weight;
  int bits;
  int alone;  // whether one symbol alone has these bits
  int id;
};

template <int kThreads, int kBlocks>
class Picker {
 public:
  // `logits` are the block's. `top` is the row's largest one, which is finite.
  __device__ __forceinline__ Picker(const Logits<kThreads>& logits, const Sampling& sampling,
                                    float top, const BlockMath<kThreads, kBlocks>& block,
                                    PickShared<kThreads>* shared)
      : logits_(logits), sampling_(sampling), top_(top), block_(block), shared_(*shared) {}

  // The temperature is not 0.
  __device__ __forceinline__ int32_t Pick(int vocabulary_size) {
    if (sampling_.top_k > 0 && sampling_.top_k < vocabulary_size) {
      const Word64 count = static_cast<Word64>(sampling_.top_k);
      KeepBest([](float) { return Word64{1}; }, [count](Word64) { return count; });
    }
    least_ = static_cast<Word64>(4294967296.0 * static_cast<double>(sampling_.min_p));
    const auto weight = [this](float logit) { return Weight(logit); };
    if (sampling_.top_p > 0 && sampling_.top_p < 1) {
      const double part = sampling_.top_p;
      KeepBest(weight, [part](Word64 total) {
        return static_cast<Word64>(ceil(part * static_cast<double>(total)));
      });
    }
    const Word64 random = sampling_.random;
    return FirstAbove([&](int v, float logit) { return WeightIfKept(v, logit, weight); },
                      [random](Word64 total) { return MultiplyHigh(random, total); });
  }

 private:
  // A place's linear bits: multiples of 2^-19 up to 32.
  static constexpr float kSteps = 524288.0f;
  static constexpr uint32_t kLastStep = (1u << 24) - 1;
  static constexpr int kFirstShift = 48;  // of a place's 56 bits

  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }

  // Larger for larger logits.
  __device__ __forceinline__ Word64 PlaceOf(float logit) const {
    // kLastStep for what is no number.
    const float steps = fminf((top_ - logit) * kSteps, static_cast<float>(kLastStep));
    return static_cast<Word64>(kLastStep - static_cast<uint32_t>(steps)) << 32 | OrderedBits(logit);
  }

  // n_v.
  __device__ __forceinline__ Word64 Weight(float logit) const {
    const float n = 4294967296.0f * expf((logit - top_) / sampling_.temperature);
    return n >= 1.0f ? static_cast<Word64>(n) : 0;  // 0 for what is not a number, too
  }

  template <typename WeightOf>
  __device__ __forceinline__ Word64 WeightIfKept(int v, float logit, const WeightOf& weight) const {
    if (KeyOf(logit, v) < cut_) return 0;
    const Word64 n = weight(logit);
    return n >= least_ ? n : 0;
  }

  // Of the symbols that are kept, keeps the best ones, as few as weigh least(what all weigh) at
  // least.
  template <typename WeightOf, typename Least>
  __device__ __forceinline__ void KeepBest(const WeightOf& weight, const Least& least_of_total) {
    Word64 prefix = 0;  // of the place on the border
    Word64 before = 0;  // what the symbols weigh that are better than all with this prefix
    Word64 here = 0;    // and these
    Word64 least = 0;
#pragma unroll 1
    for (int shift = kFirstShift; shift >= 0; shift -= 8) {
      for (int i = Thread(); i < PickSums::kCount; i += kThreads) {
        shared_.sums.low[i] = shared_.sums.high[i] = shared_.sums.symbols[i] = 0;
      }
      __syncthreads();
      logits_.ForEach([&](int v, float logit) {
        const Word64 place = PlaceOf(logit) >> shift;
        if (place >> 8 != prefix) return;
        const Word64 n = WeightIfKept(v, logit, weight);
        if (n == 0) return;
        const auto bits = static_cast<uint32_t>(place & 0xff);
        shared_.sums.Add(bits, n);
        if (shift < kFirstShift) atomicAdd(&shared_.sums.symbols[bits], 1u);
      });
      SyncBlocks<kBlocks>();
      // The best first. Each block finds the same.
      const int bits = PickSums::kCount - 1 - Thread();
      const Word64 mine = bits >= 0 ? shared_.sums.template Get<kBlocks>(bits) : 0;
      Word64 total = 0;
      const Word64 sum = before + block_.Scan(mine, &total);
      if (shift == kFirstShift) least = least_of_total(total);
      if (sum >= least && sum - mine < least) {
        shared_.bits = bits;
        shared_.alone = SumOfBlocks<kBlocks>(shared_.sums.symbols[bits]) == 1 ? 1 : 0;
        shared_.before = sum - mine;
        shared_.weight = mine;
      }
      SyncBlocks<kBlocks>();
      if (total == 0) return;
      prefix = prefix << 8 | static_cast<Word64>(shared_.bits);
      before = shared_.before;
      here = shared_.weight;
      if (before + here == least || shared_.alone != 0) {
        Cut(WorstKey(shift, prefix, weight));
        return;
      }
    }
    // All that are left have the same logit.
    const auto ordered = static_cast<uint32_t>(prefix);
    const Word64 bound = least - before - 1;
    const int32_t last = FirstAbove(
        [&](int v, float logit) {
          return OrderedBits(logit) == ordered ? WeightIfKept(v, logit, weight) : 0;
        },
        [bound](Word64) { return bound; });
    Cut(last < 0 ? static_cast<Word64>(ordered) << 32 : KeyOf(ordered, last));
  }

  // The worst of the kept symbols whose places begin with `prefix`; there are some.
  template <typename WeightOf>
  __device__ __forceinline__ Word64 WorstKey(int shift, Word64 prefix, const WeightOf& weight) {
    Word64 worst = 0;  // the complement
    logits_.ForEach([&](int v, float logit) {
      if (PlaceOf(logit) >> shift != prefix || WeightIfKept(v, logit, weight) == 0) return;
      const Word64 key = KeyOf(logit, v);
      if (~key > worst) worst = ~key;
    });
    return ~block_.Max(worst);
  }

  __device__ __forceinline__ void Cut(Word64 key) {
    if (key > cut_) cut_ = key;
  }

  // The smallest id v for which the sum of weight(u, logit of u) over all u <= v is greater than
  // bound(the sum of all); kNone if there is none.
  template <typename WeightOf, typename Bound>
  __device__ __forceinline__ int32_t FirstAbove(const WeightOf& weight,
                                                const Bound& bound_of_total) {
    constexpr int kParts = BlockShared<kThreads>::kWarps;
    const int size = logits_.size;
    const int part_size = (size + kThreads - 1) / kThreads * kWarpSize;
    __syncthreads();  // what was found before has been read
    {
      const int begin = block_.Warp() * part_size;
      const int end = begin + part_size < size ? begin + part_size : size;
      Word64 sum = 0;
#pragma unroll 4
      for (int i = begin + block_.Lane(); i < end; i += kWarpSize) {
        sum += weight(logits_.begin + i, logits_.at[i]);
      }
      sum = WarpSum(sum);
      if (block_.Lane() == 0) shared_.parts[block_.Warp()] = sum;
    }
    __syncthreads();
    Word64 of_block = 0;
    for (int i = 0; i < kParts; ++i) of_block += shared_.parts[i];
    Word64 total = 0;
    Word64 before = block_.ScanBlocks(of_block, &total);
    const Word64 bound = bound_of_total(total);
    if (total <= bound) return -1;
    int part = 0;
    // Blocks before the symbol's scan a part without it, blocks after it none.
    for (; part < kParts - 1 && before + shared_.parts[part] <= bound; ++part) {
      before += shared_.parts[part];
    }
    const int begin = part * part_size;
    const int end = begin + part_size < size ? begin + part_size : size;
#pragma unroll 1
    for (int first = begin; first < end && before <= bound; first += kThreads) {
      const int i = first + Thread();
      const Word64 mine = i < end ? weight(logits_.begin + i, logits_.at[i]) : 0;
      Word64 sum_of_threads = 0;
      const Word64 sum = before + block_.Scan(mine, &sum_of_threads);
      if (sum > bound && sum - mine <= bound) {
        for (int block = 0; block < kBlocks; ++block) {
          SharedOf<kBlocks>(shared_.id, block) = logits_.begin + i;
        }
      }
      before += sum_of_threads;
    }
    SyncBlocks<kBlocks>();
    return shared_.id;
  }

  const Logits<kThreads> logits_;
  const Sampling sampling_;
  const float top_;
  BlockMath<kThreads, kBlocks> block_;
  PickShared<kThreads>& shared_;
  Word64 cut_ = 0;    // keys from here on are kept,
  Word64 least_ = 0;  // with weights from here on
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_PICK_CUH_
