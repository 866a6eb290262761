// One SRU layer in one kernel: the products on tensor cores, and their scan (scan.cuh) beside them,
// in bfloat16. U stays in shared memory, in float32, and is never rounded or stored.
//
// A block owns one direction of a few slices of 16 dimensions, for two sequences at a time. Its
// warps have roles: for each slice one per gate, which multiplies, and one that scans.
//
//   x      copied into a ring of stages in shared memory, 16 steps of both sequences a stage
//   W      in the multiplying warps' registers, for as long as the block lives
//   U      16 steps, in two halves: while chunk i is multiplied into one, chunk i - 1 is scanned
//          out of the other. One barrier per chunk stands between.
//
// A tile's rows are 16 steps of one sequence, and the order of a row's sum depends on k alone: what
// a sequence gets does not depend on what runs beside it.
#ifndef SRU_KERNELS_CUDA_FUSED_CUH_
#define SRU_KERNELS_CUDA_FUSED_CUH_

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/fused_shape.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace sru::kernels::cuda {

// The place of a thread's block and warp.
struct FusedPlace {
  int direction;
  int first_dim;       // of the block
  int group;           // of kFusedSequences sequences, the first one
  int groups_at_once;  // from one of the block's groups to its next one
  int slices;
  int threads;
  bool scans;  // else multiplies
  int slice;   // the warp's
  int gate;    // of a warp that multiplies
};

__device__ __forceinline__ FusedPlace FindFusedPlace(const FusedArgs& args, int slices,
                                                     int blocks) {
  FusedPlace place;
  const int parts = FusedParts(args.scan, slices);
  const int parts_per_direction = parts / args.scan.directions;
  const int part = static_cast<int>(blockIdx.x) % parts;
  place.direction = part / parts_per_direction;
  place.first_dim = part % parts_per_direction * slices * kFusedDims;
  place.group = static_cast<int>(blockIdx.x) / parts;
  place.groups_at_once = blocks / parts;
  place.slices = slices;
  place.threads = FusedThreads(args.scan.gates, slices);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  place.scans = warp >= args.scan.gates * slices;
  place.slice = warp % slices;
  place.gate = warp / slices;
  return place;
}

// Where the sequences of a group stand. The first one is the longest one; all may be spare.
struct FusedGroup {
  int begins[kFusedSequences];
  int lengths[kFusedSequences];
  int chunks;

  __device__ __forceinline__ FusedGroup(const ScanArgs& scan, int group) {
#pragma unroll
    for (int i = 0; i < kFusedSequences; ++i) {
      const int at = group * kFusedSequences + i;
      begins[i] = at < scan.num_sequences ? scan.sequences[at].begin : 0;
      lengths[i] = at < scan.num_sequences ? scan.sequences[at].length : 0;
    }
    chunks = (lengths[0] + kFusedRows - 1) / kFusedRows;
  }
};

// Begins the copies of a chunk's rows of x, and makes a group of them; an empty one past the end.
template <int kInput>
__device__ __forceinline__ void BeginChunk(const FusedArgs& args, const FusedPlace& place,
                                           const FusedGroup& group, int chunk,
                                           SharedAddress stages) {
  constexpr int kVectors = kInput / 8;  // of 16 bytes in a row
  constexpr int kTotal = kFusedSequences * kFusedRows * kVectors;
  const int copying = args.scan.gates * place.slices * 32;
  if (chunk < group.chunks) {
    const SharedAddress stage = stages + chunk % FusedStages(kInput) * FusedStageBytes(kInput);
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x); at < kTotal; at += copying) {
      const int column = at % kVectors * 8;
      const int row = at / kVectors;
      const bool first = row < kFusedRows;
      const int begin = first ? group.begins[0] : group.begins[1];
      const int length = first ? group.lengths[0] : group.lengths[1];
      const int step = chunk * kFusedRows + row % kFusedRows;
      if (column >= args.k || step >= length) continue;
      const int t = place.direction == 0 ? step : length - 1 - step;
      BeginCopy<16>(
          stage + row * FusedRowBytes(kInput) + column * 2,
          static_cast<const BFloat16*>(args.x) + static_cast<int64_t>(begin + t) * args.k + column);
    }
  }
  CommitCopies();
}

// A warp that makes one gate's U of 16 dimensions.
//
// A tile's product takes the columns of x in any order, as long as W comes in the same one: a
// lane's four pairs of two successive tiles are 16 adjacent bytes of a row.
template <int kInput>
struct FusedMultiplier {
  static constexpr int kBlocks = kInput / 32;  // two tiles each
  static constexpr int kTiles = kFusedDims / 8;

  Packed<BFloat16, 8> w[kTiles][kBlocks];

