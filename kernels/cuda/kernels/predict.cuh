// A block, or a cluster of blocks, answers what Predict asks of a row of logits: the logarithm of
// the sum of exponentials, the target's log-probability, the best candidates, and the symbol that
// is picked (pick.cuh). Sums are made in an order that depends on the vocabulary alone, so a row's
// bits are those of either.
//
// A cluster (compute capability 9.0 and later) answers rows of more than kSmallVocabulary symbols
// where rows are so few that each of its kPredictCluster blocks gets a multiprocessor. Each block
// has a part of the row, keeps it in its shared memory if it picks, and combines with the others
// what it finds: the best keys, sums by digit, candidates. Blocks read the others' shared memory
// between two barriers of the cluster, which all of them reach, since they decide by what they have
// combined. After the last one nothing of another block is read, so any of them may end.
//
// Candidates are ordered by their keys (logits.cuh). The row has kPredictParts parts, of which the
// threads know the best keys. The `count`-th best of these is
// at most the `count`-th best of the row, so the candidates are among the keys from there on. Those
// are few, unless the best are all in a few parts; if they do not fit into shared
// memory, the candidates are found one after the other.
//
// A block that picks copies its row to shared memory, if that is large enough, and walks over it
// there: up to 8192 symbols on every GPU, 37,000 at compute capability 8.0 and 54,000 at 9.0, there
// 216,000 by a cluster. There the row is adjusted, too; in global memory it stays as the product
// has left it.
//
// Bound by one block's walks over a row, or over a quarter of it: 3 without a pick; with one 2, or
// up to 8 for each of top_k and top_p, of which 2 or 3 are the rule, and 2 more. A walk reads 4
// bytes a logit, from shared memory where the row is kept, else from the second-level cache. A
// cluster's blocks also wait for each other: 4 times, 3 times more for candidates and 5 for a pick,
// and twice for each walk of top_k and top_p. Bytes a result: 4 x vocabulary read, times the walks
// where the row is not kept, and 4 x vocabulary of the bias; 16 written. Blocks: one per row, or 4
// of a cluster for up to 33 rows on 132 multiprocessors, so 16 rows are 64.
#ifndef SRU_KERNELS_CUDA_KERNELS_PREDICT_CUH_
#define SRU_KERNELS_CUDA_KERNELS_PREDICT_CUH_

#include <cfloat>
#include <utility>

#include "kernels/cuda/kernels/block_math.cuh"
#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/logits.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/pick.cuh"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/shared_memory.cuh"

namespace sru::kernels::cuda {

inline constexpr int kPredictParts = 256;
// Keys that are sorted at a time.
inline constexpr int kPredictKeys = 1024;

template <int kThreads>
struct PredictShared {
  BlockShared<kThreads> block;
  PickShared<kThreads> pick;
  Word64 best[kThreads];  // of each thread's own, then of each part
  Word64 keys[kPredictKeys];
  Word64 threshold;
  int num_keys;
};

// The candidates of a row.
template <int kThreads, int kBlocks>
class Candidates {
 public:
  __device__ __forceinline__ Candidates(const Logits<kThreads>& logits,
                                        const BlockMath<kThreads, kBlocks>& block,
                                        PredictShared<kThreads>* shared)
      : logits_(logits), block_(block), shared_(*shared) {}

  // The row's `count` best keys, in order, by `write(place, key)`. `best` is the logits' Best() of
  // everything.
  template <typename Write>
  __device__ __forceinline__ void Choose(int count, Word64 best, const Write& write) {
    const int num_keys = count <= kPredictParts ? Collect(count, best) : kPredictKeys + 1;
    if (num_keys <= kPredictKeys) {
      for (int i = Thread(); i < shared_.num_keys; i += kThreads) {
        const Word64 key = shared_.keys[i];
        int place = 0;
        for (int j = 0; j < num_keys; ++j) place += shared_.keys[j] > key ? 1 : 0;
        if (place < count) write(place, key);
      }
      return;
    }
    Word64 limit = ~0ULL;
    for (int place = 0; place < count; ++place) {
      limit = block_.Max(logits_.Best(limit));
      if (Thread() == 0 && block_.Block() == 0) write(place, limit);
    }
  }

 private:
  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }

