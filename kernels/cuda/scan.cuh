// The recurrence of one SRU layer (stack_spec.h has the equations): all sequences of a ragged
// batch, both directions, every variant, in one launch.
//
// A thread owns kDims adjacent dimensions of one direction of one sequence and walks its steps.
// What a step reads (three planes of U and the highway term) is loaded kScanDepth steps ahead into
// a ring of registers, since a load takes as long as several steps and a step depends on the one
// before. Blocks of kScanThreads threads keep every multiprocessor busy at small batches. State is
// float32; only the final one is written. The last layer pools on the way, so that h is never
// stored when only its pool is wanted.
//
// The variants are branches that a whole block takes alike, not template parameters: they cost an
// instruction or two a step, and a fraction of the code. Multiplications and additions are never
// contracted (-fmad=false) but where fmaf says so, so that every instantiation gives the same bits.
#ifndef SRU_KERNELS_CUDA_SCAN_CUH_
#define SRU_KERNELS_CUDA_SCAN_CUH_

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/scan_shape.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// What one step reads.
template <typename T, int kDims>
struct ScanStep {
  Packed<T, kDims> u0, u1, u2, skip;

  // Of dimension d: U0, U1, U2 (planes 0 to 2) or what the highway carries (3).
  __device__ __forceinline__ float Value(int plane, int d) const {
    return Unpack(plane == 0 ? u0 : plane == 1 ? u1 : plane == 2 ? u2 : skip, d);
  }
};

// Where the next loads stand. kByToken: what a row holds depends on its token alone, and stands in
// a table by token id (token_table.h).
template <typename T, int kDims, bool kByToken>
struct ScanInput;

// Rows in the order of the batch's tokens.
template <typename T, int kDims>
struct ScanInput<T, kDims, false> {
  const T* u;
  const T* skip;
  ptrdiff_t u_step;
  ptrdiff_t skip_step;
  int plane;  // from one gate's values to the next one's

  __device__ __forceinline__ void Fill(ScanStep<T, kDims>* ring, int length) {
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) {
      if (i < length) LoadNext(ring, i);
    }
  }

  // Into a place of the ring whose step is done.
  __device__ __forceinline__ void LoadNext(ScanStep<T, kDims>* ring, int place) {
    ScanStep<T, kDims>* const step = &ring[place];
    step->u0 = LoadReadOnly<kDims>(u);
    step->u1 = LoadReadOnly<kDims>(u + plane);
    step->u2 = LoadReadOnly<kDims>(u + 2 * plane);
    step->skip = LoadReadOnly<kDims>(skip);
    u += u_step;
    skip += skip_step;
  }
};

// Rows by token id. A row can be loaded once its id is there, so the ids have a ring of their own,
// which runs kScanDepth steps ahead of the rows'.
template <typename T, int kDims>
struct ScanInput<T, kDims, true> {
  const T* u;  // of token id 0, as `skip`
  const T* skip;
  int u_row_bytes;
  int skip_row_bytes;
  int plane;
  const int32_t* next_id;
  ptrdiff_t id_step;
  int ids_left;             // to be loaded
  int32_t ids[kScanDepth];  // of the rows that the ring's places hold next

  __device__ __forceinline__ void Fill(ScanStep<T, kDims>* ring, int length) {
    ids_left = length;
    // All ids before the first row, so that they are waited for once. For the same reason rows are
    // loaded without asking whether there are so many: those past the end are row 0.
    int32_t first_ids[kScanDepth] = {};
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) LoadId(&first_ids[i]);
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) LoadId(&ids[i]);
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) LoadRow(first_ids[i], &ring[i]);
  }

  __device__ __forceinline__ void LoadNext(ScanStep<T, kDims>* ring, int place) {
    LoadRow(ids[place], &ring[place]);
    LoadId(&ids[place]);
  }

  __device__ __forceinline__ void LoadRow(int64_t id, ScanStep<T, kDims>* step) {
    const T* const u_row = At(u, id * u_row_bytes);
    step->u0 = LoadReadOnly<kDims>(u_row);
    step->u1 = LoadReadOnly<kDims>(u_row + plane);
    step->u2 = LoadReadOnly<kDims>(u_row + 2 * plane);
    step->skip = LoadReadOnly<kDims>(At(skip, id * skip_row_bytes));
  }

  static __device__ __forceinline__ const T* At(const T* from, int64_t bytes) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + bytes);
  }

  // None past the sequence's end, which may be the end of the memory.
  __device__ __forceinline__ void LoadId(int32_t* id) {
    if (ids_left > 0) *id = static_cast<int32_t>(LoadReadOnly<1>(next_id).words[0]);
    next_id += id_step;
    --ids_left;
  }
};

