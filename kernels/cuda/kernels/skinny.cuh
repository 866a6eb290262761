// y = x w for few rows: a decode step's products, whose time is that of reading the weights.
//
// The order of a sum depends on k alone: float32 s = fma(x[i], w[i], s) for i = 0 to k - 1,
// bfloat16 a product of tiles of 16 values of k after the other on tensor cores. So a row has the
// same bits alone and among others, and those of a library whose kernels sum in one chain as well;
// which of its products do, product_plan.h finds out.
//
// A warp makes 8 columns (float32) or 16 (bfloat16) of up to kRows rows. What it reads of x and w
// is in a ring in shared memory, 64 values of k a stage. One more warp of the block begins all
// copies, seven stages ahead: that many bytes must be on their way to keep the memory busy (its
// rate times its latency, 20 to 30 KB a multiprocessor), and address arithmetic stays out of the
// sums' way. One barrier a stage says both that the stage has come and that the one before it may
// be filled again.
//
// With NormalizedProductArgs x is not read: all warps of a block make its rows by a layer norm,
// into shared memory, where whole rows stay. That repeats a row's norm in every block, while
// weights are on their way, and saves a launch in the chain of those that a step waits for; another
// one where y's columns go on to growing fields.
//
// Weights are read once if rows <= kRows. The first seven stages of them are copied before anything
// else.
#ifndef SRU_KERNELS_CUDA_KERNELS_SKINNY_CUH_
#define SRU_KERNELS_CUDA_KERNELS_SKINNY_CUH_

#include <type_traits>

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/layer_norm.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/cuda/kernels/skinny_shape.h"
#include "kernels/cuda/kernels/tensor_core.cuh"
#include "kernels/data_type.h"

namespace sru::kernels::cuda {

// The sums of one lane, over all of k. kXPitch is in bytes from a row of x to the next one.
template <typename T, int kRows, int kXPitch>
struct SkinnySums;

// A lane has one column, and every fourth row.
template <int kRows, int kXPitch>
struct SkinnySums<float, kRows, kXPitch> {
  static constexpr int kPitch = SkinnyPitch(sizeof(float));
  static constexpr int kOwn = kRows / 4;

  // Four values of k.
  struct Step {
    Packed<float, 4> w;
    Packed<float, 4> x[kOwn];

    __device__ __forceinline__ void Load(const float* of_w, const unsigned char* of_x, int i) {
      w = cuda::Load<4>(of_w + i);
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        x[r] = cuda::Load<4>(reinterpret_cast<const float*>(of_x + 4 * r * kXPitch) + i);
      }
    }
  };

  // Adds `count` values of k, a multiple of 8, of a stage.
  __device__ __forceinline__ void Add(const unsigned char* w, const unsigned char* x, int count,
                                      int lane) {
    const float* const of_w = reinterpret_cast<const float*>(w + lane % 8 * kPitch);
    const unsigned char* const of_x = x + lane / 8 * kXPitch;
    Step even;
    Step odd;
    even.Load(of_w, of_x, 0);
#pragma unroll 2
    for (int i = 0; i < count; i += 8) {
      odd.Load(of_w, of_x, i + 4);
      AddStep(even);
      even.Load(of_w, of_x, i + 8);  // the last time what separates the rows, which is not used
      AddStep(odd);
    }
  }

  // Calls write(row, column, sum) for each.
  template <typename Write>
  __device__ __forceinline__ void Each(int lane, const Write& write) const {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) write(lane / 8 + 4 * r, lane % 8, sums[r]);
  }

 private:
  __device__ __forceinline__ void AddStep(const Step& step) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        sums[r] = fmaf(Unpack(step.x[r], j), Unpack(step.w, j), sums[r]);
      }
    }
  }

  float sums[kOwn] = {};
};

// w^T is the first tile of MultiplyTile(), 16 columns of y by 16 values of k, and x the second one,
// 16 values of k by 8 rows.
template <int kRows, int kXPitch>
struct SkinnySums<BFloat16, kRows, kXPitch> {
  static constexpr int kPitch = SkinnyPitch(sizeof(BFloat16));
  static constexpr int kTiles = kRows / 8;

