// The first layer's product by token id. All that comes before the first scan (embedding,
// input_to_hidden, layer norm, projection, product) depends on the token alone, so for stacks with
// an embedding it is computed once for the whole vocabulary when the stack is loaded. Batches of
// token ids then begin with the first layer's scan, which reads its rows by token id.
//
// The stack's own operations make the table, with the products' reference algorithms, whose bits
// all algorithms in use give (product_plan.h); hence the results have the same bits with and
// without it.
#ifndef SRU_KERNELS_CUDA_STACK_TOKEN_TABLE_H_
#define SRU_KERNELS_CUDA_STACK_TOKEN_TABLE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/mutex.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// The part of the budget's rest that a table may take: workspaces and other models come after it.
inline constexpr size_t kTokenTableBudgetShare = 8;

// On one device. Immutable, thread-safe. Counted as weights. Must not outlive `weights`.
class TokenTable {
 public:
  // Leaves *table null when the stack has no embedding, when the table would take more than
  // `max_bytes` or its share of the budget, and when the device has no memory for it.
  static Status Create(const PackedStack& stack, const DeviceStack& weights,
                       const ProductPlans& plans, const std::shared_ptr<Gpu>& gpu, size_t max_bytes,
                       std::unique_ptr<TokenTable>* table);
  ~TokenTable() { gpu_->DiscountWeights(bytes()); }
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;

  // U of the first layer, a row per token id.
  const void* u() const { return u_.data(); }
  // The first layer's input, a row per token id; null unless its highway term reads it.
  const void* x() const { return x_; }
  size_t bytes() const { return u_.bytes() + own_x_.bytes(); }

 private:
  explicit TokenTable(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}

  Status Allocate(size_t u_bytes, size_t x_bytes);

  const std::shared_ptr<Gpu> gpu_;
  DeviceBuffer u_;
  DeviceBuffer own_x_;  // where x is not the embedding itself
  const void* x_ = nullptr;
};

// A stack's table on one device, which is given up when memory is short before it is in use: a
// table must not keep a workspace from being made. Thread-safe.
class TokenTableSlot {
 public:
  explicit TokenTableSlot(std::unique_ptr<TokenTable> table) : table_(std::move(table)) {}

  // For work that may be recorded; null when there is none. From now on it stays.
  const TokenTable* Use() {
    const MutexLock lock(&mutex_);
    in_use_ = true;
    return table_.get();
  }

  // Frees the table unless it is in use. Returns whether it has.
  bool GiveUp() {
    const MutexLock lock(&mutex_);
    if (in_use_ || table_ == nullptr) return false;
    table_.reset();
    return true;
  }

  size_t bytes() {
    const MutexLock lock(&mutex_);
    return table_ == nullptr ? 0 : table_->bytes();
  }

 private:
  Mutex mutex_;
  std::unique_ptr<TokenTable> table_ SRU_GUARDED_BY(mutex_);
  bool in_use_ SRU_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_TOKEN_TABLE_H_