// What a thread carries from step to step, and what it writes on the way: kDims adjacent dimensions
// of one direction of one sequence.
template <typename T, int kDims>
struct ScanThread {
  float v_f[kDims], v_r[kDims], b_f[kDims], b_r[kDims];
  float c[kDims], h[kDims], pool[kDims];
  float skip_scale;
  bool tanh;
  int pooling;
  int column;        // of an output row
  T* h_row;          // null = not stored
  float* token_row;  // null = not wanted
  ptrdiff_t h_step;

  // Dimensions j and on of `direction`; the entry has tokens.
  __device__ __forceinline__ void Begin(const ScanArgs& args, const SequenceEntry& entry,
                                        int direction, int j) {
    const int width = args.directions * args.padded;
    column = direction * args.padded + j;
    skip_scale = args.skip_scale;
    tanh = args.tanh;
    pooling = args.pooled != nullptr && entry.pool_row >= 0 ? entry.pooling : 0;
    // Rows are walked backward by the second direction.
    const ptrdiff_t first_step = direction == 0 ? 0 : entry.length - 1;
    h_row = args.h == nullptr
                ? nullptr
                : static_cast<T*>(args.h) + (entry.begin + first_step) * width + column;
    token_row = args.token_vectors == nullptr || entry.token_row < 0
                    ? nullptr
                    : args.token_vectors + (entry.token_row + first_step) * width + column;
    h_step = direction == 0 ? width : -width;
    const float* constants = args.constants + 4 * direction * args.padded + j;
    const float* initial = args.initial_state;
    if (initial != nullptr) initial += entry.index * args.state_stride + column;
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      v_f[d] = constants[d];
      v_r[d] = constants[args.padded + d];
      b_f[d] = constants[2 * args.padded + d];
      b_r[d] = constants[3 * args.padded + d];
      c[d] = initial != nullptr ? initial[d] : 0.0f;
      h[d] = 0.0f;
      pool[d] = pooling == static_cast<int>(Pooling::kMax) ? -HUGE_VALF : 0.0f;
    }
  }

  // One step; `Step` has Value(), as ScanStep.
  template <typename Step>
  __device__ __forceinline__ void Run(const Step& step) {
    float r[kDims];
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const float u0 = step.Value(0, d);
      const float f = ScanMath<T>::Gate(fmaf(v_f[d], c[d], step.Value(1, d) + b_f[d]));
      r[d] = ScanMath<T>::Gate(fmaf(v_r[d], c[d], step.Value(2, d) + b_r[d]));
      // Not u0 + f * (c - u0): of two values of very different size that loses the smaller one,
      // even where the gate chooses it.
      c[d] = fmaf(f, c[d], (1.0f - f) * u0);
      h[d] = c[d];
    }
    if (tanh) {
#pragma unroll
      for (int d = 0; d < kDims; ++d) h[d] = ScanMath<T>::Tanh(h[d]);
    }
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const float highway = skip_scale * step.Value(3, d);
      h[d] = fmaf(r[d], h[d], (1.0f - r[d]) * highway);
    }
    if (h_row != nullptr) {
      StoreValues<kDims>(h_row, h);
      h_row += h_step;
    }
    if (token_row != nullptr) {
      StoreValues<kDims>(token_row, h);
      token_row += h_step;
    }
    if (pooling == static_cast<int>(Pooling::kMax)) {
#pragma unroll
      for (int d = 0; d < kDims; ++d) pool[d] = fmaxf(pool[d], h[d]);
    } else if (pooling == static_cast<int>(Pooling::kMean)) {
#pragma unroll
      for (int d = 0; d < kDims; ++d) pool[d] += h[d];
    }
  }

  // After the last step: the final state and the pooled vector.
  __device__ __forceinline__ void End(const ScanArgs& args, const SequenceEntry& entry) const {
    if (args.final_state != nullptr && entry.state_row >= 0) {
      float* state = args.final_state + entry.state_row * args.state_stride + column;
#pragma unroll
      for (int d = 0; d < kDims; ++d) state[d] = c[d];
    }
    if (pooling == 0) return;
    const int width = args.directions * args.padded;
    float* pooled = args.pooled + static_cast<ptrdiff_t>(entry.pool_row) * width + column;
    const float scale = 1.0f / static_cast<float>(entry.length);
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      pooled[d] = pooling == static_cast<int>(Pooling::kMax)    ? pool[d]
                  : pooling == static_cast<int>(Pooling::kMean) ? pool[d] * scale
                                                                : h[d];
    }
  }
};

