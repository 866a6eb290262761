#include "kernels/cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "kernels/cpu/batch_run.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/cpu_workspace.h"
#include "kernels/cpu/packed_stack.h"
#include "kernels/cpu/parallel_runner.h"
#include "kernels/cpu/scan.h"
#include "kernels/cpu/tile_run.h"
#include "kernels/cpu/tile_stack.h"

namespace sru::kernels {
namespace {

// Batches run in parallel on the callers' threads; a product must not start threads of its own.
void UseOneThread() { omp_set_num_threads(1); }

// Runs `body` and turns what oneDNN and the allocator throw into a status.
template <typename Body>
Status CatchErrors(const char* action, Body body) {
  try {
    body();
    return OkStatus();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, std::string(action) + ": out of memory");
  } catch (const std::exception& e) {
    return Internal(std::string(action) + ": " + e.what());
  }
}

template <typename Body>
Status MakeWorkspace(const WorkspaceLimits& limits, Body body) {
  if (limits.max_tokens < 1 || limits.max_sequences < 1) {
    return InvalidArgument("workspace: expected at least one token and one sequence");
  }
  return CatchErrors("making a workspace", body);
}

// float32, and bfloat16 without tiles.
class CpuExecutable : public Executable {
 public:
  CpuExecutable(std::unique_ptr<PackedStack> stack, std::shared_ptr<ParallelRunner> parallel)
      : stack_(std::move(stack)), parallel_(std::move(parallel)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    return MakeWorkspace(limits, [&] {
      *workspace = std::make_unique<CpuWorkspace>(*stack_, limits, parallel_->threads());
    });
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    Status status = ValidateBatch(stack_->spec, workspace.limits(), batch, outputs);
    if (!status.ok() || batch.num_sequences == 0) return status;
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      const ParallelRunner::Batch running(*parallel_);
      RunBatch(*stack_, batch, outputs, static_cast<CpuWorkspace&>(workspace), *parallel_);
    });
  }

  size_t weight_bytes() const override {
    size_t bytes = stack_->input_to_hidden != nullptr ? stack_->input_to_hidden->bytes() : 0;
    if (stack_->classifier != nullptr) bytes += stack_->classifier->bytes();
    for (const AlignedBuffer& table : stack_->token_products) bytes += table.bytes();
    for (const Layer& layer : stack_->layers) {
      bytes += layer.norm.weight.bytes() + layer.norm.bias.bytes();
      if (layer.projection != nullptr) bytes += layer.projection->bytes();
      for (const AlignedBuffer& constants : layer.constants) bytes += constants.bytes();
      for (const Part& part : layer.parts) bytes += part.product->bytes();
    }
    return bytes;
  }

 private:
  std::unique_ptr<PackedStack> stack_;
  std::shared_ptr<ParallelRunner> parallel_;
};

// bfloat16 by tiles.
class TileExecutable : public Executable {
 public:
  TileExecutable(std::unique_ptr<TileStack> stack, std::shared_ptr<ParallelRunner> parallel)
      : stack_(std::move(stack)), parallel_(std::move(parallel)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    return MakeWorkspace(limits, [&] {
      *workspace = std::make_unique<TileWorkspace>(*stack_, limits, parallel_->threads());
    });
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    Status status = ValidateBatch(stack_->spec, workspace.limits(), batch, outputs);
    if (!status.ok() || batch.num_sequences == 0) return status;
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      const ParallelRunner::Batch running(*parallel_);
      RunTileBatch(*stack_, batch, outputs, static_cast<TileWorkspace&>(workspace), *parallel_);
    });
  }

  size_t weight_bytes() const override { return stack_->bytes(); }

 private:
  std::unique_ptr<TileStack> stack_;
  std::shared_ptr<ParallelRunner> parallel_;
};

class CpuBackend : public Backend {
 public:
  CpuBackend(CpuIsa isa, std::shared_ptr<ParallelRunner> parallel)
      : isa_(std::move(isa)), parallel_(std::move(parallel)) {}

  const char* name() const override { return "cpu"; }

  std::string description() const override {
    std::string text =
        isa_.name + ": float32 oneDNN products, " + VectorTargetName() + " scan; bfloat16 ";
    if (isa_.tiles != nullptr) {
      text += std::string(isa_.tiles->name) + " with the scan between";
    } else if (isa_.products == BFloat16Products::kOneDnn) {
      text += "oneDNN products";
    } else {
      text += "rounded, products in float32";
    }
    if (!isa_.note.empty()) text += " (" + isa_.note + ")";
    return text;
  }

  std::string instruction_set() const override { return isa_.name; }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    Status status = Validate(spec);
    if (!status.ok()) return status;
    UseOneThread();
    return CatchErrors("packing weights", [&] {
      const bool rounds = options.dtype == DataType::kBFloat16;
      if (rounds && isa_.tiles != nullptr) {
        *executable = std::make_unique<TileExecutable>(
            std::make_unique<TileStack>(spec, *isa_.tiles), parallel_);
        return;
      }
      Arithmetic arithmetic;
      arithmetic.rounds = rounds;
      if (rounds && isa_.products == BFloat16Products::kOneDnn) {
        arithmetic.products = ProductType::kBFloat16;
      }
      *executable = std::make_unique<CpuExecutable>(std::make_unique<PackedStack>(spec, arithmetic),
                                                    parallel_);
    });
  }

 private:
  const CpuIsa isa_;
  const std::shared_ptr<ParallelRunner> parallel_;
};

}  // namespace

bool CpuBackendIsBuilt() { return true; }

Status CreateCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend) {
  constexpr int kMostThreads = 1024;
  if (options.cpu_threads < 0 || options.cpu_threads > kMostThreads) {
    return InvalidArgument("cpu_threads: expected 0 to " + std::to_string(kMostThreads) +
                           ", found " + std::to_string(options.cpu_threads));
  }
  CpuIsa isa;
  const Status status = ChooseCpuIsa(options.cpu_isa, &isa);
  if (!status.ok()) return status;
  return CatchErrors("starting threads", [&] {
    const int cores = AvailableCores();
    const int threads = options.cpu_threads > 0 ? options.cpu_threads : cores;
    *backend = std::make_unique<CpuBackend>(
        std::move(isa), std::make_shared<ParallelRunner>(threads, std::max(threads, cores)));
  });
}

}  // namespace sru::kernels
