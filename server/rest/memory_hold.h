// MemoryHold: what one HTTP request has reserved of the memory that all calls may hold together. Its destructor gives
// it back. Movable; not thread-safe.
#ifndef SRU_SERVER_REST_MEMORY_HOLD_H_
#define SRU_SERVER_REST_MEMORY_HOLD_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sru::server::rest {

// The budget that holds are taken from. Both functions are thread-safe; null functions: there is no limit.
struct MemoryBudget {
  std::function<bool(int64_t bytes)> reserve;  // false: nothing was reserved
  std::function<void(int64_t bytes)> release;
  int64_t limit = std::numeric_limits<int64_t>::max();  // what all holds may have together
};

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
    if (budget_ != nullptr && budget_->reserve != nullptr && !budget_->reserve(bytes)) {
      refused_ = bytes_ + bytes;
      return false;
    }
    bytes_ += bytes;
    return true;
  }

  // The error of a request for which Grow() returned false.
  absl::Status NoMemory() const {
    if (budget_ != nullptr && refused_ > budget_->limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory: the request would take at least ", refused_,
                       " bytes, all calls together may take ", budget_->limit,
                       " (--max_inflight_mb); send smaller requests"));
    }
    return absl::ResourceExhaustedError(
        "the requests of the server hold all the memory that they may; retry later");
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
  int64_t refused_ = 0;  // what it would have had after the last Grow() that returned false
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_MEMORY_HOLD_H_
