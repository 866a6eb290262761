// MemoryHold: what one HTTP request has reserved of the memory that all calls may hold together. Its destructor gives
// it back. Movable; not thread-safe.
#ifndef SRU_SERVER_REST_MEMORY_HOLD_H_
#define SRU_SERVER_REST_MEMORY_HOLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace sru::server::rest {

// The budget that holds are taken from. Both functions are thread-safe; null functions: there is no limit.
struct MemoryBudget {
  std::function<bool(int64_t bytes)> reserve;  // false: nothing was reserved
  std::function<void(int64_t bytes)> release;
};

// The error of a request that the budget has no memory for.
inline absl::Status NoRequestMemory() {
  return absl::ResourceExhaustedError(
      "the requests of the server hold all the memory that they may; retry later");
}

class MemoryHold {
 public:
  explicit MemoryHold(std::shared_ptr<const MemoryBudget> budget) : budget_(std::move(budget)) {}
  ~MemoryHold() { Release(); }
  MemoryHold(const MemoryHold&) = delete;
  MemoryHold& operator=(const MemoryHold&) = delete;
  MemoryHold(MemoryHold&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryHold& operator=(MemoryHold&& other) noexcept {
    if (this == &other) return *this;
    Release();
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  int64_t bytes() const { return bytes_; }

  // Reserves this many more bytes, which must not be negative. False, and nothing changes, if the budget does not have
  // them.
  [[nodiscard]] bool Grow(int64_t bytes) {
    if (bytes == 0) return true;
    if (budget_ != nullptr && budget_->reserve != nullptr && !budget_->reserve(bytes)) return false;
    bytes_ += bytes;
    return true;
  }

  // Gives back what exceeds `bytes`.
  void ShrinkTo(int64_t bytes) {
    if (bytes >= bytes_) return;
    if (budget_ != nullptr && budget_->release != nullptr) budget_->release(bytes_ - bytes);
    bytes_ = bytes;
  }

 private:
  void Release() { ShrinkTo(0); }

  std::shared_ptr<const MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_MEMORY_HOLD_H_
