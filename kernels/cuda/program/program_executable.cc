#include <string>
#include <utility>
#include <variant>

#include "kernels/cuda/program/program_pack.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/mutex.h"
#include "kernels/state_arena.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {
namespace {

// Memory of a device for the states of sequences (state_arena.h), which the device's budget counts.
class GpuArenaMemory : public ArenaMemory {
 public:
  GpuArenaMemory(std::shared_ptr<Gpu> gpu, std::unique_ptr<Stream> stream)
      : gpu_(std::move(gpu)), stream_(std::move(stream)) {}

  Status Allocate(size_t bytes, float** memory) override {
    if (gpu_->lost()) return gpu_->LostError();
    void* allocated = nullptr;
    Status status = gpu_->AllocateAgain(bytes, &allocated);
    if (status.ok()) *memory = static_cast<float*>(allocated);
    return status;
  }
  void Free(float* memory, size_t bytes) override { gpu_->Keep(memory, bytes); }

  Status CopyIn(float* to, const float* from, size_t count) override {
    return Copy(
        [&](Stream& stream) { return stream.CopyToDevice(to, from, count * sizeof(float)); });
  }
  Status CopyOut(float* to, const float* from, size_t count) override {
    return Copy([&](Stream& stream) { return stream.CopyToHost(to, from, count * sizeof(float)); });
  }

 private:
  template <typename Enqueue>
  Status Copy(const Enqueue& enqueue) {
    if (gpu_->lost()) return gpu_->LostError();
    const MutexLock lock(&mutex_);
    // Also after an error: nothing may be in flight when the caller's memory goes.
    Stream& stream = *stream_;
    return gpu_->Observe(RunWork(stream, [&] { return enqueue(stream); }));
  }

  const std::shared_ptr<Gpu> gpu_;  // outlives the stream
  Mutex mutex_;
  const std::unique_ptr<Stream> stream_ SRU_PT_GUARDED_BY(mutex_);
};

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
      const std::shared_ptr<Gpu>& gpu = devices_[options.device].gpu;
      std::unique_ptr<Stream> stream;
      SRU_RETURN_IF_ERROR(gpu->Observe(gpu->device().CreateStream(nullptr, &stream)));
      *arena =
          std::make_unique<StateArena>(packed_->program.fields, packed_->shape.field_axes, options,
                                       std::make_unique<GpuArenaMemory>(gpu, std::move(stream)));
      return OkStatus();
    });
  }

  Status Run(const ProgramBatch& batch, const OutputBatch* outputs,
             ProgramWorkspace& workspace) const override {
    return CatchBadAlloc("running a batch", [&] {
      SRU_RETURN_IF_ERROR(
          ValidateBatch(packed_->program, packed_->shape, workspace.limits(), batch, outputs));
      auto& ws = static_cast<CudaProgramWorkspace&>(workspace);
      if (ws.gpu().lost()) return ws.gpu().LostError();
      return RunProgram(*packed_, devices_[ws.limits().device], batch, outputs, ws);
    });
  }

 private:
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