  // Puts the keys among which the candidates are into shared memory, num_keys of the block first,
  // and returns how many there are; more than kPredictKeys do not fit.
  __device__ __forceinline__ int Collect(int count, Word64 best) {
    shared_.best[Thread()] = best;
    if (Thread() == 0) {
      shared_.num_keys = 0;
      shared_.threshold = 0;
    }
    SyncBlocks<kBlocks>();
    Word64 of_part = 0;
    if (Thread() < kPredictParts) {
      for (int i = Thread(); i < kThreads * kBlocks; i += kPredictParts) {
        const Word64 other = SharedOf<kBlocks>(shared_.best[i % kThreads], i / kThreads);
        if (other > of_part) of_part = other;
      }
      shared_.keys[Thread()] = of_part;
    }
    __syncthreads();
    if (Thread() < kPredictParts) {
      int place = 0;
      for (int i = 0; i < kPredictParts; ++i) place += shared_.keys[i] > of_part ? 1 : 0;
      // Exactly one part has this place: keys differ, and at least `count` parts have one.
      if (place == count - 1 && of_part != 0) shared_.threshold = of_part;
    }
    __syncthreads();
    const Word64 threshold = shared_.threshold;
    if (best != 0 && best >= threshold) {
      logits_.ForEach([&](int v, float logit) {
        const Word64 key = KeyOf(logit, v);
        if (key < threshold) return;
        const int at = atomicAdd(&shared_.num_keys, 1);
        if (at < kPredictKeys) shared_.keys[at] = key;
      });
    }
    SyncBlocks<kBlocks>();
    int num_keys = shared_.num_keys;
    if constexpr (kBlocks > 1) {
      for (int k = 1; k < kBlocks; ++k) {
        const int block = (block_.Block() + k) % kBlocks;
        const int others = SharedOf<kBlocks>(shared_.num_keys, block);
        for (int i = Thread(); i < others && num_keys + i < kPredictKeys; i += kThreads) {
          shared_.keys[num_keys + i] = SharedOf<kBlocks>(shared_.keys[i], block);
        }
        num_keys += others;
      }
      SyncBlocks<kBlocks>();
    }
    return num_keys;
  }

  const Logits<kThreads> logits_;
  BlockMath<kThreads, kBlocks> block_;
  PredictShared<kThreads>& shared_;
};

// Finite, or -infinity for a symbol that is never picked.
__device__ __forceinline__ float Adjusted(float logit, const Adjustment& adjustment) {
  if (adjustment.add == -HUGE_VALF) return -HUGE_VALF;
  const float scaled = logit > 0.0f ? logit / adjustment.scale : logit * adjustment.scale;
  return fminf(fmaxf(scaled + adjustment.add, -FLT_MAX), FLT_MAX);
}