  // 16 values of k; of the second half zeros if there are 8.
  struct Step {
    uint32_t w[4];
    uint32_t x[kTiles][2];

    __device__ __forceinline__ void Load(const unsigned char* of_w, const unsigned char* of_x,
                                         bool whole) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool wanted = half == 0 || whole;
        w[2 * half] = wanted ? Word(of_w + half * 16) : 0;
        w[2 * half + 1] = wanted ? Word(of_w + half * 16 + 8 * kPitch) : 0;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          x[t][half] = wanted ? Word(of_x + half * 16 + t * 8 * kXPitch) : 0;
        }
      }
    }
  };

  __device__ __forceinline__ void Add(const unsigned char* w, const unsigned char* x, int count,
                                      int lane) {
    const unsigned char* const of_w = w + lane / 4 * kPitch + lane % 4 * 4;
    const unsigned char* const of_x = x + lane / 4 * kXPitch + lane % 4 * 4;
    if (count == kSkinnyChunk) {  // all loads before the first product
      constexpr int kSteps = kSkinnyChunk / 16;
      Step steps[kSteps];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) steps[i].Load(of_w + i * 32, of_x + i * 32, true);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) AddStep(steps[i]);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < count; i += 16) {
      Step step;
      step.Load(of_w + i * 2, of_x + i * 2, i + 8 < count);
      AddStep(step);
    }
  }

  template <typename Write>
  __device__ __forceinline__ void Each(int lane, const Write& write) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        write(t * 8 + lane % 4 * 2 + i % 2, lane / 4 + i / 2 * 8, sums[t][i]);
      }
    }
  }

 private:
  static __device__ __forceinline__ uint32_t Word(const unsigned char* at) {
    return *reinterpret_cast<const uint32_t*>(at);
  }
  __device__ __forceinline__ void AddStep(const Step& step) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      MultiplyTile(sums[t], step.w[0], step.w[1], step.w[2], step.w[3], step.x[t][0], step.x[t][1]);
    }
  }

  float sums[kTiles][4] = {};
};

// Begins the copies of some rows of one matrix, chunk after chunk of k, as a whole warp. Places in
// the ring that no value is copied to keep what they had: they are of rows and columns that nobody
// reads.
template <typename T>
class SkinnyCopier {
 public:
  // Copies `rows` rows of k values from `from` on, to `to` in each stage.
  __device__ __forceinline__ SkinnyCopier(const T* from, int k, int rows, SharedAddress to,
                                          int stage_bytes, int lane)
      : from_(from + static_cast<int64_t>(lane / kVectors) * k + lane % kVectors * kVector),
        row_step_(static_cast<int64_t>(kRowStep) * k),
        left_(k - lane % kVectors * kVector),
        rows_(rows - lane / kVectors),
        to_(to + (lane / kVectors * kPitch + lane % kVectors * 16)),
        stage_bytes_(stage_bytes) {}

  // Begins the copies of the next chunk of k, and of none after the last one.
  __device__ __forceinline__ void BeginNext() {
    const T* from = from_;
    int to = stage_ * stage_bytes_;
#pragma unroll 4
    for (int row = 0; row < rows_; row += kRowStep) {
      BeginCopyIf<16>(left_ > 0, to_ + to, from);
      from += row_step_;
      to += kRowStep * kPitch;
    }
    from_ += kSkinnyChunk;
    left_ -= kSkinnyChunk;
    stage_ = stage_ + 1 == kSkinnyStages ? 0 : stage_ + 1;
  }

 private:
  static constexpr int kPitch = SkinnyPitch(sizeof(T));
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kVectors = kSkinnyChunk / kVector;  // of a row of a stage
  static constexpr int kRowStep = 32 / kVectors;

  const T* from_;  // the lane's first vector of the next chunk
  const int64_t row_step_;
  int left_;  // values of k from there on
  const int rows_;
  const SharedAddress to_;
  const int stage_bytes_;
  int stage_ = 0;
};

