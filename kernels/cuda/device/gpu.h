// A device and what the backend keeps on it: the memory budget and whether the device is lost.
// Thread-safe. Buffers hold on to it, so it lives as long as any of them.
#ifndef SRU_KERNELS_CUDA_DEVICE_GPU_H_
#define SRU_KERNELS_CUDA_DEVICE_GPU_H_

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/graph_cache.h"
#include "kernels/mutex.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

class Gpu {
 public:
  Gpu(std::unique_ptr<Device> device, const BackendOptions& options);
  ~Gpu();

  Device& device() { return *device_; }
  const BackendOptions& options() const { return options_; }
  bool own_products() const { return options_.cuda_own_products && device_->has_own_product(); }
  DeviceInfo info() const;

  // kResourceExhausted, naming `what`, when this many bytes more would exceed the budget. A check
  // before a series of allocations, so that the message says what the whole of it needs.
  Status CheckBudget(const std::string& what, size_t bytes) const;

  // Bytes that are not taken; others take and give back meanwhile.
  size_t BudgetLeft() const;

  // Device memory, within the budget.
  Status Allocate(size_t bytes, void** memory);
  void Free(void* memory, size_t bytes);
  // The same for memory that comes and goes while batches run: the device would wait for all of
  // them each time. What is freed is kept for the next of its size, until an allocation needs it.
  Status AllocateAgain(size_t bytes, void** memory);
  void Keep(void* memory, size_t bytes);
  // Host memory, which no budget counts.
  Status AllocatePinned(size_t bytes, void** memory);
  void FreePinned(void* memory, size_t bytes);

  // How much of the memory is weights; they must be counted while they are allocated.
  void CountWeights(size_t bytes) { weight_bytes_ += bytes; }
  void DiscountWeights(size_t bytes) { weight_bytes_ -= bytes; }

  // Of the graph caches of every workspace on the device.
  GraphUse& graph_use() { return graph_use_; }

  // Once a call has reported kDeviceLost, the device is not used again. No list of errors tells
  // which of them are for good, so kInternal makes it probe the device, which is lost if that
  // fails. Returns `status`, or kDeviceLost for what the probe found.
  Status Observe(Status status);
  // The same for what a run of a batch came to, OK included. A device whose runs fail with
  // kInternal kMaxInternalErrors times in a row is lost, whatever a probe says: it fails each batch
  // at once, so that its workers would take most of the queue.
  Status ObserveRun(Status status);
  static constexpr int kMaxInternalErrors = 3;
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  Status LostError() const;

 private:
  Status AllocateNew(size_t bytes, void** memory);
  // Whether there was any.
  bool FreeKept();
  Status OutOfUse(const Status& error, const std::string& reason) const;

  const std::unique_ptr<Device> device_;
  const BackendOptions options_;
  const size_t memory_limit_;
  std::atomic<size_t> in_use_{0};
  std::atomic<size_t> weight_bytes_{0};
  mutable Mutex mutex_;
  std::multimap<size_t, void*> kept_ SRU_GUARDED_BY(mutex_);  // by bytes
  std::atomic<size_t> kept_bytes_{0};                         // of those in use
  GraphUse graph_use_;
  std::atomic<int> internal_errors_{0};  // of runs, in a row
  std::atomic<bool> lost_{false};
};

// Memory of one kind, freed with the object.
template <Status (Gpu::*kAllocate)(size_t, void**), void (Gpu::*kFree)(void*, size_t)>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) ((*gpu_).*kFree)(data_, bytes_);
  }

  // Nothing is allocated for 0 bytes; data() is null then.
  static Status Create(std::shared_ptr<Gpu> gpu, size_t bytes, Buffer* buffer) {
    Buffer created;
    if (bytes > 0) {
      void* data = nullptr;
      SRU_RETURN_IF_ERROR(((*gpu).*kAllocate)(bytes, &data));
      created.data_ = data;
      created.bytes_ = bytes;
      created.gpu_ = std::move(gpu);
    }
    *buffer = std::move(created);
    return OkStatus();
  }

  // For several arrays.
  static Status Create(const std::shared_ptr<Gpu>& gpu, const ArrayPlan& plan, Buffer* buffer) {
    Status status = Create(gpu, plan.bytes(), buffer);
    if (!status.ok() || plan.bytes() == 0) return status;
    plan.ForEachGap(buffer->data(),
                    [&](void* begin, size_t bytes) { gpu->device().Protect(begin, bytes); });
    return status;
  }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Gpu> gpu_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceBuffer = Buffer<&Gpu::Allocate, &Gpu::Free>;
// Host memory that the device copies from and to by itself.
using PinnedBuffer = Buffer<&Gpu::AllocatePinned, &Gpu::FreePinned>;

// A stream and the memory that its products may use, which the budget counts.
class GpuStream {
 public:
  static Status Create(const std::shared_ptr<Gpu>& gpu, GpuStream* stream) {
    const size_t bytes = gpu->device().product_workspace_bytes();
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu, bytes, &stream->product_workspace_));
    SRU_RETURN_IF_ERROR(
        gpu->device().CreateStream(stream->product_workspace_.data(), &stream->stream_));
    stream->stream_->set_poll(gpu->options().cuda_poll);
    return OkStatus();
  }

  // A buffer whose memory has been written once, on this stream, which is idle afterwards. `size`
  // is what DeviceBuffer::Create() takes.
  template <typename Size>
  Status CreateInitialized(const std::shared_ptr<Gpu>& gpu, const Size& size,
                           DeviceBuffer* buffer) const {
    DeviceBuffer created;
    Status status = DeviceBuffer::Create(gpu, size, &created);
    if (status.ok() && created.bytes() > 0) {
      status =
          RunWork(*stream_, [&] { return stream_->Initialize(created.data(), created.bytes()); });
    }
    if (status.ok()) *buffer = std::move(created);
    return status;
  }

  // Null until it is created.
  Stream* get() const { return stream_.get(); }
  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return stream_.get(); }

 private:
  DeviceBuffer product_workspace_;  // outlives the stream
  std::unique_ptr<Stream> stream_;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_GPU_H_