// The place of an id among ascending ones, id_at(begin) to id_at(end - 1), or `end`.
template <typename IdAt>
__device__ __forceinline__ int FindId(int begin, int end, int32_t id, const IdAt& id_at) {
  const int last = end;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (id_at(middle) < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < last && id_at(begin) == id ? begin : last;
}

// A row's adjustments.
class RowAdjustments {
 public:
  __device__ __forceinline__ RowAdjustments(const PredictArgs& args, int number)
      : adjustments_(args.adjustments), unadjusted_(args.unadjusted), begin_(0), end_(0) {
    if (args.adjustment_offsets == nullptr) return;
    begin_ = args.adjustment_offsets[number];
    end_ = args.adjustment_offsets[number + 1];
  }

  __device__ __forceinline__ bool empty() const { return begin_ == end_; }

  // Replaces a block's logits by adjusted ones, and keeps the former. Each symbol is adjusted once
  // at most.
  template <int kThreads>
  __device__ __forceinline__ void Apply(const Logits<kThreads>& logits) const {
    for (int i = begin_ + static_cast<int>(threadIdx.x); i < end_; i += kThreads) {
      const Adjustment adjustment = adjustments_[i];
      if (!logits.Has(adjustment.id)) continue;
      const float logit = logits[adjustment.id];
      unadjusted_[i] = logit;
      logits[adjustment.id] = Adjusted(logit, adjustment);
    }
  }

  // The logit that a symbol of the block had before Apply().
  template <int kThreads>
  __device__ __forceinline__ float Unadjusted(const Logits<kThreads>& logits, int32_t id) const {
    const int place = FindId(begin_, end_, id, [this](int i) { return adjustments_[i].id; });
    return place < end_ ? unadjusted_[place] : logits[id];
  }

 private:
  const Adjustment* const adjustments_;
  float* const unadjusted_;
  int begin_;
  int end_;
};

// The symbols that a row may choose from, ascending.
class RowChoices {
 public:
  __device__ __forceinline__ RowChoices(const PredictArgs& args, int number)
      : ids_(args.choices), begin_(0), end_(0) {
    if (ids_ == nullptr) return;
    const int sequence = args.choices_map[args.row_sequence[args.rows[number]]];
    begin_ = args.choice_offsets[sequence];
    end_ = args.choice_offsets[sequence + 1];
  }

  __device__ __forceinline__ bool Has(int32_t id) const {
    return ids_ == nullptr || FindId(begin_, end_, id, [this](int i) { return ids_[i]; }) < end_;
  }

 private:
  const int32_t* const ids_;
  int begin_;
  int end_;
};

// Blocks that must fit a multiprocessor's registers; left to itself the compiler spills for more.
template <int kThreads, bool kPicks>
inline constexpr int kPredictBlocks = (kPicks ? 768 : 1024) / kThreads;

// Where a row is in shared memory that has it, in copies of this width.
inline constexpr int kPredictCopyBytes = 16;
constexpr size_t PredictCopied(size_t bytes) {
  return (bytes + kPredictCopyBytes - 1) / kPredictCopyBytes * kPredictCopyBytes;
}
template <int kThreads>
inline constexpr size_t kPredictRowAt = PredictCopied(sizeof(PredictShared<kThreads>));
template <int kThreads, int kBlocks>
inline size_t PredictSharedBytes(bool keeps_row, int vocabulary_size) {
  if (!keeps_row) return sizeof(PredictShared<kThreads>);
  const int kept = kBlocks == 1 ? vocabulary_size : RowPartSize<kThreads>(vocabulary_size);
  return kPredictRowAt<kThreads> + PredictCopied(kept * sizeof(float));
}

template <int kThreads, int kBlocks, bool kPicks, bool kKeepsRow>
__device__ __forceinline__ void PredictRow(const PredictArgs& args) {
  const int row = static_cast<int>(blockIdx.x) / kBlocks;
  const int number = args.first + row;
  if (number >= args.header->rows.num_tokens) return;  // the whole cluster
  auto* const shared = reinterpret_cast<PredictShared<kThreads>*>(DynamicShared());
  BlockMath<kThreads, kBlocks> block(&shared->block);
  // A block has all of the row's parts, or one.
  const int part_size = RowPartSize<kThreads>(args.vocabulary_size);
  Logits<kThreads> logits = {args.logits + int64_t{row} * args.logit_stride, 0,
                             args.vocabulary_size};
  if constexpr (kBlocks > 1) logits = logits.Part(block.Block(), part_size);
  if constexpr (kKeepsRow) {
    const float* const product = logits.at;
    logits.at = reinterpret_cast<float*>(DynamicShared() + kPredictRowAt<kThreads>);
    // A row's stride is a multiple of what a copy takes.
    constexpr int kCopied = kPredictCopyBytes / static_cast<int>(sizeof(float));
    const SharedAddress to = SharedAddressOf(logits.at);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) * kCopied; i < logits.size;
         i += kThreads * kCopied) {
      BeginCopy<kPredictCopyBytes>(to + i * static_cast<int>(sizeof(float)), product + i);
    }
    CommitCopies();
    WaitForCopies<0>();
    __syncthreads();
  }
  Word64 best = 0;
  if (args.bias == nullptr && args.choices == nullptr) {
    best = logits.Best(~0ULL);
  } else {
    const auto keep = [&](int v, float logit) {
      logits[v] = logit;
      const Word64 key = KeyOf(logit, v);
      if (key > best) best = key;
    };
    if (args.choices == nullptr) {
      // Without a branch, so that as many biases as logits are on their way at a time.
      logits.template ForEach<8>(
          [&](int v, float logit) { keep(v, logit + Unpack(LoadReadOnly<1>(args.bias + v), 0)); });
    } else {
      const RowChoices choices(args, number);
      logits.ForEach([&](int v, float logit) {
        if (args.bias != nullptr) logit += Unpack(LoadReadOnly<1>(args.bias + v), 0);
        keep(v, choices.Has(v) ? logit : -HUGE_VALF);
      });
    }
  }
  const float top = block.Max(best == 0 ? -HUGE_VALF : LogitOf(best));
