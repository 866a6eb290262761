// The recurrence of one SRU layer (stack_spec.h has the equations): all sequences of a ragged
// batch, both directions, every variant, in one launch.
//
// A thread owns kDims adjacent dimensions of one direction of one sequence and walks its steps.
// What a step reads (three planes of U and the highway term) is copied kScanDepth steps ahead into
// the thread's own ring in shared memory, since a load takes as long as several steps and a step
// depends on the one before. Not into registers: a thread waits for all of the loads that share a
// counter, the latest included; for asynchronous copies it can wait one by one. Blocks of
// kScanThreads threads keep every multiprocessor busy at small batches. State is float32; only the
// final one is written. The last layer pools on the way, so that h is never stored when only its
// pool is wanted.
//
// At small batches a multiprocessor's scheduler has one warp, and a step takes as long as its
// instructions. So what a scan writes and its activation are template parameters, and copies are
// committed and waited for in groups of kScanGroup steps. Multiplications and additions are never
// contracted (-fmad=false) except where fmaf says so, so that every instantiation gives the same
// bits.
//
// Bound by memory at large batches: a step of one dimension reads four values and writes one, 20
// bytes in float32 and 10 in bfloat16. At small batches bound by the instructions of a step, 88 to
// 121 static cycles on sm_90 with two dimensions a thread. Blocks: sequences x directions x hidden
// / (dimensions a thread x 64), rounded up per sequence. 32 sequences of 2 x 128 are 64 blocks,
// half of 132 multiprocessors; 264 blocks and more have four dimensions a thread.
#ifndef SRU_KERNELS_CUDA_KERNELS_SCAN_CUH_
#define SRU_KERNELS_CUDA_KERNELS_SCAN_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/running_pool.cuh"
#include "kernels/cuda/kernels/scan_shape.h"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// What one step reads.
template <typename T, int kDims>
struct ScanStep {
  Packed<T, kDims> planes[kScanPlanes];

  // Of dimension d: U0, U1, U2 (planes 0 to 2) or what the highway carries (3).
  __device__ __forceinline__ float Value(int plane, int d) const {
    return Unpack(planes[plane], d);
  }
};

// A thread's ring. kByToken: what a row holds depends on its token alone, and is in a table by
// token id (token_table.h). A row can be copied once its id is there, so the ids have a ring of
// their own, which runs kScanDepth steps ahead of the rows'.
//
// Places are those of the current group, 0 to kScanGroup - 1.
template <typename T, int kDims, bool kByToken>
class ScanRing {
 public:
  // Begins the copies of the first kScanDepth rows. `u` and `highway` as in ScanArgs, at the
  // thread's dimensions; `first` is the token of the first step, `sign` the way from one token to
  // the next.
  __device__ __forceinline__ ScanRing(const ScanArgs& args, const T* u, const T* highway,
                                      ptrdiff_t first, int sign, int length)
      : u_(u), highway_(highway), plane_(args.padded), left_(length) {
    unsigned char* const shared = DynamicShared();
    rows_ = shared + threadIdx.x * kBytes;
    row_address_ = SharedAddressOf(rows_);
    if constexpr (kByToken) {
      u_row_ = args.u_stride * static_cast<int>(sizeof(T));
      highway_row_ = args.highway_stride * static_cast<int>(sizeof(T));
      ids_ = shared + ScanRowBytes(kBytes) + threadIdx.x * kIdBytes;
      id_address_ = SharedAddressOf(ids_);
      next_id_ = args.token_ids + first;
      id_step_ = sign;
      ids_left_ = length;
      // All ids before the first row, so that they are waited for once. Copies, since of loads each
      // would be put where its id is used, and waited for there.
#pragma unroll
      for (int i = 0; i < kScanDepth; ++i) CopyNextId(i);
      ids_left_ -= kScanDepth;  // from here on they are those after the first kScanDepth
      CommitCopies();
      WaitForCopies<0>();
    } else {
      u_ += first * args.u_stride;
      highway_ += first * args.highway_stride;
      u_step_ = sign * args.u_stride;
      highway_step_ = sign * args.highway_stride;
      Keep(plane_);  // by token id it does not pay
    }
    // Not unrolled: what a short sequence waits for here is code.
#pragma unroll 1
    for (int group = 0; group < kScanGroups; ++group) {
      int32_t ids[kScanGroup];
#pragma unroll
      for (int i = 0; i < kScanGroup; ++i) ids[i] = ReadId(i);
#pragma unroll
      for (int i = 0; i < kScanGroup; ++i) CopyNext(i, ids[i]);
      EndGroup();
    }
  }