// A place of the ring is loaded again as soon as its step is done, straight into its registers.
template <typename T, int kDims, bool kByToken>
__device__ __forceinline__ void RunSteps(int length, ScanStep<T, kDims>* ring,
                                         ScanInput<T, kDims, kByToken>& input,
                                         ScanThread<T, kDims>& thread) {
  int base = 0;
  for (; base + 2 * kScanDepth <= length; base += kScanDepth) {
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) {
      thread.Run(ring[i]);
      input.LoadNext(ring, i);
    }
  }
  // Left at the end and not run through: each step then follows the round's first one, which has
  // waited for the whole ring. A step that could be the first to wait would also wait for what the
  // steps before it have just begun to load.
  for (;; base += kScanDepth) {
#pragma unroll
    for (int i = 0; i < kScanDepth; ++i) {
      if (base + i == length) return;
      thread.Run(ring[i]);
      if (base + i + kScanDepth < length) input.LoadNext(ring, i);
    }
  }
}

template <typename T, int kDims, bool kByToken>
__global__ void __launch_bounds__(kScanThreads, 1) ScanKernel(const ScanArgs args) {
  const int groups_per_direction = args.padded / kDims;
  const int groups = args.directions * groups_per_direction;
  const int blocks_per_sequence = (groups + kScanThreads - 1) / kScanThreads;
  const int slot = static_cast<int>(blockIdx.x) / blocks_per_sequence;
  const int part = static_cast<int>(blockIdx.x) % blocks_per_sequence;
  const int group = part * kScanThreads + static_cast<int>(threadIdx.x);
  const SequenceEntry entry = args.sequences[slot];
  const int length = entry.length;
  if (group >= groups || length == 0) return;
  const int direction = group >= groups_per_direction ? 1 : 0;
  const int j = (group - direction * groups_per_direction) * kDims;

  // Rows are walked backward by the second direction.
  const ptrdiff_t first_step = direction == 0 ? 0 : length - 1;
  const ptrdiff_t first = entry.begin + first_step;
  const ptrdiff_t sign = direction == 0 ? 1 : -1;
  // Before the rows, so that both are waited for at once: a thread cannot wait for one of its loads
  // without the ones before it, and this needs the rest of `entry`.
  ScanThread<T, kDims> thread;
  thread.Begin(args, entry, direction, j);

  ScanInput<T, kDims, kByToken> input;
  input.u = static_cast<const T*>(args.u);
  input.skip = static_cast<const T*>(args.skip);
  if constexpr (kByToken) {
    input.u_row_bytes = args.u_stride * static_cast<int>(sizeof(T));
    input.skip_row_bytes = args.skip_stride * static_cast<int>(sizeof(T));
    input.next_id = args.token_ids + first;
    input.id_step = sign;
  } else {
    input.u += first * args.u_stride;
    input.skip += first * args.skip_stride;
    input.u_step = sign * args.u_stride;
    input.skip_step = sign * args.skip_stride;
  }
  input.u += direction * args.gates * args.padded + j;
  input.skip += direction * args.skip_direction_stride + j;
  input.plane = args.padded;
  ScanStep<T, kDims> ring[kScanDepth];
  input.Fill(ring, length);
  RunSteps(length, ring, input, thread);

  thread.End(args, entry);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_SCAN_CUH_
