#include "kernels/cpu/cpu_backend.h"

#include <omp.h>

#include <exception>
#include <new>
#include <utility>

#include "kernels/cpu/batch_run.h"
#include "kernels/cpu/cpu_workspace.h"
#include "kernels/cpu/packed_stack.h"
#include "kernels/cpu/scan.h"

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

class CpuExecutable : public Executable {
 public:
  explicit CpuExecutable(std::unique_ptr<PackedStack> stack) : stack_(std::move(stack)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    if (limits.max_tokens < 1 || limits.max_sequences < 1) {
      return InvalidArgument("workspace: expected at least one token and one sequence");
    }
    return CatchErrors("making a workspace",
                       [&] { *workspace = std::make_unique<CpuWorkspace>(*stack_, limits); });
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    Status status = ValidateBatch(stack_->spec, workspace.limits(), batch, outputs);
    if (!status.ok() || batch.num_sequences == 0) return status;
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      RunBatch(*stack_, batch, outputs, static_cast<CpuWorkspace&>(workspace));
    });
  }

  size_t weight_bytes() const override {
    size_t bytes = stack_->input_to_hidden != nullptr ? stack_->input_to_hidden->bytes() : 0;
    if (stack_->classifier != nullptr) bytes += stack_->classifier->bytes();
    for (const AlignedBuffer& table : stack_->token_products) bytes += table.bytes();
    for (const Layer& layer : stack_->layers) {
      bytes += layer.norm.weight.bytes() + layer.norm.bias.bytes();
      if (layer.projection != nullptr) bytes += layer.projection->bytes();
      for (const Direction& direction : layer.directions) {
        bytes += direction.product->bytes() + direction.constants.bytes();
      }
    }
    return bytes;
  }

 private:
  std::unique_ptr<PackedStack> stack_;
};

class CpuBackend : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  std::string description() const override {
    return std::string("oneDNN products, ") + VectorTargetName() + " scan";
  }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    Status status = Validate(spec);
    if (!status.ok()) return status;
    if (options.dtype != DataType::kFloat32) {
      return Unsupported(std::string("dtype: backend cpu computes float32, found ") +
                         DataTypeName(options.dtype));
    }
    UseOneThread();
    return CatchErrors("packing weights", [&] {
      *executable = std::make_unique<CpuExecutable>(std::make_unique<PackedStack>(spec));
    });
  }
};

}  // namespace

bool CpuBackendIsBuilt() { return true; }

Status CreateCpuBackend(const BackendOptions& options, std::unique_ptr<Backend>* backend) {
  if (options.cpu_isa != "auto") {
    return InvalidArgument("cpu_isa: expected auto, found '" + options.cpu_isa + "'");
  }
  *backend = std::make_unique<CpuBackend>();
  return OkStatus();
}

}  // namespace sru::kernels
