// One SRU layer in one kernel: the products on tensor cores, and their scan (scan.cuh) beside them,
// in bfloat16. U stays in shared memory, in float32, and is never rounded or stored.
//
// A block owns one direction of a few slices of 16 dimensions, for two sequences at a time. Its
// warps have roles: for each slice one per matrix, which multiplies, and one that scans.
//
//   x      copied into a ring of stages in shared memory, 16 steps of both sequences a stage
//   W      in the multiplying warps' registers, for as long as the block lives
//   U      16 steps, in two halves: while chunk i is multiplied into one, chunk i - 1 is scanned
//          out of the other. One barrier per chunk separates the two.
//
// A block goes from one group of sequences to its next one, and chunks are numbered through all of
// them: stages and halves go on turning, so that the next group's first chunks are copied and
// multiplied while the last ones of the group before are scanned. Where a group's sequences are is
// read a whole group ahead.
//
// A tile's columns are 8 steps of one sequence, and the order of a column's sum depends on k alone:
// what a sequence gets does not depend on what runs beside it.
//
// Bound by the tensor cores for long batches: 2 x input x matrices operations for each result, and
// its x is read once for every 32 dimensions of a direction. At small batches bound by the scan's
// steps. Bytes a result: 2 written, and 2 x input x parts / (directions x hidden) read, which the
// second-level cache serves. Blocks: groups of 2 sequences x directions x slices, at most as many
// as run at a time. 32 sequences of 2 x 128 are 16 x 16 blocks, two a multiprocessor of 132.
#ifndef SRU_KERNELS_CUDA_KERNELS_FUSED_CUH_
#define SRU_KERNELS_CUDA_KERNELS_FUSED_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/fused_shape.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/scan.cuh"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/cuda/kernels/tensor_core.cuh"

namespace sru::kernels::cuda {

// The place of a thread's block and warp.
struct FusedPlace {
  int direction;
  int first_dim;       // of the block
  int group;           // of kFusedSequences sequences, the first one
  int groups_at_once;  // from one of the block's groups to its next one
  int slices;
  int warp;
  int lane;
  int slice;   // the warp's
  int matrix;  // that the warp multiplies, or kMatrices: it scans
};

template <int kMatrices>
__device__ __forceinline__ FusedPlace FindFusedPlace(const ScanArgs& scan, int slices, int blocks) {
  FusedPlace place;
  const int parts = FusedParts(scan, slices);
  const int parts_per_direction = parts / scan.directions;
  const int part = static_cast<int>(blockIdx.x) % parts;
  place.direction = part / parts_per_direction;
  place.first_dim = part % parts_per_direction * slices * kFusedDims;
  place.group = static_cast<int>(blockIdx.x) / parts;
  place.groups_at_once = blocks / parts;
  place.slices = slices;
  place.warp = static_cast<int>(threadIdx.x) / 32;
  place.lane = static_cast<int>(threadIdx.x) % 32;
  place.slice = place.warp % slices;
  place.matrix = place.warp / slices;
  return place;
}

// Sequence i of a group in the list of them, or the last one if there are not so many: to be read
// without a branch, in which the value would be waited for. FusedLength() says what it counts for.
__device__ __forceinline__ int FusedEntry(const ScanArgs& scan, int group, int i) {
  const int at = group * kFusedSequences + i;
  return at < scan.num_sequences ? at : scan.num_sequences - 1;
}
__device__ __forceinline__ int FusedLength(const ScanArgs& scan, int group, int i, int length) {
  return group * kFusedSequences + i < scan.num_sequences ? length : 0;
}
__device__ __forceinline__ int FusedChunksOf(int length) {
  return (length + kFusedRows - 1) / kFusedRows;
}

// Where the sequences of a group stand. The first one is the longest one; all may be spare.
struct FusedGroup {
  int begins[kFusedSequences];
  int lengths[kFusedSequences];
};

// The chunks of a block, through all of its groups.
class FusedChunks {
 public:
  __device__ __forceinline__ FusedChunks(const ScanArgs& scan, const FusedPlace& place)
      : scan_(scan), groups_at_once_(place.groups_at_once), at_(place.group) {
    Read();
  }

