#include "kernels/cuda/device/gpu_arena_memory.h"

#include <cstddef>
#include <utility>

#include "kernels/mutex.h"

namespace sru::kernels::cuda {
namespace {

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

}  // namespace

Status MakeGpuArenaMemory(std::shared_ptr<Gpu> gpu, std::unique_ptr<ArenaMemory>* memory) {
  if (gpu->lost()) return gpu->LostError();
  std::unique_ptr<Stream> stream;
  Status status = gpu->Observe(gpu->device().CreateStream(nullptr, &stream));
  if (status.ok()) *memory = std::make_unique<GpuArenaMemory>(std::move(gpu), std::move(stream));
  return status;
}

}  // namespace sru::kernels::cuda
