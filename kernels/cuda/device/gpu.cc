#include "kernels/cuda/device/gpu.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "kernels/status.h"

namespace sru::kernels::cuda {
namespace {

std::string Megabytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

Gpu::Gpu(std::unique_ptr<Device> device, const BackendOptions& options)
    : device_(std::move(device)),
      options_(options),
      memory_limit_(options.cuda_memory_limit_bytes > 0 ? options.cuda_memory_limit_bytes
                                                        : device_->free_memory() / 10 * 9) {}

Gpu::~Gpu() { FreeKept(); }

DeviceInfo Gpu::info() const {
  DeviceInfo info;
  info.name = device_->name();
  info.ordinal = device_->ordinal();
  info.memory_bytes = device_->total_memory();
  info.memory_limit = memory_limit_;
  info.memory_in_use = memory_limit_ - BudgetLeft();
  // Others allocate and free between the two.
  info.weight_bytes = std::min(weight_bytes_.load(), info.memory_in_use);
  info.graph_hits = graph_use_.hits.load();
  info.graph_misses = graph_use_.misses.load();
  info.lost = lost();
  if (!info.lost) info.memory_free = device_->free_memory();
  return info;
}

size_t Gpu::BudgetLeft() const {
  const size_t kept = kept_bytes_.load();
  const size_t in_use = in_use_.load();
  // Others allocate and free between the two.
  return memory_limit_ - std::min(in_use - std::min(in_use, kept), memory_limit_);
}

Status Gpu::CheckBudget(const std::string& what, size_t bytes) const {
  const size_t left = BudgetLeft();
  if (bytes <= left) return OkStatus();
  return Status(StatusCode::kResourceExhausted, "device ", device_->ordinal(), ": ", what,
                " needs ", Megabytes(bytes), ", ", Megabytes(left), " are left of a budget of ",
                Megabytes(memory_limit_),
                "; use fewer instances, smaller batches or bfloat16, or raise the budget");
}

Status Gpu::Allocate(size_t bytes, void** memory) {
  Status status = AllocateNew(bytes, memory);
  if (status.code() == StatusCode::kResourceExhausted && FreeKept()) {
    status = AllocateNew(bytes, memory);
  }
  return status;
}

Status Gpu::AllocateNew(size_t bytes, void** memory) {
  size_t in_use = in_use_.load();
  do {
    if (in_use > memory_limit_ || bytes > memory_limit_ - in_use) {
      const Status status = CheckBudget("an allocation", bytes);
      return status.ok() ? Status(StatusCode::kResourceExhausted, "memory is kept") : status;
    }
  } while (!in_use_.compare_exchange_weak(in_use, in_use + bytes));
  Status status = CatchBadAlloc("allocating device memory",
                                [&] { return Observe(device_->Allocate(bytes, memory)); });
  if (!status.ok()) in_use_ -= bytes;
  return status;
}

void Gpu::Free(void* memory, size_t bytes) {
  device_->Free(memory);
  in_use_ -= bytes;
}

Status Gpu::AllocateAgain(size_t bytes, void** memory) {
  {
    const MutexLock lock(&mutex_);
    const auto kept = kept_.find(bytes);
    if (kept != kept_.end()) {
      *memory = kept->second;
      kept_.erase(kept);
      kept_bytes_ -= bytes;
      return OkStatus();
    }
  }
  return Allocate(bytes, memory);
}

void Gpu::Keep(void* memory, size_t bytes) {
  try {
    const MutexLock lock(&mutex_);
    kept_.emplace(bytes, memory);
    kept_bytes_ += bytes;
  } catch (const std::bad_alloc&) {
    Free(memory, bytes);
  }
}

bool Gpu::FreeKept() {
  std::multimap<size_t, void*> kept;
  {
    const MutexLock lock(&mutex_);
    kept.swap(kept_);
  }
  for (const auto& [bytes, memory] : kept) {
    kept_bytes_ -= bytes;
    Free(memory, bytes);
  }
  return !kept.empty();
}

Status Gpu::AllocatePinned(size_t bytes, void** memory) {
  return Observe(device_->AllocatePinned(bytes, memory));
}

void Gpu::FreePinned(void* memory, size_t /*bytes*/) { device_->FreePinned(memory); }

Status Gpu::Observe(Status status) {
  if (status.code() == StatusCode::kInternal) {
    const Status probed = device_->Probe();
    if (!probed.ok()) status = OutOfUse(status, "it does not answer: " + probed.message());
  }
  if (status.code() == StatusCode::kDeviceLost) lost_.store(true, std::memory_order_release);
  return status;
}

Status Gpu::ObserveRun(Status status) {
  if (status.ok()) internal_errors_ = 0;
  if (status.code() == StatusCode::kInternal && ++internal_errors_ >= kMaxInternalErrors) {
    status = OutOfUse(status, std::to_string(kMaxInternalErrors) + " batches in a row have failed");
  }
  return Observe(std::move(status));
}

Status Gpu::OutOfUse(const Status& error, const std::string& reason) const {
  return Status(StatusCode::kDeviceLost, "device ", device_->ordinal(), ": ", reason,
                "; the last error: ", error.message());
}

Status Gpu::LostError() const {
  return Status(StatusCode::kDeviceLost, "device ", device_->ordinal(), " (", device_->name(),
                ") has failed and is out of use");
}

}  // namespace sru::kernels::cuda
