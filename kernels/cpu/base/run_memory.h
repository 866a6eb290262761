// The memory that batches compute in. All workspaces of a backend share it: a batch takes a block
// when it begins and gives it back at its end, so that there are as many blocks as batches run at
// once, whatever models they are of. A block is as large as the largest workspace needs, or a
// quarter of that for a workspace that needs no more, such as that of small batches which interrupt
// others.
//
//   RunArray<float> x;                     // of a workspace: a place in a block
//   x.AtLeast(rows * width);
//   RunPlan plan(memory);                  // of the workspace as well
//   plan.Add(&x);
//   plan.Close();                          // now blocks are large enough
//   {
//     const RunPlan::Scope scope(&plan);   // a batch runs
//     x.data()[0] = 1;
//   }
//
// A block holds what the batch before has left there, which may be of another model.
#ifndef SRU_KERNELS_CPU_BASE_RUN_MEMORY_H_
#define SRU_KERNELS_CPU_BASE_RUN_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "kernels/mutex.h"

namespace sru::kernels::cpu {

// Thread-safe.
class RunMemory {
 public:
  // Keeps at most `kept` blocks of each of the two sizes that no batch runs in.
  explicit RunMemory(int kept) : kept_(kept) {
    for (std::vector<Block>& free : free_) free.reserve(kept_);
  }

  // A workspace that needs so much of a block is there, or no longer. A block that is in use stays
  // as it is until its batch ends.
  void Add(size_t bytes);
  void Remove(size_t bytes);
  // The largest need that there is.
  size_t block_bytes() const;
  // The bytes of all blocks: those that batches run in, and those that are kept for the next ones.
  size_t bytes() const;

 private:
  friend class RunPlan;
  struct Deleter {
    void operator()(char* p) const;
  };
  struct Block {
    size_t bytes = 0;
    std::unique_ptr<char, Deleter> data;
    bool small = false;
    int core = -1;  // on which it was given back: what it holds may be in that core's cache
  };
  static constexpr size_t kSmallPart = 4;

  // Returns a block of at least `bytes`; throws std::bad_alloc.
  Block Take(size_t bytes);
  void Give(Block block);
  size_t Largest() const SRU_LOCKS_REQUIRED(mutex_) {
    return needs_.empty() ? 0 : *needs_.rbegin();
  }

  const size_t kept_;
  mutable Mutex mutex_;
  std::multiset<size_t> needs_ SRU_GUARDED_BY(mutex_);
  std::vector<Block> free_[2] SRU_GUARDED_BY(mutex_);  // [small]
  size_t bytes_ SRU_GUARDED_BY(mutex_) = 0;
};

// An array of a workspace. It has no memory but while a batch runs, and no values at its begin.
template <typename T>
class RunArray {
 public:
  // Before it is added to a plan.
  void AtLeast(size_t size) { size_ = std::max(size_, size); }

  T* data() const { return reinterpret_cast<T*>(*base_ + offset_); }
  T& operator[](size_t i) const { return data()[i]; }
  size_t size() const { return size_; }

 private:
  friend class RunPlan;
  char* const* base_ = nullptr;
  size_t offset_ = 0;
  size_t size_ = 0;
};

// Where the arrays of a workspace are in a block.
class RunPlan {
 public:
  explicit RunPlan(std::shared_ptr<RunMemory> memory) : memory_(std::move(memory)) {}
  RunPlan(const RunPlan&) = delete;
  RunPlan& operator=(const RunPlan&) = delete;
  ~RunPlan() {
    if (closed_) memory_->Remove(bytes_);
  }

  template <typename T>
  void Add(RunArray<T>* array) {
    array->base_ = &base_;
    array->offset_ = bytes_;
    bytes_ += (array->size_ * sizeof(T) + kLine - 1) / kLine * kLine;
  }
  // After the last Add(), before the first run.
  void Close() {
    memory_->Add(bytes_);
    closed_ = true;
  }
  size_t bytes() const { return bytes_; }

  // Memory for one batch: a block, or `place`, a part of that of the batch that this one belongs
  // to.
  class Scope {
   public:
    explicit Scope(RunPlan* plan, char* place = nullptr) : plan_(plan), outer_(plan->base_) {
      if (outer_ != nullptr) return;
      if (place == nullptr) {
        block_ = plan->memory_->Take(plan->bytes_);
        place = block_.data.get();
      }
      plan->base_ = place;
    }
    ~Scope() {
      plan_->base_ = outer_;
      if (block_.data != nullptr) plan_->memory_->Give(std::move(block_));
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RunPlan* const plan_;
    char* const outer_;  // not null: it is bound already
    RunMemory::Block block_;
  };

  static constexpr size_t kLine = 64;

 private:
  const std::shared_ptr<RunMemory> memory_;
  char* base_ = nullptr;
  size_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_RUN_MEMORY_H_
