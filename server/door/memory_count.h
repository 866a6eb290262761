// MemoryCount: bytes that were taken, and a bound on them. Counts form a chain, such as connection,
// caller, process: what is taken from one is taken from those above it, and none goes beyond its
// bound.
//
// Thread-safe. A change costs one atomic addition for each count of the chain.
#ifndef SRU_SERVER_DOOR_MEMORY_COUNT_H_
#define SRU_SERVER_DOOR_MEMORY_COUNT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/transport/accepted_socket.h"

namespace sru::server::door {

class MemoryCount {
 public:
  // `above` may be null and must outlive the count.
  explicit MemoryCount(int64_t limit, MemoryCount* above = nullptr)
      : limit_(limit), above_(above) {}
  MemoryCount(const MemoryCount&) = delete;
  MemoryCount& operator=(const MemoryCount&) = delete;

  // False, and nothing is taken, if one of the counts would go beyond its bound.
  [[nodiscard]] bool Take(int64_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_ &&
        (above_ == nullptr || above_->Take(bytes))) {
      return true;
    }
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void Give(int64_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (above_ != nullptr) above_->Give(bytes);
  }

  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  MemoryCount* const above_;
  std::atomic<int64_t> used_{0};
};

// Bytes that are given back unless they are kept: for what may throw before they are in use.
class TakenMemory {
 public:
  TakenMemory(MemoryCount* count, int64_t bytes)
      : count_(count->Take(bytes) ? count : nullptr), bytes_(bytes) {}
  ~TakenMemory() {
    if (count_ != nullptr) count_->Give(bytes_);
  }
  TakenMemory(const TakenMemory&) = delete;
  TakenMemory& operator=(const TakenMemory&) = delete;

  // Whether there were so many.
  explicit operator bool() const { return count_ != nullptr; }
  void Keep() { count_ = nullptr; }

 private:
  MemoryCount* count_;
  const int64_t bytes_;
};

// The memory that each address takes, while it has a connection. Thread-safe.
class AddressMemory {
 public:
  AddressMemory(int64_t limit, MemoryCount* above) : limit_(limit), above_(above) {}

  std::shared_ptr<MemoryCount> Of(const transport::AddressKey& key);

 private:
  const int64_t limit_;
  MemoryCount* const above_;
  Mutex mutex_;
  std::map<transport::AddressKey, std::weak_ptr<MemoryCount>> counts_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_MEMORY_COUNT_H_
