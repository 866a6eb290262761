// ByteBudget: how many bytes the calls of the process may hold together. A call reserves what it is
// about to take, before it takes it, and gives it back with its reservation; what would go over the
// budget is refused. One atomic addition per change: cheap enough for every call.
//
//   ByteReservation held(&budget);
//   if (!held.Grow(EstimateCallBytes(outline))) return refused;
//   ...
//   held.ShrinkTo(answer.Length());
//
// The bytes are estimates by those who reserve, on the safe side; nothing else is counted.
#ifndef SRU_SERVER_RPC_BYTE_BUDGET_H_
#define SRU_SERVER_RPC_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace sru::server {

// Thread-safe. Must outlive its reservations.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class ByteReservation;

  // False when that would go over the limit; nothing is reserved then. For a moment others may see
  // what was refused as used, so that near the limit a call may be refused that would just have
  // fitted, never the reverse.
  bool Reserve(int64_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// What one call has reserved; gives it back at its end. Not thread-safe.
class ByteReservation {
 public:
  explicit ByteReservation(ByteBudget* budget) : budget_(*budget) {}
  ~ByteReservation() { ShrinkTo(0); }
  ByteReservation(const ByteReservation&) = delete;
  ByteReservation& operator=(const ByteReservation&) = delete;

  int64_t bytes() const { return bytes_; }

  // Reserves so many more, not negative. False when the budget does not have them: nothing changes.
  [[nodiscard]] bool Grow(int64_t bytes) {
    if (!budget_.Reserve(bytes)) return false;
    bytes_ += bytes;
    return true;
  }

  // Gives back what is over `bytes`.
  void ShrinkTo(int64_t bytes) {
    if (bytes >= bytes_) return;
    budget_.Release(bytes_ - bytes);
    bytes_ = bytes;
  }

 private:
  ByteBudget& budget_;
  int64_t bytes_ = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_BYTE_BUDGET_H_