#pragma unroll 1
  for (int part = 0; part < kRowParts<kThreads> / kBlocks; ++part) {
    float exponentials = 0.0f;
    logits.Part(part, part_size).ForEach([&](int, float logit) {
      exponentials += expf(logit - top);
    });
    block.SetPart(part, exponentials);
  }
  const float log_sum = logf(block.template SumOfParts<kRowParts<kThreads>>());
  const int target = args.targets[number];
  if (threadIdx.x == 0 && logits.Has(target < 0 ? 0 : target)) {
    args.log_prob[number] = target < 0 ? 0.0f : logits[target] - top - log_sum;
  }
  const int count = args.counts[number];
  if (count > 0 && args.num_never > 0) {
    __syncthreads();  // the logits have been read
    for (int i = static_cast<int>(threadIdx.x); i < args.num_never; i += kThreads) {
      if (logits.Has(args.never[i])) logits[args.never[i]] = -HUGE_VALF;
    }
    __syncthreads();
    best = logits.Best(~0ULL);
  }
  if (count > 0) {
    Candidate* const candidates =
        args.header->candidates + int64_t{number} * args.header->max_count;
    const auto write = [&](int place, Word64 key) {
      const float logit = LogitOf(key);
      candidates[place] = {logit == -HUGE_VALF ? -1 : IdOf(key), logit - top - log_sum};
    };
    Candidates<kThreads, kBlocks>(logits, block, shared).Choose(count, best, write);
  }
  if constexpr (kPicks) {
    const Sampling sampling = args.sampling[number];
    const RowAdjustments adjustments(args, number);
    Word64 best_of_thread = best;
    if (!adjustments.empty()) {
      __syncthreads();  // the logits have been read
      adjustments.Apply(logits);
      __syncthreads();
      best_of_thread = logits.Best(~0ULL);
    }
    const Word64 best_of_all = block.Max(best_of_thread);
    const float adjusted_top = LogitOf(best_of_all);
    int32_t id = -1;
    if (adjusted_top > -HUGE_VALF) {
      id = IdOf(best_of_all);
      if (sampling.temperature > 0.0f) {
        Picker<kThreads, kBlocks> picker(logits, sampling, adjusted_top, block, &shared->pick);
        id = picker.Pick(args.vocabulary_size);
      }
    }
    if (threadIdx.x == 0 && logits.Has(id < 0 ? 0 : id)) {
      const float logit = id < 0 ? 0.0f : adjustments.Unadjusted(logits, id);
      args.picked[number] = {id, id < 0 ? 0.0f : logit - top - log_sum};
    }
  }
}
template <int kThreads, int kBlocks, bool kPicks, bool kKeepsRow>
__global__ void __launch_bounds__(kThreads, (kPredictBlocks<kThreads, kPicks>))
    PredictKernel(const PredictArgs args) {
  if constexpr (kBlocks == 1 || kHasClusters) {
    PredictRow<kThreads, kBlocks, kPicks, kKeepsRow>(args);
  } else {
    Trap();
  }
}
template <int kThreads, int kBlocks, typename Launch>
auto WithPredictKernel(const PredictArgs& args, const Launch& launch) {
  LaunchShape shape = {int64_t{args.max_rows} * kBlocks, kThreads,
                       PredictSharedBytes<kThreads, kBlocks>(false, 0), /*threads_wait=*/true,
                       kBlocks};
  if (args.sampling == nullptr) {
    return launch(PredictKernel<kThreads, kBlocks, false, false>, shape, args);
  }
  const size_t with_row = PredictSharedBytes<kThreads, kBlocks>(true, args.vocabulary_size);
  if constexpr (kThreads != kPredictThreads && kBlocks == 1) {
    if (with_row > args.max_shared_bytes) {
      return launch(PredictKernel<kThreads, kBlocks, true, false>, shape, args);
    }
  }
  shape.shared_bytes = with_row;
  return launch(PredictKernel<kThreads, kBlocks, true, true>, shape, args);
}
template <typename Launch>
auto WithKernel(const PredictArgs& args, const Launch& launch) {
  constexpr int kThreads = kLargePredictThreads;
  if (args.vocabulary_size <= kSmallVocabulary) {
    return WithPredictKernel<kPredictThreads, 1>(args, launch);
  }
  const size_t with_part =
      PredictSharedBytes<kThreads, kPredictCluster>(true, args.vocabulary_size);
  return args.max_rows <= args.max_clustered_rows && with_part <= args.max_shared_bytes
             ? WithPredictKernel<kThreads, kPredictCluster>(args, launch)
             : WithPredictKernel<kThreads, 1>(args, launch);
}
// Tells an operation the device's limits, if it asks.
template <typename Args>
void SetLimits(Args* /*args*/, const OperationLimits& /*limits*/) {}
inline void SetLimits(PredictArgs* args, const OperationLimits& limits) {
  args->max_shared_bytes = limits.max_shared_bytes;
  args->max_clustered_rows = limits.max_clustered_rows;
}

// Each with the most shared memory that it is launched with.
inline std::vector<PredictArgs> KernelVariants(const PredictArgs& args) {
  static Sampling sampling{};
  const size_t row_bytes = args.max_shared_bytes - kPredictRowAt<kLargePredictThreads>;
  const int kept =
      static_cast<int>(row_bytes / kPredictCopyBytes * kPredictCopyBytes / sizeof(float));
  const int by_cluster = kept / kWarpSize * kWarpSize * kPredictCluster;
  const int many = args.max_clustered_rows + 1;
  std::vector<PredictArgs> variants;
  for (const auto& [vocabulary_size, rows] :
       {std::pair(kSmallVocabulary, many), std::pair(kept, many), std::pair(kept + 1, many),
        std::pair(by_cluster, 1)}) {
    for (const bool picks : {false, true}) {
      PredictArgs& variant = variants.emplace_back(args);
      variant.max_rows = rows;
      variant.vocabulary_size = vocabulary_size;
      variant.sampling = picks ? &sampling : nullptr;
    }
  }
  return variants;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_PREDICT_CUH_