  // The step in a place that has been waited for; kScanGroup is the next group's first one.
  __device__ __forceinline__ ScanStep<T, kDims> Read(int place) const {
    const unsigned char* const group = rows_ + (place == kScanGroup ? NextGroup(group_) : group_);
    ScanStep<T, kDims> step;
#pragma unroll
    for (int p = 0; p < kScanPlanes; ++p) {
      step.planes[p] =
          Load<kDims>(reinterpret_cast<const T*>(group + Offset(place % kScanGroup, p)));
    }
    return step;
  }

  // The id of the row that is to be copied into a place that has been waited for, as in Read().
  __device__ __forceinline__ int32_t ReadId(int place) const {
    if constexpr (kByToken) {
      const unsigned char* const group =
          ids_ + (place == kScanGroup ? NextIdGroup(id_group_) : id_group_);
      return *reinterpret_cast<const int32_t*>(group + place % kScanGroup * kIdPlace);
    }
    return 0;
  }

  // Begins the next row's copy into a place whose step has been read, and the copy of the id for
  // the row after it there. Past the end there is nothing to copy. Each place in turn.
  __device__ __forceinline__ void CopyNext(int place, int32_t id) {
    const bool wanted = place < left_;
    const T* u = u_;
    const T* highway = highway_;
    if constexpr (kByToken) {
      u = RowOf(u, id, u_row_);
      highway = RowOf(highway, id, highway_row_);
    }
    const SharedAddress to = row_address_ + group_;
#pragma unroll
    for (int p = 0; p < kScanPlanes - 1; ++p) {
      BeginCopyIf<kBytes>(wanted, to + Offset(place, p), u + p * plane_);
    }
    BeginCopyIf<kBytes>(wanted, to + Offset(place, kScanPlanes - 1), highway);
    if constexpr (kByToken) {
      CopyNextId(place);
    } else {
      u_ += u_step_;
      highway_ += highway_step_;
    }
  }

  // Makes a group, possibly an empty one, of the copies begun, and goes on to the next places.
  __device__ __forceinline__ void EndGroup() {
    CommitCopies();
    left_ -= kScanGroup;
    group_ = NextGroup(group_);
    if constexpr (kByToken) {
      ids_left_ -= kScanGroup;
      id_group_ = NextIdGroup(id_group_);
    }
  }

 private:
  static constexpr int kBytes = kDims * static_cast<int>(sizeof(T));
  static constexpr int kIdBytes = sizeof(int32_t);
  static constexpr unsigned kIdPlace = kScanThreads * kIdBytes;
  static constexpr unsigned kGroupBytes = kScanGroup * kScanPlanes * kScanThreads * kBytes;

  static __device__ __forceinline__ int Offset(int place, int plane) {
    return (place * kScanPlanes + plane) * kScanThreads * kBytes;
  }
  // One multiplication that adds; past the end of the sequence the id means nothing.
  static __device__ __forceinline__ const T* RowOf(const T* rows, int32_t id, int row_bytes) {
    return reinterpret_cast<const T*>(reinterpret_cast<uintptr_t>(rows) +
                                      static_cast<uintptr_t>(int64_t{id} * row_bytes));
  }
  static __device__ __forceinline__ unsigned NextGroup(unsigned group) {
    return (group + kGroupBytes) % (kScanGroups * kGroupBytes);
  }

  static __device__ __forceinline__ unsigned NextIdGroup(unsigned group) {
    return (group + kScanGroup * kIdPlace) % (kScanDepth * kIdPlace);
  }

  // `place` may be any of the ring's: counted from the current group.
  __device__ __forceinline__ void CopyNextId(int place) {
    BeginCopyIf<kIdBytes>(place < ids_left_, id_address_ + (id_group_ + place * kIdPlace),
                          next_id_);
    next_id_ += id_step_;
  }

  unsigned char* rows_;
  unsigned char* ids_;
  SharedAddress row_address_;  // of the same
  SharedAddress id_address_;
  unsigned group_ = 0;  // bytes from rows_ to the current group
  unsigned id_group_ = 0;
  const T* u_;  // of the next row, or of token id 0
  const T* highway_;
  ptrdiff_t u_step_;  // from row to row, with rows in order
  ptrdiff_t highway_step_;
  int u_row_;  // in bytes, with rows by token id
  int highway_row_;
  int plane_;  // from one gate's values to the next one's
  int left_;   // rows that are to be copied, from the current group on
  const int32_t* next_id_;
  int id_step_;
  int ids_left_;
};

// What the compiler knows of a scan: what it writes, and its activation.
template <ScanOutput kOutput, Activation kActivation>
struct KnownScan {
  static __device__ __forceinline__ bool StoresRows(bool /*wanted*/) {
    return kOutput == ScanOutput::kRows;
  }
  static __device__ __forceinline__ bool StoresVectors(bool wanted) {
    return kOutput == ScanOutput::kVectors && wanted;
  }
  static __device__ __forceinline__ bool Pools(bool wanted) {
    return kOutput != ScanOutput::kRows && wanted;
  }
  static constexpr bool kMayPool = kOutput != ScanOutput::kRows;
  static __device__ __forceinline__ Activation Function(Activation /*wanted*/) {
    return kActivation;
  }
};

