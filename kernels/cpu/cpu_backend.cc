#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/library_calls.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/int8/int8_kernel.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/programs/cpu_program.h"
#include "kernels/cpu/stacks/batch_run.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/tile_run.h"
#include "kernels/cpu/stacks/tile_stack.h"

namespace sru::kernels::cpu {
namespace {

// An upper estimate of the memory that a workspace does not share with others: oneDNN's lists of
// arguments, and the places of each sequence in the batch.
constexpr int64_t kKeptBytes = 256 << 10;

// A model packed for one way of computing, with the workspace and the forward pass that go with it.
template <typename Stack, typename StackWorkspace,
          void (*kRun)(const Stack&, const RaggedBatch&, const SequenceOutput*, StackWorkspace&,
                       ParallelRunner&)>
class CpuExecutable : public Executable {
 public:
  CpuExecutable(std::unique_ptr<Stack> stack, std::shared_ptr<ParallelRunner> parallel,
                std::shared_ptr<RunMemory> memory)
      : stack_(std::move(stack)), parallel_(std::move(parallel)), memory_(std::move(memory)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    if (limits.max_tokens < 1 || limits.max_sequences < 1) {
      return InvalidArgument("workspace: expected at least one token and one sequence");
    }
    return CatchErrors("making a workspace", [&] {
      *workspace = std::make_unique<StackWorkspace>(*stack_, limits, parallel_->threads(), memory_);
      return OkStatus();
    });
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      Status status = ValidateBatch(stack_->spec, workspace.limits(), batch, outputs);
      if (!status.ok() || batch.num_sequences == 0) return status;
      const ParallelRunner::Batch running(*parallel_);
      kRun(*stack_, batch, outputs, static_cast<StackWorkspace&>(workspace), *parallel_);
      return status;
    });
  }

  size_t weight_bytes() const override { return stack_->bytes(); }

 private:
  std::unique_ptr<Stack> stack_;
  std::shared_ptr<ParallelRunner> parallel_;
  std::shared_ptr<RunMemory> memory_;
};

// float32, int8, and bfloat16 without tiles.
using PackedExecutable = CpuExecutable<PackedStack, CpuWorkspace, RunBatch>;
// bfloat16 by tiles.
using TileExecutable = CpuExecutable<TileStack, TileWorkspace, RunTileBatch>;

class CpuBackend : public Backend {
 public:
  CpuBackend(CpuIsa isa, std::shared_ptr<ParallelRunner> parallel, int cores)
      : isa_(std::move(isa)),
        parallel_(std::move(parallel)),
        // Batches that others have passed at the end of a turn keep theirs.
        memory_(std::make_shared<RunMemory>(cores)) {}

  const char* name() const override { return "cpu"; }

  std::string description() const override {
    std::string text =
        isa_.name + ": float32 oneDNN products, " + VectorTargetName() + " scan; bfloat16 ";
    if (isa_.tiles != nullptr) {
      text += std::string(isa_.tiles->name) + " with the scan between";
    } else {
      text += "rounded, products in float32";
    }
    text += std::string("; int8 weights by ") + BestInt8Kernel().name();
    if (!isa_.note.empty()) text += " (" + isa_.note + ")";
    return text;
  }

  std::string instruction_set() const override { return isa_.name; }

  PackedBytes packed_bytes(DataType dtype) const override {
    PackedBytes bytes = RowOf(dtype).bytes;
    if (dtype == DataType::kBFloat16 && isa_.tiles == nullptr) {
      bytes.activation = bytes.weight = sizeof(float);
    }
    return bytes;
  }

