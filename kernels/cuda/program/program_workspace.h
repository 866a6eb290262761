// Programs on the CUDA backend: compiled once, run with one recorded graph per bucket of batches.
// And the memory of one worker for a program: a stream, rows for every value, staging memory for
// what a batch brings, recorded graphs. All of it is allocated when it is made, once on the device
// and once on the host; serving adds recorded graphs, which are bounded, and room for the pages of
// growing fields, which doubles when it is used up. Not thread-safe.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_WORKSPACE_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/graph_cache.h"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/program/program_pack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/cuda/stack/stack_pass.h"
#include "kernels/program_executable.h"

namespace sru::kernels::cuda {

// Most device memory that the logits of a Predict take.
inline constexpr size_t kMaxLogitBytes = size_t{64} << 20;
// A batch's candidates of up to this size are written to the host's memory by the kernel. More of
// them are copied: each is a write of its own on the bus.
inline constexpr size_t kMaxMappedCandidateBytes = size_t{16} << 10;

// What a recorded graph of a program depends on. Graphs are recorded of each part of the program
// (PackedProgram::parts) by itself: sentences that a translator encodes and hypotheses that go on
// in the same batch take as many graphs as there are buckets of the ones and of the others, and not
// a graph for each pair. In a part of several axes only the one with the most rows has eight row
// buckets per doubling; the others, whose spare rows cost little beside it, have powers of two:
// passages and questions with up to 32,768 tokens of each have 72 by 12 pairs of row counts, of
// which steady traffic uses a dozen. A cache keeps kMaxGraphs graphs at most, and what comes once
// is not recorded at all.
struct ProgramBucket {
  int part = 0;
  uint64_t users = 0;     // of the part, of BatchUsers(): outputs that are wanted, axes with slots
  std::vector<int> rows;  // [axis]: one of the axis' row buckets; 0 of other parts
  std::vector<int> sequences;  // [axis]
  std::vector<int> predicted;  // [operation]: rows that a Predict answers, else 0

  // Of a bucket of the whole program.
  ProgramBucket OfPart(const PackedProgram& packed, int number) const;
  // Whether a batch has nothing for the part to do.
  bool is_empty() const;

  bool has_slots(AxisId axis) const { return (users & ProgramShape::StateBit(axis)) != 0; }
  // Whether an output of this type of an operation is wanted.
  bool wants(const Program& program, ValueId operation, OutputType type) const;
  bool operator<(const ProgramBucket& o) const {
    return std::tie(part, users, rows, sequences, predicted) <
           std::tie(o.part, o.users, o.rows, o.sequences, o.predicted);
  }
};

// Where what a batch brings to a part of the program is in the part's staging memory, in bytes from
// its beginning. The same on the host and on the device, and the same for every batch of a bucket,
// except that the pages, which come last, are as many as they are. One copy brings all of it.
struct ProgramLayout {
  ProgramLayout(const PackedProgram& packed, const ProgramBucket& bucket);

  struct Axis {
    size_t header = 0;        // AxisHeader
    size_t offsets = 0;       // int32_t [sequences + 1]
    size_t row_sequence = 0;  // int32_t [rows], where operations are on the axis
    size_t entries = 0;       // SequenceEntry [sequences], where the axis has a stack
  };
  struct Predict {
    size_t header = 0;  // PredictHeader
    size_t rows = 0;    // int32_t, as those that follow
    size_t targets = 0;
    size_t counts = 0;
  };
  struct Field {
    size_t in = 0;      // pointers; of a growing field int32_t: the rows before,
    size_t out = 0;     // and the first page
    size_t copied = 0;  // pointers to shared pages, of a growing field that the axis writes
  };

  std::vector<Axis> axes;
  std::vector<size_t> inputs;
  std::vector<Predict> predicts;  // [operation]
  // [operation]: int64_t [sequences], where each one's weights begin, of an Attend whose are
  // wanted.
  std::vector<size_t> attentions;
  std::vector<Field> fields;  // [PackedProgram::field_uses], of axes with slots
  size_t pages = 0;           // float* [pages]
};

// What a program has on one device.
struct ProgramOnDevice {
  std::shared_ptr<Gpu> gpu;                          // alone on a device that failed before
  std::unique_ptr<DeviceStack> weights;              // PackedProgram::tensors
  std::vector<std::unique_ptr<ProductPlans>> plans;  // [group]
  std::vector<StackOnDevice> stacks;

  size_t bytes() const {
    size_t bytes = weights == nullptr ? 0 : weights->bytes();
    for (const StackOnDevice& stack : stacks) bytes += stack.bytes();
    return bytes;
  }
};

class CudaProgramWorkspace : public ProgramWorkspace {
 private:
  const std::shared_ptr<Gpu> gpu_;  // outlives all that follows
  DeviceBuffer device_memory_;      // of the arrays below
  PinnedBuffer host_memory_;

 public:
  // Staging memory of a part of the program.
  struct Staging {
    ArrayView input;
    ArrayView host_input;
    size_t bytes = 0;  // of the largest batch, without pages
    // Of the arrays once there are more pages than the first ones had room for.
    DeviceBuffer grown;
    PinnedBuffer host_grown;
  };
  std::vector<Staging> staging;  // [part]