  // Of the current chunk. All groups after an empty one are empty.
  __device__ __forceinline__ FusedGroup group() const {
    FusedGroup group;
#pragma unroll
    for (int i = 0; i < kFusedSequences; ++i) {
      // Beside the length, and so in the cache by now: not worth a register.
      group.begins[i] = scan_.sequences[FusedEntry(scan_, at_, i)].begin;
      group.lengths[i] = FusedLength(scan_, at_, i, lengths_[i]);
    }
    return group;
  }
  __device__ __forceinline__ int chunk() const { return chunk_; }  // of the group

  // `group` is group().
  __device__ __forceinline__ void Next(const FusedGroup& group) {
    ++chunk_;
    const bool ends = chunk_ == FusedChunksOf(group.lengths[0]);
    chunk_ = ends ? 0 : chunk_;
    at_ += ends ? groups_at_once_ : 0;
    Read();
  }

 private:
  // Also of a group that is known: without a branch, what is read is not waited for until it is
  // used, a chunk later.
  __device__ __forceinline__ void Read() {
#pragma unroll
    for (int i = 0; i < kFusedSequences; ++i) {
      lengths_[i] = scan_.sequences[FusedEntry(scan_, at_, i)].length;
    }
  }

  const ScanArgs& scan_;
  const int groups_at_once_;
  int at_;  // the group
  int chunk_ = 0;
  int lengths_[kFusedSequences];  // as they are in memory
};

// What a multiplying warp copies of x: whole rows, 16 bytes per lane at a
// time.
template <int kInput, int kMatrices>
class FusedCopier {
 public:
  __device__ __forceinline__ FusedCopier(const FusedArgs& args, const FusedPlace& place,
                                         unsigned char* stages)
      : k_(args.k), backward_(place.direction != 0), row_step_(kMatrices * place.slices * kRows) {
    column_ = place.lane % kLanes * 8;
    first_row_ = place.warp * kRows + place.lane / kLanes;
    x_ = static_cast<const BFloat16*>(args.x) + column_;
    to_ = SharedAddressOf(stages) + column_ * static_cast<int>(sizeof(BFloat16));
  }

  // Begins the copies of a chunk into a stage.
  __device__ __forceinline__ void Begin(const FusedGroup& group, int chunk, int at_stage) const {
    const SharedAddress stage = to_ + at_stage * FusedStageBytes(kInput);
#pragma unroll 2
    for (int row = first_row_; row < kFusedSequences * kFusedRows; row += row_step_) {
      const bool first = row < kFusedRows;
      const int begin = first ? group.begins[0] : group.begins[1];
      const int length = first ? group.lengths[0] : group.lengths[1];
      const int step = chunk * kFusedRows + row % kFusedRows;
      const int t = backward_ ? length - 1 - step : step;
      const BFloat16* from = x_ + static_cast<int64_t>(begin + t) * k_;
      if (step < length && column_ < k_) BeginCopy<16>(stage + row * FusedRowBytes(kInput), from);
    }
  }

 private:
  static constexpr int kLanes = kInput / 8;  // of a row
  static constexpr int kRows = 32 / kLanes;  // of a warp at a time

  const int k_;
  const bool backward_;
  const int row_step_;
  int column_;  // the lane's first one
  int first_row_;
  const BFloat16* x_;
  SharedAddress to_;
};

// A warp that makes one plane of U for 16 dimensions: the rows of W are the rows of a tile, 8 steps
// its columns.
//
// A tile's product takes the values of x in any order, as long as W comes in the same one: a lane's
// pairs of two successive tiles are 16 adjacent bytes of a row.
template <int kInput>
struct FusedMultiplier {
  static constexpr int kBlocks = kInput / 32;  // two tiles each
  static constexpr int kTiles = kFusedRows / 8;

  uint32_t w[kBlocks][2][4];

  __device__ __forceinline__ void LoadWeights(const FusedArgs& args, const FusedPlace& place) {
    const ScanArgs& scan = args.scan;
    const int dim = place.first_dim + place.slice * kFusedDims + place.lane / 4;
    const int n = (place.direction * scan.matrices + place.matrix) * scan.padded + dim;
    const int column = place.lane % 4 * 8;
    const BFloat16* row =
        static_cast<const BFloat16*>(args.weights) + static_cast<int64_t>(n) * args.k + column;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const bool inside = column + b * 32 < args.k;
      Packed<BFloat16, 8> upper = {};
      Packed<BFloat16, 8> lower = {};
      if (inside && dim < scan.padded) upper = LoadReadOnly<8>(row + b * 32);
      if (inside && dim + 8 < scan.padded) lower = LoadReadOnly<8>(row + 8 * args.k + b * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        w[b][half][0] = upper.words[2 * half];
        w[b][half][1] = lower.words[2 * half];
        w[b][half][2] = upper.words[2 * half + 1];
        w[b][half][3] = lower.words[2 * half + 1];
      }
    }
  }