  int64_t workspace_bytes(const ModelSizes& sizes, const WorkspaceLimits& limits,
                          size_t activation_bytes) const override {
    // There is room for rows beyond a batch's last.
    const int64_t tokens = int64_t{limits.max_tokens} + kMaxChunkRows;
    const int64_t pooled_rows = int64_t{limits.max_sequences} + kClassifierRows;
    const int64_t threads = parallel_->threads();
    int64_t stack = tokens * (2 * sizes.widest_row + sizes.product_rows) *
                    static_cast<int64_t>(activation_bytes);
    stack += pooled_rows * sizes.pooled_row * kValueBytes;
    // Per thread the product of a chunk of rows for one part of a layer.
    stack += std::min(sizes.parts, threads) * int64_t{kChunkBytes};
    const int64_t program_values =
        tokens * sizes.program_row +
        std::min<int64_t>(kMaxProgramThreads, threads) * sizes.program_thread + sizes.program_rest;
    // All workspaces share the blocks, so a load adds only the bytes that no block has yet.
    const int64_t block = (sizes.stacks > 0 ? stack : 0) + program_values * kValueBytes;
    const auto shared = static_cast<int64_t>(memory_->block_bytes());
    return std::max<int64_t>(0, block - shared) + kKeptBytes;
  }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    UseOneThread();
    return CatchErrors("packing weights", [&] {
      SRU_RETURN_IF_ERROR(Validate(spec));
      if (options.dtype == DataType::kBFloat16 && isa_.tiles != nullptr) {
        *executable = std::make_unique<TileExecutable>(
            std::make_unique<TileStack>(spec, *isa_.tiles, options.weights), parallel_, memory_);
        return OkStatus();
      }
      Arithmetic arithmetic;
      SRU_RETURN_IF_ERROR(FindArithmetic(options.dtype, &arithmetic));
      *executable = std::make_unique<PackedExecutable>(
          std::make_unique<PackedStack>(spec, arithmetic, options.weights), parallel_, memory_);
      return OkStatus();
    });
  }

  Status Compile(const Program& program, const CompileOptions& options,
                 std::unique_ptr<ProgramExecutable>* executable) override {
    UseOneThread();
    Arithmetic arithmetic;
    SRU_RETURN_IF_ERROR(FindArithmetic(options.dtype, &arithmetic));
    const CompileStack compile_stack = [&](const StackSpec& spec,
                                           std::unique_ptr<Executable>* stack) {
      return Compile(spec, options, stack);
    };
    return CompileProgram(program, arithmetic, options.weights, compile_stack, parallel_, memory_,
                          executable);
  }

 private:
  // The arithmetic of a data type where no tiles are used.
  Status FindArithmetic(DataType dtype, Arithmetic* arithmetic) const {
    switch (dtype) {
      case DataType::kFloat32:
        return OkStatus();
      case DataType::kBFloat16:
        arithmetic->rounding = Rounding::kBFloat16;
        arithmetic->rounds_embedding = true;
        if (isa_.multiplies_bfloat16) arithmetic->products = ProductType::kBFloat16;
        return OkStatus();
      case DataType::kInt8:
        arithmetic->rounds_embedding = true;
        arithmetic->products = ProductType::kInt8;
        return OkStatus();
    }
    return UnsupportedDataType(name(), dtype);
  }

  const CpuIsa isa_;
  const std::shared_ptr<ParallelRunner> parallel_;
  const std::shared_ptr<RunMemory> memory_;
};

}  // namespace

bool IsBuilt() { return true; }

Status CreateCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend) {
  constexpr int kMostThreads = 1024;
  if (options.cpu_threads < 0 || options.cpu_threads > kMostThreads) {
    return InvalidArgument("cpu_threads: expected 0 to ", kMostThreads, ", found ",
                           options.cpu_threads);
  }
  CpuIsa isa;
  SRU_RETURN_IF_ERROR(ChooseCpuIsa(options.cpu_isa, &isa));
  return CatchErrors("starting threads", [&] {
    const int cores = options.cpu_cores > 0 ? options.cpu_cores : AvailableCores();
    const int threads = options.cpu_threads > 0 ? options.cpu_threads : cores;
    *backend = std::make_unique<CpuBackend>(
        std::move(isa), std::make_shared<ParallelRunner>(threads, std::max(threads, cores)), cores);
    return OkStatus();
  });
}

}  // namespace sru::kernels::cpu