  __device__ __forceinline__ void LoadWeights(const FusedArgs& args, const FusedPlace& place) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int dim = place.first_dim + place.slice * kFusedDims + tile * 8 + lane / 4;
      const int n = (place.direction * args.scan.gates + place.gate) * args.scan.padded + dim;
      const BFloat16* row =
          static_cast<const BFloat16*>(args.weights) + static_cast<int64_t>(n) * args.k;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const int column = b * 32 + lane % 4 * 8;
        if (dim < args.scan.padded && column < args.k) {
          w[tile][b] = LoadReadOnly<8>(row + column);
        } else {
          w[tile][b] = Packed<BFloat16, 8>{};
        }
      }
    }
  }

  // U of a chunk: `u` is where the warp's columns of the first sequence stand.
  __device__ __forceinline__ void Multiply(const unsigned char* stage, float* u, int u_row,
                                           int u_sequence) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = lane / 4;
    float sums[kFusedSequences][kTiles][4] = {};
    const unsigned char* x = stage + row * FusedRowBytes(kInput) + lane % 4 * 16;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int s = 0; s < kFusedSequences; ++s) {
        const unsigned char* at = x + s * kFusedRows * FusedRowBytes(kInput) + b * 64;
        const auto upper = Load<8>(reinterpret_cast<const BFloat16*>(at));
        const auto lower =
            Load<8>(reinterpret_cast<const BFloat16*>(at + 8 * FusedRowBytes(kInput)));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            MultiplyTile(sums[s][tile], upper.words[2 * half], lower.words[2 * half],
                         upper.words[2 * half + 1], lower.words[2 * half + 1],
                         w[tile][b].words[2 * half], w[tile][b].words[2 * half + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kFusedSequences; ++s) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float* to = u + s * u_sequence + row * u_row + tile * 8 + lane % 4 * 2;
        Store<2>(to, Pack<float, 2>::From(&sums[s][tile][0]));
        Store<2>(to + 8 * u_row, Pack<float, 2>::From(&sums[s][tile][2]));
      }
    }
  }
};

template <int kInput>
__device__ __forceinline__ void RunMultiplier(const FusedArgs& args, const FusedPlace& place,
                                              unsigned char* stages, float* u) {
  constexpr int kStages = FusedStages(kInput);
  const SharedAddress address = SharedAddressOf(stages);
  FusedMultiplier<kInput> multiplier;
  multiplier.LoadWeights(args, place);
  const int u_row = FusedURow(args.scan.gates, place.slices);
  const int u_sequence = FusedUSequence(args.scan.gates, place.slices);
  float* columns = u + (place.gate * place.slices + place.slice) * kFusedDims;
  for (int g = place.group; g < FusedGroups(args.scan); g += place.groups_at_once) {
    const FusedGroup group(args.scan, g);
    // Nobody reads the stages any more: the last barrier of the group before came after that.
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) BeginChunk<kInput>(args, place, group, i, address);
    for (int i = 0; i < group.chunks; ++i) {
      WaitForCopies<kStages - 2>();
      RoleBarrier(place.threads);
      BeginChunk<kInput>(args, place, group, i + kStages - 1, address);
      multiplier.Multiply(stages + i % kStages * FusedStageBytes(kInput),
                          columns + i % 2 * kFusedSequences * u_sequence, u_row, u_sequence);
    }
    if (group.chunks > 0) RoleBarrier(place.threads);
  }
}

// What the highway reads of x, for one scan warp: 16 steps of 16 dimensions of both sequences,
// copied by its lanes a chunk ahead. With four gates the highway is the last one's U.
struct FusedSkip {
  BFloat16* chunks;  // two of [sequence][step][dimension]
  SharedAddress address;

  // Begins the copies of a chunk of which `left` steps are there; `at` is dimension 0 of its first
  // step in the lane's sequence, `step` the way to the next one.
  __device__ __forceinline__ void Begin(int chunk, const BFloat16* at, ptrdiff_t step, int left,
                                        int dims) const {
    constexpr int kVectors = kFusedDims / 8;
    const int lane = static_cast<int>(threadIdx.x) % kFusedLanes;
    const SharedAddress to =
        address + Offset(chunk, static_cast<int>(threadIdx.x) % 32 / kFusedLanes) * kValueBytes;
#pragma unroll
    for (int i = 0; i < kFusedRows * kVectors / kFusedLanes; ++i) {
      const int vector = i * kFusedLanes + lane;
      const int s = vector / kVectors;
      const int dim = vector % kVectors * 8;
      if (s < left && dim < dims) {
        BeginCopy<16>(to + (s * kFusedDims + dim) * kValueBytes, at + s * step + dim);
      }
    }
    CommitCopies();
  }

  __device__ __forceinline__ const BFloat16* At(int chunk, int sequence) const {
    return chunks + Offset(chunk, sequence);
  }

 private:
  static constexpr int kValueBytes = sizeof(BFloat16);

  static __device__ __forceinline__ int Offset(int chunk, int sequence) {
    return (chunk % 2 * kFusedSequences + sequence) * kFusedRows * kFusedDims;
  }
};

// One step of one dimension, as ScanThread::Run() reads it.
struct FusedStep {
  float values[4];

  __device__ __forceinline__ float Value(int plane, int /*d*/) const { return values[plane]; }

