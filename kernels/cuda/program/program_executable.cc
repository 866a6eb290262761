#include "kernels/cuda/program/program_executable.h"

#include <string>
#include <utility>
#include <variant>

#include "kernels/cuda/device/gpu_arena_memory.h"
#include "kernels/cuda/program/program_forward.h"
#include "kernels/cuda/program/program_pack.h"
#include "kernels/cuda/program/program_run.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/out_of_memory.h"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {
namespace {

class CudaProgram : public DeviceExecutable<ProgramExecutable, ProgramOnDevice> {
 public:
  CudaProgram(std::unique_ptr<PackedProgram> packed, std::vector<ProgramOnDevice> devices)
      : DeviceExecutable(std::move(devices)), packed_(std::move(packed)) {}

  Status CreateWorkspace(const ProgramLimits& limits,
                         std::unique_ptr<ProgramWorkspace>* workspace) const override {
    return CatchBadAlloc("making a workspace", [&] {
      SRU_RETURN_IF_ERROR(ValidateLimits(packed_->program, limits));
      SRU_RETURN_IF_ERROR(CheckDevice("workspace", limits.device));
      const ProgramOnDevice& device = devices_[limits.device];
      std::unique_ptr<CudaProgramWorkspace> created;
      const auto create = [&] {
        return device.gpu->Observe(
            CudaProgramWorkspace::Create(*packed_, device, limits, &created));
      };
      Status status = create();
      for (const StackOnDevice& stack : device.stacks) {
        if (status.code() != StatusCode::kResourceExhausted) break;
        if (stack.token_table->GiveUp()) status = create();
      }
      if (status.ok()) *workspace = std::move(created);
      return status;
    });
  }

  Status CreateArena(const ArenaOptions& options,
                     std::unique_ptr<StateArena>* arena) const override {
    return CatchBadAlloc("making an arena of states", [&] {
      SRU_RETURN_IF_ERROR(CheckDevice("arena", options.device));
      std::unique_ptr<ArenaMemory> memory;
      SRU_RETURN_IF_ERROR(MakeGpuArenaMemory(devices_[options.device].gpu, &memory));
      *arena = std::make_unique<StateArena>(packed_->program.fields, packed_->shape.field_axes,
                                            options, std::move(memory));
      return OkStatus();
    });
  }

  Status Run(const ProgramBatch& batch, const OutputBatch* outputs,
             ProgramWorkspace& workspace) const override {
    return CatchBadAlloc("running a batch", [&] {
      SRU_RETURN_IF_ERROR(
          ValidateBatch(packed_->program, packed_->shape, workspace.limits(), batch, outputs));
      auto& ws = static_cast<CudaProgramWorkspace&>(workspace);
      return ws.gpu().lost() ? ws.gpu().LostError() : RunBatch(batch, outputs, ws);
    });
  }

 private:
  Status RunBatch(const ProgramBatch& batch, const OutputBatch* outputs,
                  CudaProgramWorkspace& ws) const {
    ProgramRun run(*packed_, batch, outputs, ws);
    if (run.parts().empty()) return OkStatus();
    SRU_RETURN_IF_ERROR(ws.gpu().Observe(run.BeginStates()));
    // Also after an error: the staging memory and the pages must be free for others.
    SRU_RETURN_IF_ERROR(ws.gpu().ObserveRun(RunWork(*ws.stream, [&] { return Enqueue(run, ws); })));
    run.ReadResults();
    run.Commit();
    return OkStatus();
  }

  Status Enqueue(ProgramRun& run, CudaProgramWorkspace& ws) const {
    const ProgramOnDevice& device = devices_[ws.limits().device];
    const auto enqueue = [&](const ProgramBucket& bucket) {
      return EnqueueProgram(*packed_, device, bucket, ws);
    };
    // All of them while the stream is idle.
    std::vector<Graph*> graphs;
    for (const ProgramRun::Part& part : run.parts()) {
      SRU_RETURN_IF_ERROR(ws.graphs.Prepare(
          part.bucket, *ws.stream, [&] { return enqueue(part.bucket); }, &graphs.emplace_back()));
    }
    for (size_t i = 0; i < graphs.size(); ++i) {
      const ProgramRun::Part& part = run.parts()[i];
      const size_t bytes = run.WriteInput(part);
      const CudaProgramWorkspace::Staging& staging = ws.staging[part.bucket.part];
      SRU_RETURN_IF_ERROR(
          ws.stream->CopyToDevice(staging.input.data(), staging.host_input.data(), bytes));
      SRU_RETURN_IF_ERROR(graphs[i] != nullptr ? ws.stream->Launch(*graphs[i])
                                               : enqueue(part.bucket));
    }
    return run.EnqueueResults();
  }

  const std::unique_ptr<PackedProgram> packed_;
};

// The name of an operation's rounded weights, if it has some.
struct Int8Check : OperationVisitor {
  const char* name = nullptr;

  void Int8Matrix(const char* its_name, const Int8View&, int64_t, int64_t) { name = its_name; }
};

Status Prepare(const PackedProgram& packed, const std::shared_ptr<Gpu>& gpu,
               ProgramOnDevice* device) {
  std::unique_ptr<Stream> stream;
  SRU_RETURN_IF_ERROR(gpu->device().CreateStream(nullptr, &stream));
  SRU_RETURN_IF_ERROR(DeviceStack::Create(packed.tensors, gpu, *stream, &device->weights));
  for (const ProductGroup& group : packed.groups) {
    std::vector<ProductPlans::Plan> products;
    for (size_t i = 0; i < group.shapes.size(); ++i) {
      products.push_back({group.shapes[i], device->weights->tensor(group.weights[i]), {}});
    }
    SRU_RETURN_IF_ERROR(
        ProductPlans::Create(std::move(products), gpu, &device->plans.emplace_back()));
  }
  for (const std::unique_ptr<PackedStack>& stack : packed.stacks) {
    SRU_RETURN_IF_ERROR(
        StackOnDevice::Create(*stack, gpu, *stream, &device->stacks.emplace_back()));
  }
  return OkStatus();
}

// Refuses rounded weights, for which there are no kernels.
Status CheckSupported(const Program& program) {
  for (size_t i = 0; i < program.operations.size(); ++i) {
    Int8Check rounded;
    VisitOperation(program, static_cast<ValueId>(i), rounded);
    if (rounded.name == nullptr) continue;
    return Unsupported(ItemName("operations", i, kernels::OperationName(program.operations[i])),
                       ": ", rounded.name, ": rounded weights run on the cpu backend alone");
  }
  return OkStatus();
}

}  // namespace

Status CompileProgram(const Program& program, const CompileOptions& options,
                      const PackOptions& pack, const std::vector<std::shared_ptr<Gpu>>& gpus,
                      std::unique_ptr<ProgramExecutable>* executable) {
  return CatchBadAlloc("packing weights", [&] {
    ProgramShape shape;
    SRU_RETURN_IF_ERROR(Validate(program, &shape));
    SRU_RETURN_IF_ERROR(CheckSupported(program));
    auto packed = std::make_unique<PackedProgram>(program, std::move(shape), pack, options.weights);
    std::vector<ProgramOnDevice> devices;
    SRU_RETURN_IF_ERROR(PrepareDevices(
        gpus,
        [&](const std::shared_ptr<Gpu>& gpu, ProgramOnDevice* device) {
          return Prepare(*packed, gpu, device);
        },
        &devices));
    packed->ReleaseHostCopy();
    *executable = std::make_unique<CudaProgram>(std::move(packed), std::move(devices));
    return OkStatus();
  });
}

}  // namespace sru::kernels::cuda