  // kResourceExhausted when the device's budget does not hold it.
  static Status Create(const PackedProgram& packed, const ProgramOnDevice& device,
                       const ProgramLimits& limits,
                       std::unique_ptr<CudaProgramWorkspace>* workspace);
  ~CudaProgramWorkspace() override;

  const ProgramLimits& limits() const override { return limits_; }
  size_t bytes() const override { return bytes_; }

  Gpu& gpu() const { return *gpu_; }
  // The smallest bucket that holds this many, 0 for 0. `coarse`: of the powers of two.
  int RowBucket(AxisId axis, int rows, bool coarse) const;
  int SequenceBucketOf(AxisId axis, int sequences) const;

  // How the product of an operation is computed for this many rows.
  const ProductChoice& choice(const PackedOperation& operation, int rows) const {
    return Choice(group_choices_[operation.group], operation.product, rows);
  }
  // Of a stack's product.
  const ProductChoice& choice(int stack, const PackedProduct& product, int rows) const {
    return Choice(stack_choices_[stack], product, rows);
  }
  // The most rows that a Predict multiplies at a time.
  int predict_chunk(int group) const { return predict_chunks_[group]; }

  // Rows of a value. A value whose buffer another one has taken over must not be read any more.
  float* value(ValueId id) const {
    return values_[value_buffer_[id]].as<float>() + value_column_[id];
  }

  // The bfloat16 rows of PackedOperation::rounded_users, as far apart.
  void* rounded(ValueId id) const {
    return values_[value_buffer_[id]].as<char>() + value_rounded_[id];
  }

  // The rows of a stack's state, which its scans replace.
  float* state(AxisId axis, const PackedOperation& stack) const {
    return states[axis].as<float>() + int64_t{stack.state_begin} * max_sequences_[axis];
  }

  // Room for this many pages in a part's staging memory; what is recorded is dropped if that moves
  // it.
  Status ReservePages(int part, const ProgramLayout& layout, size_t pages);

  // Scratch of one operation.
  StackScratch scratch;
  ArrayView token_rows;           // a stack's output before its padding goes
  std::vector<ArrayView> states;  // [axis]: those of its stacks
  ArrayView predicted;            // what a Predict multiplies
  ArrayView logits;
  ArrayView unadjusted;  // of a Predict's logits, those that are adjusted

  // Results of a Predict, in the order of the rows that are asked for. A value for each row, and
  // few candidates, go straight to the host's memory: a copy would take longer to begin.
  struct Prediction {
    ArrayView candidates;
    ArrayView host_log_prob, host_candidates, host_picked;
  };
  std::vector<Prediction> predictions;  // [operation]; empty of others
  // The weights of an Attend.
  struct Attention {
    ArrayView weights, host_weights;
  };
  std::vector<Attention> attentions;  // [operation]; empty where no output has them
  std::vector<ArrayView> outputs;     // [output]: rows, or nothing

  GpuStream stream;
  BasicGraphCache<ProgramBucket> graphs;

 private:
  // Choices of a set of shapes for a list of row counts.
  struct Choices {
    std::vector<int> row_counts;  // the last one has none of its own
    std::vector<std::vector<ProductChoice>> of_shapes;
  };

  CudaProgramWorkspace(const PackedProgram& packed, std::shared_ptr<Gpu> gpu,
                       const ProgramLimits& limits);

  static const ProductChoice& Choice(const Choices& choices, const PackedProduct& product,
                                     int rows);
  Status ChooseProducts(const PackedProgram& packed, const ProgramOnDevice& device);
  ProgramBucket LargestBucket(const PackedProgram& packed) const;

  const ProgramLimits limits_;
  std::vector<std::vector<int>> row_buckets_;  // [axis], as from TokenBuckets() or InputBuckets()
  std::vector<int> max_sequences_;             // [axis]
  std::vector<int> predict_chunks_;            // [group]
  std::vector<Choices> group_choices_;         // [group]
  std::vector<Choices> stack_choices_;         // [stack]
  std::vector<ArrayView> values_;
  std::vector<int> value_buffer_;      // [operation]: index into values_
  std::vector<int> value_column_;      // [operation]: in the rows there
  std::vector<size_t> value_rounded_;  // [operation]: bytes to the rounded rows there
  size_t bytes_ = 0;
};

// As Backend::Compile(), for a data type that the kernels have.
Status CompileProgram(const Program& program, const CompileOptions& options,
                      const PackOptions& pack, const std::vector<std::shared_ptr<Gpu>>& gpus,
                      std::unique_ptr<ProgramExecutable>* executable);

// Puts the operations of a part of the program for one bucket on the workspace's stream: what runs
// between the copy of a batch to the device and the copies of its results back. Nothing of it
// depends on the batch but on its bucket, so it may be recorded. Results are left on the device:
// rows in the values' buffers, and what a Predict answers in the workspace's predictions.
Status EnqueueProgram(const PackedProgram& packed, const ProgramOnDevice& device,
                      const ProgramBucket& bucket, CudaProgramWorkspace& workspace);

// Runs one valid batch.
Status RunProgram(const PackedProgram& packed, const ProgramOnDevice& device,
                  const ProgramBatch& batch, const OutputBatch* outputs,
                  CudaProgramWorkspace& workspace);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_WORKSPACE_H_