  // U of a chunk: `u` is where the warp's dimensions of the first sequence stand.
  __device__ __forceinline__ void Multiply(const unsigned char* stage, float* u, int u_sequence,
                                           int lane) const {
    float sums[kFusedSequences][kTiles][4] = {};
    const unsigned char* x = stage + lane / 4 * FusedRowBytes(kInput) + lane % 4 * 16;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int s = 0; s < kFusedSequences; ++s) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const int row = s * kFusedRows + tile * 8;
          const auto steps =
              Load<8>(reinterpret_cast<const BFloat16*>(x + row * FusedRowBytes(kInput) + b * 64));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t* a = w[b][half];
            MultiplyTile(sums[s][tile], a[0], a[1], a[2], a[3], steps.words[2 * half],
                         steps.words[2 * half + 1]);
          }
        }
      }
    }
    float* to = u + lane / 4 * kFusedURow + lane % 4 * 2;
#pragma unroll
    for (int s = 0; s < kFusedSequences; ++s) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        Store<2>(to + s * u_sequence + tile * 8, Pack<float, 2>::From(&sums[s][tile][0]));
        Store<2>(to + s * u_sequence + tile * 8 + 8 * kFusedURow,
                 Pack<float, 2>::From(&sums[s][tile][2]));
      }
    }
  }
};

template <int kInput, int kMatrices>
__device__ __forceinline__ void RunMultiplier(const FusedArgs& args, const FusedPlace& place,
                                              unsigned char* stages, float* u) {
  const int threads = FusedThreads(kMatrices, place.slices);
  const FusedCopier<kInput, kMatrices> copier(args, place, stages);
  const int u_sequence = FusedUSequence(kMatrices, place.slices);
  float* dims =
      u + place.matrix * FusedUMatrix(place.slices) + place.slice * kFusedDims * kFusedURow;
  FusedChunks chunks(args.scan, place);
  FusedMultiplier<kInput> multiplier;
  multiplier.LoadWeights(args, place);
  if (chunks.group().lengths[0] == 0) return;
  int copied = 0;  // chunks
  // Makes a group of the next chunk's copies; an empty one past the end.
  const auto copy_next = [&](int stage) {
    const FusedGroup group = chunks.group();
    if (group.lengths[0] > 0) {
      copier.Begin(group, chunks.chunk(), stage);
      ++copied;
    }
    CommitCopies();
    chunks.Next(group);
  };
#pragma unroll
  for (int i = 0; i < kFusedStages - 1; ++i) copy_next(i);
  // Copies are ahead of products, so that all chunks have been counted when the last one is
  // reached.
  for (int i = 0; i < copied; ++i) {
    WaitForCopies<kFusedStages - 2>();
    RoleBarrier(threads);
    copy_next((i + kFusedStages - 1) % kFusedStages);
    multiplier.Multiply(stages + i % kFusedStages * FusedStageBytes(kInput),
                        dims + i % 2 * kFusedSequences * u_sequence, u_sequence, place.lane);
  }
  RoleBarrier(threads);
}

// What the highway reads of x, for one scan warp: 16 steps of 16 dimensions of both sequences,
// copied by its lanes a chunk ahead. It is not read from the stages: those may hold what layer norm
// or a projection made of x, and are refilled before the scan gets there. With four matrices the
// highway is the last one's U.
struct FusedHighway {
  const BFloat16* chunks;  // two of [sequence][step][dimension]
  SharedAddress address;

  // Begins the copies of a chunk, numbered through all groups, of which `left` steps are there;
  // `at` is dimension 0 of its first step in the lane's sequence, `step` the way to the next one.
  __device__ __forceinline__ void Begin(int chunk, const BFloat16* at, ptrdiff_t step, int left,
                                        int dims, int lane) const {
    constexpr int kVectors = kFusedDims / 8;
    const SharedAddress to = address + Offset(chunk, lane / kFusedLanes) * kValueBytes;
#pragma unroll
    for (int i = 0; i < kFusedRows * kVectors / kFusedLanes; ++i) {
      const int vector = i * kFusedLanes + lane % kFusedLanes;
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
    return (chunk % 2 * kFusedSequences + sequence) * kFusedHighwaySequence;
  }
};

// Four steps of one dimension, as they are in memory.
template <int kMatrices>
struct FusedSteps {
  Packed<float, 4> u[kMatrices];
  BFloat16 highway[4];