// Makes the rows of x of a product, as a whole block. `in_float32` has room for a row of each warp.
// With `writes`, memory gets what NormalizeRowsKernel writes.
template <typename T>
__device__ __forceinline__ void NormalizeRows(const NormalizeRowsArgs& args, int rows,
                                              unsigned char* x, float* in_float32, bool writes) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // The last warps, which have nothing else to do, get the rows that are left over.
#pragma unroll 1
  for (int row = kNormalizingWarps - 1 - warp; row < rows && row < args.header->num_tokens;
       row += kNormalizingWarps) {
    const int64_t begin = static_cast<int64_t>(row) * args.padded;
    float* const given = static_cast<float*>(args.x) + begin;
    T* const to = reinterpret_cast<T*>(x + row * NormalizedPitch(sizeof(T)));
    float* values;
    if constexpr (std::is_same_v<T, float>) {
      values = to;
    } else {
      values = in_float32 + warp * kMaxNormalizedWidth;
    }
    // A lane reads later what it writes here, and nothing else.
#pragma unroll 8
    for (int i = lane; i < args.padded; i += 32) {
      const bool sums = args.sum.a != nullptr;
      const float value = sums ? SumAt(args.sum, begin + i, i) : given[i];
      values[i] = value;
      if (sums && writes) given[i] = value;
    }
    float* const y = writes && args.y != nullptr ? args.y + begin : nullptr;
    BFloat16* const rounded = writes && args.rounded != nullptr ? args.rounded + begin : nullptr;
    NormalizeRow(values, 1, args.size, args.padded, args.weight, args.bias, args.epsilon,
                 [=](int i, float value) {
                   to[i] = FromFloat<T>(value);
                   if (y != nullptr) y[i] = value;
                   if (rounded != nullptr) rounded[i] = FromFloat<BFloat16>(value);
                 });
  }
}