// Nothing: a fused layer's scan has instructions to spare.
struct AnyScan {
  static __device__ __forceinline__ bool StoresRows(bool wanted) { return wanted; }
  static __device__ __forceinline__ bool StoresVectors(bool wanted) { return wanted; }
  static __device__ __forceinline__ bool Pools(bool wanted) { return wanted; }
  static constexpr bool kMayPool = true;
  static __device__ __forceinline__ Activation Function(Activation wanted) { return wanted; }
};

// What a thread carries from step to step, and what it writes on the way: kDims adjacent dimensions
// of one direction of one sequence.
template <typename T, int kDims, typename Known = AnyScan>
struct ScanThread {
  float v_f[kDims], v_r[kDims], b_f[kDims], b_r[kDims];
  float c[kDims], h[kDims], pool[kDims];
  float highway_scale;
  Activation activation;
  PoolingStep pooling;  // in the direction's order of time
  int column;           // of an output row
  bool takes_max;
  bool stores_h;
  bool stores_tokens;
  bool stores_first;  // the pooled vector is the h of the step that comes next
  float* pooled_row;  // null = not wanted
  T* h_row;
  float* token_row;
  ptrdiff_t h_step;

  // What depends on the layer alone, of dimensions j and on of `direction`.
  __device__ __forceinline__ void LoadConstants(const ScanArgs& args, int direction, int j) {
    const float* constants = args.constants + 4 * direction * args.padded + j;
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      v_f[d] = constants[d];
      v_r[d] = constants[args.padded + d];
      b_f[d] = constants[2 * args.padded + d];
      b_r[d] = constants[3 * args.padded + d];
    }
  }

  // After LoadConstants(), with the same dimensions; the entry has tokens.
  __device__ __forceinline__ void Begin(const ScanArgs& args, const SequenceEntry& entry,
                                        int direction, int j) {
    const int width = args.directions * args.padded;
    column = direction * args.padded + j;
    highway_scale = args.highway_scale;
    activation = Known::Function(args.activation);
    pooling = PoolingStep::kNothing;
    pooled_row = nullptr;
    if (Known::Pools(args.pooled != nullptr && entry.pool_row >= 0)) {
      pooling = PoolingInTime(RuleOf(entry.pooling).step, direction == 1);
      pooled_row = args.pooled + static_cast<ptrdiff_t>(entry.pool_row) * width + column;
    }
    stores_first = pooling == PoolingStep::kFirst;
    // Rows are walked backward by the second direction.
    const ptrdiff_t first_step = direction == 0 ? 0 : entry.length - 1;
    takes_max = TakesMax(pooling);
    stores_h = Known::StoresRows(args.h != nullptr);
    stores_tokens = Known::StoresVectors(args.token_vectors != nullptr && entry.token_row >= 0);
    // These advance even if nothing is stored (cheaper than a branch), so they must point at valid
    // memory.
    float* const elsewhere = const_cast<float*>(args.constants);
    h_row = static_cast<T*>(stores_h ? args.h : elsewhere) + (entry.begin + first_step) * width +
            column;
    token_row = (stores_tokens ? args.token_vectors : elsewhere) +
                (entry.token_row + first_step) * width + column;
    h_step = direction == 0 ? width : -width;
    const float* initial = args.initial_state;
    if (initial != nullptr) initial += entry.index * args.state_stride + column;
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      c[d] = initial != nullptr ? initial[d] : 0.0f;
      h[d] = 0.0f;
      pool[d] = PoolStart(takes_max);
    }
  }

  // One step; `Step` has Value(), as ScanStep. `may_be_first`: of the sequence.
  template <typename Step>
  __device__ __forceinline__ void Run(const Step& step, bool may_be_first) {
    float r[kDims];
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const float u0 = step.Value(0, d);
      const float leak = ScanMath<T>::OneMinusGate(fmaf(v_f[d], c[d], step.Value(1, d) + b_f[d]));
      r[d] = ScanMath<T>::Gate(fmaf(v_r[d], c[d], step.Value(2, d) + b_r[d]));
      // From 1 - f, since an f near 1 has lost what leaks: over hundreds of steps the state would
      // drift. Not c + leak * (u0 - c): of two values of very different size that loses the smaller
      // one, even where the gate chooses it.
      c[d] = fmaf(1.0f - leak, c[d], leak * u0);
      h[d] = c[d];
    }
    Activate<T>(Known::Function(activation), h);
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      const float highway = highway_scale * step.Value(3, d);
      h[d] = fmaf(r[d], h[d], (1.0f - r[d]) * highway);
    }
    if (stores_h) StoreValues<kDims>(h_row, h);
    if (stores_tokens) StoreValues<kDims>(token_row, h);
    h_row += h_step;
    token_row += h_step;
    if constexpr (!Known::kMayPool) return;
    if (may_be_first) {
      if (stores_first) StoreValues<kDims>(pooled_row, h);
      stores_first = false;
    }