  // `u_at` is the first one's U0, `u_matrix` the distance to the other planes.
  __device__ __forceinline__ void Load(const float* u_at, int u_matrix,
                                       const BFloat16* highway_at) {
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix)
      u[matrix] = cuda::Load<4>(u_at + matrix * u_matrix);
    if constexpr (kMatrices == 3) {
#pragma unroll
      for (int i = 0; i < 4; ++i) highway[i] = highway_at[i * kFusedDims];
    }
  }
};

// One of them, as ScanThread::Run() reads it.
template <int kMatrices>
struct FusedStep {
  const FusedSteps<kMatrices>& steps;
  int i;

  __device__ __forceinline__ float Value(int plane, int /*d*/) const {
    if constexpr (kMatrices == 3) {
      if (plane == 3) return ToFloat(steps.highway[i]);
    }
    return Unpack(steps.u[plane], i);
  }
};

// Scans a chunk. kFull: all 16 steps, else the first `count`. Those past the end of the sequence
// are in memory, with values that nobody uses.
template <int kMatrices, bool kFull>
__device__ __forceinline__ void ScanChunk(const float* u, int u_matrix, const BFloat16* highway,
                                          int count, ScanThread<BFloat16, 1>& thread) {
  FusedSteps<kMatrices> steps;
  steps.Load(u, u_matrix, highway);
#pragma unroll
  for (int begin = 0; begin < kFusedRows; begin += 4) {
    FusedSteps<kMatrices> after = steps;
    if (begin + 4 < kFusedRows) {
      after.Load(u + begin + 4, u_matrix, highway + (begin + 4) * kFusedDims);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (kFull || begin + i < count) {
        thread.Run(FusedStep<kMatrices>{steps, i}, /*may_be_first=*/begin + i == 0);
      }
    }
    steps = after;
  }
}

// Of a group, what a lane of a scan warp must know before the group's turn.
struct FusedTurn {
  int lengths[kFusedSequences];
  SequenceEntry entry;  // of the lane's sequence, but for its length

  // Lengths are still to be passed to FusedLength().
  static __device__ __forceinline__ FusedTurn Read(const ScanArgs& scan, int group, int sequence) {
    FusedTurn read;
    read.entry = scan.sequences[FusedEntry(scan, group, sequence)];
#pragma unroll
    for (int i = 0; i < kFusedSequences; ++i) {
      read.lengths[i] = scan.sequences[FusedEntry(scan, group, i)].length;
    }
    return read;
  }
  __device__ __forceinline__ void CheckLengths(const ScanArgs& scan, int group) {
#pragma unroll
    for (int i = 0; i < kFusedSequences; ++i) {
      lengths[i] = FusedLength(scan, group, i, lengths[i]);
    }
  }
};