// A block of `warps` warps that multiply, and one that copies. Args is SkinnyArgs or
// NormalizedProductArgs.
template <typename T, typename Y, int kRows, typename Args>
__global__ void __launch_bounds__(kNormalizingWarps * 32, 1)
    SkinnyKernel(const __grid_constant__ Args args, int warps) {
  constexpr bool kNormalizes = std::is_same_v<Args, NormalizedProductArgs>;
  constexpr int kColumns = SkinnyColumns(sizeof(T));
  constexpr int kPitch = SkinnyPitch(sizeof(T));
  const int threads = (warps + 1) * 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row_blocks = (args.rows + kRows - 1) / kRows;
  const int first_row = static_cast<int>(blockIdx.x) % row_blocks * kRows;
  const int first_column = static_cast<int>(blockIdx.x) / row_blocks * warps * kColumns;
  const int rows = args.rows - first_row < kRows ? args.rows - first_row : kRows;
  const int columns =
      args.n - first_column < warps * kColumns ? args.n - first_column : warps * kColumns;
  const int chunks = (args.k + kSkinnyChunk - 1) / kSkinnyChunk;
  const int stage_bytes = SkinnyStageBytes(sizeof(T), warps, kNormalizes ? 0 : kRows);
  // Whole rows of x, if they are made here, then the ring: of each stage rows of x, if they are
  // copied, and columns of w.
  unsigned char* const memory = DynamicShared();
  unsigned char* const ring = memory + (kNormalizes ? NormalizedBytes(sizeof(T), kRows) : 0);
  constexpr int kXOfStage = kNormalizes ? 0 : kRows * kPitch;
  const bool copies = warp == warps;

  SkinnyCopier<T> of_w(
      static_cast<const T*>(args.weights) + static_cast<int64_t>(first_column) * args.k, args.k,
      columns, SharedAddressOf(ring) + kXOfStage, stage_bytes, lane);
  if (copies) {
#pragma unroll 1
    for (int i = 0; i < kSkinnyStages - 1; ++i) {
      of_w.BeginNext();
      if (kNormalizes) CommitCopies();
    }
  }

  if constexpr (kNormalizes) {
    NormalizeRows<T>(args.norm, rows, memory,
                     reinterpret_cast<float*>(memory + kRows * NormalizedPitch(sizeof(T))),
                     blockIdx.x == 0);
    __syncthreads();
    if (warp > warps) return;
  }
  if (copies) {
    const auto copy_on = [&](const auto& begin_next) {
#pragma unroll 1
      for (int i = 0; i < chunks; ++i) {
        WaitForCopies<kSkinnyStages - 2>();
        RoleBarrier(threads);
        begin_next();
        CommitCopies();
      }
    };
    if constexpr (kNormalizes) {
      copy_on([&] { of_w.BeginNext(); });
    } else {
      SkinnyCopier<T> of_x(static_cast<const T*>(args.x) + static_cast<int64_t>(first_row) * args.k,
                           args.k, rows, SharedAddressOf(ring), stage_bytes, lane);
#pragma unroll 1
      for (int i = 0; i < kSkinnyStages - 1; ++i) {
        of_x.BeginNext();
        CommitCopies();
      }
      copy_on([&] {
        of_w.BeginNext();
        of_x.BeginNext();
      });
    }
    return;
  }

  SkinnySums<T, kRows, kNormalizes ? NormalizedPitch(sizeof(T)) : kPitch> sums;
  const unsigned char* stage = ring;
  const unsigned char* x = memory;
  const int own_w = kXOfStage + warp * kColumns * kPitch;
#pragma unroll 1
  for (int i = 0; i < chunks; ++i) {
    const int left = args.k - i * kSkinnyChunk;
    RoleBarrier(threads);
    sums.Add(stage + own_w, kNormalizes ? x : stage, left < kSkinnyChunk ? left : kSkinnyChunk,
             lane);
    stage = i % kSkinnyStages == kSkinnyStages - 1 ? ring : stage + stage_bytes;
    x += kSkinnyChunk * static_cast<int>(sizeof(T));
  }
  Y* const y = static_cast<Y*>(args.y);
  sums.Each(lane, [&](int row, int column_of_block, float sum) {
    const int at = warp * kColumns + column_of_block;
    if (row >= rows || at >= columns) return;
    const int column = first_column + at;
    y[static_cast<int64_t>(first_row + row) * args.n + column] = FromFloat<Y>(sum);
    if constexpr (kNormalizes) {
      if (!IsRow(args.append.axis, args.append.max_rows, row)) return;
      for (int i = 0; i < args.append.count; ++i) {
        const AppendedRows& added = args.append.fields[i];
        const int of_field = column - static_cast<int>(added.x - static_cast<const float*>(args.y));
        if (of_field >= 0 && of_field < args.append.width) {
          AppendValue(args.append, added, row, of_field, sum);
        }
      }
    }
  });
}

template <typename T, typename Y, typename Args, typename Use>
auto WithSkinnyRows(const Args& args, const Use& use) {
  if (args.rows <= 16) return use(SkinnyKernel<T, Y, 16, Args>, 16);
  // 64 rows of float32 would be more sums than a lane has registers for.
  constexpr int kMost = sizeof(T) == 4 || !std::is_same_v<Args, SkinnyArgs> ? 32 : 64;
  if (args.rows <= 32) return use(SkinnyKernel<T, Y, 32, Args>, 32);
  return use(SkinnyKernel<T, Y, kMost, Args>, kMost);
}
// Returns use(kernel, rows of a block) with the kernel for a product.
template <typename Args, typename Use>
auto WithSkinnyKernel(DataType dtype, DataType result_dtype, const Args& args, const Use& use) {
  if (dtype == DataType::kFloat32) return WithSkinnyRows<float, float>(args, use);
  if (result_dtype == DataType::kFloat32) return WithSkinnyRows<BFloat16, float>(args, use);
  return WithSkinnyRows<BFloat16, BFloat16>(args, use);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SKINNY_CUH_