  // `u` is U0's; the other gates' follow at a distance of `plane`. A null `skip` is 0.
  __device__ __forceinline__ void Load(const float* u, int plane, bool four, const BFloat16* skip) {
#pragma unroll
    for (int p = 0; p < 3; ++p) values[p] = u[p * plane];
    values[3] = four ? u[3 * plane] : skip != nullptr ? ToFloat(*skip) : 0.0f;
  }
};

// A warp that scans 16 dimensions of both sequences.
__device__ __forceinline__ void RunScanner(const FusedArgs& args, const FusedPlace& place,
                                           const float* u, BFloat16* skips) {
  const ScanArgs& scan = args.scan;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int sequence = lane / kFusedLanes;
  const int dim = lane % kFusedLanes;
  const int slice_dim = place.first_dim + place.slice * kFusedDims;
  const int dims = scan.padded - slice_dim;  // of the slice; may be more than it has, or none
  const int u_row = FusedURow(scan.gates, place.slices);
  const int u_sequence = FusedUSequence(scan.gates, place.slices);
  const int plane = place.slices * kFusedDims;
  const bool four = scan.gates == 4;
  const float* columns = u + sequence * u_sequence + place.slice * kFusedDims + dim;
  skips += place.slice * kFusedSkipValues;
  const FusedSkip skip{skips, SharedAddressOf(skips)};
  const ptrdiff_t skip_step = place.direction == 0 ? scan.skip_stride : -scan.skip_stride;
  for (int g = place.group; g < FusedGroups(scan); g += place.groups_at_once) {
    const FusedGroup group(scan, g);
    if (group.chunks == 0) return;  // so are all that follow
    SequenceEntry entry = {};
    if (g * kFusedSequences + sequence < scan.num_sequences) {
      entry = scan.sequences[g * kFusedSequences + sequence];
    }
    const bool works = entry.length > 0 && dim < dims;
    ScanThread<BFloat16, 1> thread = {};
    if (works) thread.Begin(scan, entry, place.direction, slice_dim + dim);
    // Without a highway out of x nothing is left to be copied, wherever that is.
    const int skip_length = scan.skip == nullptr ? 0 : entry.length;
    const BFloat16* skip_at =
        static_cast<const BFloat16*>(scan.skip == nullptr ? args.x : scan.skip) +
        static_cast<ptrdiff_t>(entry.begin + (place.direction == 0 ? 0 : entry.length - 1)) *
            scan.skip_stride +
        place.direction * scan.skip_direction_stride + slice_dim;
    skip.Begin(0, skip_at, skip_step, skip_length, dims);
    RoleBarrier(place.threads);
    for (int i = 0; i < group.chunks; ++i) {
      RoleBarrier(place.threads);  // U of chunk i is there
      const int steps = entry.length - i * kFusedRows;
      WaitForCopies<0>();
      SyncWarp();  // the other lanes' copies too, and all have read the chunk before
      skip_at += kFusedRows * skip_step;
      skip.Begin(i + 1, skip_at, skip_step, skip_length - (i + 1) * kFusedRows, dims);
      if (!works) continue;
      const float* row = columns + i % 2 * kFusedSequences * u_sequence;
      const BFloat16* skip_row = scan.skip == nullptr ? nullptr : skip.At(i, sequence) + dim;
      FusedStep step;
      step.Load(row, plane, four, skip_row);
#pragma unroll
      for (int s = 0; s < kFusedRows; ++s) {
        // Rows past the end of the sequence are there, with values that nobody uses.
        FusedStep after = step;
        if (s + 1 < kFusedRows) {
          after.Load(row + (s + 1) * u_row, plane, four,
                     skip_row == nullptr ? nullptr : skip_row + (s + 1) * kFusedDims);
        }
        if (s < steps) thread.Run(step);
        step = after;
      }
    }
    if (works) thread.End(scan, entry);
  }
}

template <int kInput>
__global__ void __launch_bounds__(FusedMaxThreads(kInput), 1)
    FusedKernel(const FusedArgs args, int slices, int blocks) {
  const FusedPlace place = FindFusedPlace(args, slices, blocks);
  unsigned char* stages = DynamicShared();
  float* u = reinterpret_cast<float*>(stages + FusedStages(kInput) * FusedStageBytes(kInput));
  auto* skips = reinterpret_cast<BFloat16*>(u + FusedUValues(args.scan.gates, slices));
  // What stands past the end of x's rows meets weights of zero, so it must be finite.
  for (int row = static_cast<int>(threadIdx.x);
       row < FusedStages(kInput) * kFusedSequences * kFusedRows; row += place.threads) {
    for (int column = args.k; column < kInput; column += 8) {
      Store<8>(reinterpret_cast<BFloat16*>(stages + row * FusedRowBytes(kInput)) + column,
               Packed<BFloat16, 8>{});
    }
  }
  if (place.scans) {
    RunScanner(args, place, u, skips);
  } else {
    RunMultiplier<kInput>(args, place, stages, u);
  }
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_FUSED_CUH_