// A warp that scans 16 dimensions of both sequences.
template <int kMatrices>
__device__ __forceinline__ void RunScanner(const FusedArgs& args, const FusedPlace& place,
                                           const float* u, BFloat16* highways) {
  const ScanArgs& scan = args.scan;
  const int threads = FusedThreads(kMatrices, place.slices);
  const int sequence = place.lane / kFusedLanes;
  const int dim = place.lane % kFusedLanes;
  const int slice_dim = place.first_dim + place.slice * kFusedDims;
  const int dims = scan.padded - slice_dim;  // of the slice; may be more than it has, or none
  const int u_matrix = FusedUMatrix(place.slices);
  const int u_sequence = FusedUSequence(kMatrices, place.slices);
  u += sequence * u_sequence + (place.slice * kFusedDims + dim) * kFusedURow;
  highways += place.slice * kFusedHighwayValues;
  const FusedHighway highway{highways, SharedAddressOf(highways)};
  const BFloat16* const x =
      static_cast<const BFloat16*>(scan.highway == nullptr ? args.x : scan.highway) +
      place.direction * scan.highway_direction_stride + slice_dim;
  const ptrdiff_t highway_step = place.direction == 0 ? scan.highway_stride : -scan.highway_stride;
  FusedTurn turn = FusedTurn::Read(scan, place.group, sequence);
  turn.CheckLengths(scan, place.group);
  if (turn.lengths[0] == 0) return;
  // Where the highway term of the lane's sequence begins, and of how many steps there is one.
  const BFloat16* highway_at;
  int highway_left;
  const auto begin_highway = [&] {
    const int length = sequence == 0 ? turn.lengths[0] : turn.lengths[1];
    highway_at =
        x + static_cast<ptrdiff_t>(turn.entry.begin + (place.direction == 0 ? 0 : length - 1)) *
                scan.highway_stride;
    highway_left = scan.highway == nullptr ? 0 : length;
  };
  ScanThread<BFloat16, 1> thread = {};
  if (dim < dims) thread.LoadConstants(scan, place.direction, slice_dim + dim);
  begin_highway();
  highway.Begin(0, highway_at, highway_step, highway_left, dims, place.lane);
  RoleBarrier(threads);
  int chunk = 0;  // through all groups
  for (int g = place.group; turn.lengths[0] > 0;) {
    SequenceEntry entry = turn.entry;
    entry.length = sequence == 0 ? turn.lengths[0] : turn.lengths[1];
    const bool works = entry.length > 0 && dim < dims;
    if (works) thread.Begin(scan, entry, place.direction, slice_dim + dim);
    g += place.groups_at_once;
    const int lengths[] = {turn.lengths[0], turn.lengths[1]};
    // Long before it is needed.
    FusedTurn next = FusedTurn::Read(scan, g, sequence);
    const int chunks = FusedChunksOf(turn.lengths[0]);
    for (int i = 0; i < chunks; ++i, ++chunk) {
      RoleBarrier(threads);  // the chunk's U is there
      WaitForCopies<0>();
      SyncWarp();  // the other lanes' copies too, and all have read the chunk before
      // What is scanned next: this group's next chunk, or the next group's first one.
      if (i + 1 < chunks) {
        highway_at += kFusedRows * highway_step;
        highway_left -= kFusedRows;
      } else {
        turn = next;
        turn.CheckLengths(scan, g);
        begin_highway();
      }
      highway.Begin(chunk + 1, highway_at, highway_step, highway_left, dims, place.lane);
      const float* chunk_u = u + chunk % 2 * kFusedSequences * u_sequence;
      const BFloat16* chunk_highway = highway.At(chunk, sequence) + dim;
      // The same for the whole warp: a sequence that has ended takes no part.
      bool full = true;
#pragma unroll
      for (int other = 0; other < kFusedSequences; ++other) {
        const int left = lengths[other] - i * kFusedRows;
        full = full && (left >= kFusedRows || left <= 0);
      }
      const int count = works ? entry.length - i * kFusedRows : 0;
      if (count <= 0) continue;
      if (full) {
        ScanChunk<kMatrices, true>(chunk_u, u_matrix, chunk_highway, count, thread);
      } else {
        ScanChunk<kMatrices, false>(chunk_u, u_matrix, chunk_highway, count, thread);
      }
    }
    if (works) thread.End(scan, entry);
  }
}

template <int kInput, int kMatrices>
__global__ void __launch_bounds__(FusedThreads(kMatrices, kFusedMaxSlices),
                                  FusedMinBlocks(kMatrices))
    FusedKernel(const FusedArgs args, int slices, int blocks) {
  const FusedPlace place = FindFusedPlace<kMatrices>(args.scan, slices, blocks);
  const int threads = FusedThreads(kMatrices, slices);
  unsigned char* stages = DynamicShared();
  float* u = reinterpret_cast<float*>(stages + kFusedStages * FusedStageBytes(kInput));
  auto* highways = reinterpret_cast<BFloat16*>(u + FusedUValues(kMatrices, slices));
  // What is past the end of x's rows meets weights of zero, and a missing highway a scale of
  // zero; so both must be finite.
  for (int row = static_cast<int>(threadIdx.x); row < kFusedStages * kFusedSequences * kFusedRows;
       row += threads) {
    for (int column = args.k; column < kInput; column += 8) {
      Store<8>(reinterpret_cast<BFloat16*>(stages + row * FusedRowBytes(kInput)) + column,
               Packed<BFloat16, 8>{});
    }
  }
  if (args.scan.highway == nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < slices * kFusedHighwayValues; i += threads) {
      highways[i] = BFloat16{};
    }
  }
  if (place.matrix == kMatrices) {
    RunScanner<kMatrices>(args, place, u, highways);
  } else {
    RunMultiplier<kInput, kMatrices>(args, place, stages, u);
  }
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_FUSED_CUH_