#pragma unroll
    for (int d = 0; d < kDims; ++d) pool[d] = PoolStep(takes_max, pool[d], h[d]);
  }

  // After the last step: the final state and the pooled vector.
  __device__ __forceinline__ void End(const ScanArgs& args, const SequenceEntry& entry) const {
    if (args.final_state != nullptr && entry.state_row >= 0) {
      float* state = args.final_state + entry.state_row * args.state_stride + column;
#pragma unroll
      for (int d = 0; d < kDims; ++d) state[d] = c[d];
    }
    if (pooling == PoolingStep::kNothing || pooling == PoolingStep::kFirst) return;
    const PoolingRule rule = {pooling, RuleOf(entry.pooling).divides};
    const float scale = 1.0f / static_cast<float>(entry.length);
#pragma unroll
    for (int d = 0; d < kDims; ++d) pooled_row[d] = PoolEnd(rule, pool[d], h[d], scale);
  }
};

// Blocks that a multiprocessor's registers must be enough for, 128 registers a thread: without a
// number ptxas saves registers for more blocks than shared memory holds, and its instructions wait
// for each other's registers (1.3 times the static cycles).
inline constexpr int kScanMinBlocks = 8;

template <typename T, int kDims, bool kByToken, ScanOutput kOutput, Activation kActivation>
__global__ void __launch_bounds__(kScanThreads, kScanMinBlocks)
    ScanKernel(const __grid_constant__ ScanArgs args) {
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
  const int first = direction == 0 ? entry.begin : entry.begin + length - 1;
  ScanRing<T, kDims, kByToken> ring(
      args, static_cast<const T*>(args.u) + direction * args.matrices * args.padded + j,
      static_cast<const T*>(args.highway) + direction * args.highway_direction_stride + j, first,
      direction == 0 ? 1 : -1, length);
  ScanThread<T, kDims, KnownScan<kOutput, kActivation>> thread;
  thread.LoadConstants(args, direction, j);
  thread.Begin(args, entry, direction, j);

  WaitForCopies<kScanGroups - 1>();
  ScanStep<T, kDims> step = ring.Read(0);
  int32_t id = ring.ReadId(0);
  int left = length;
  for (; left >= kScanGroup; left -= kScanGroup) {
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      // A step ahead, so that reading takes no time of this one. Past the end it is of no use.
      if (i == kScanGroup - 1) WaitForCopies<kScanGroups - 2>();
      const ScanStep<T, kDims> next = ring.Read(i + 1);
      const int32_t next_id = ring.ReadId(i + 1);
      // Before the step, among whose instructions these then find room.
      ring.CopyNext(i, id);
      thread.Run(step, /*may_be_first=*/i == 0);
      step = next;
      id = next_id;
    }
    ring.EndGroup();
  }
  // Fewer than a group: all of them have been waited for, and nothing is left to be copied.
#pragma unroll 1
  for (int i = 0; i < left; ++i) {
    const ScanStep<T, kDims> next = ring.Read(i + 1);
    thread.Run(step, /*may_be_first=*/true);
    step = next;
  }
  thread.End(args, entry);
}

// Calls `use` with the kernel for a scan.
template <typename T, int kDims, bool kByToken, ScanOutput kOutput, typename Use>
auto WithScanActivation(Activation activation, const Use& use) {
  switch (activation) {
    case Activation::kIdentity:
      break;
    case Activation::kTanh:
      return use(ScanKernel<T, kDims, kByToken, kOutput, Activation::kTanh>);
  }
  return use(ScanKernel<T, kDims, kByToken, kOutput, Activation::kIdentity>);
}
template <typename T, int kDims, bool kByToken, typename Use>
auto WithScanOutput(ScanOutput output, Activation activation, const Use& use) {
  switch (output) {
    case ScanOutput::kRows:
      break;
    case ScanOutput::kPooled:
      return WithScanActivation<T, kDims, kByToken, ScanOutput::kPooled>(activation, use);
    case ScanOutput::kVectors:
      return WithScanActivation<T, kDims, kByToken, ScanOutput::kVectors>(activation, use);
  }
  return WithScanActivation<T, kDims, kByToken, ScanOutput::kRows>(activation, use);
}
template <typename T, int kDims, typename Use>
auto WithScanKernel(bool by_token, ScanOutput output, Activation activation, const Use& use) {
  return by_token ? WithScanOutput<T, kDims, true>(output, activation, use)
                  : WithScanOutput<T, kDims, false>(output, activation, use);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SCAN_CUH_
