// ByteBudget: bounds the bytes that all calls of the process hold together. A call reserves memory
// before it takes it and gives it back with its reservation; a reservation that would exceed the
// budget is refused. A change costs one atomic addition: cheap enough for every call.
//
//   ByteReservation held(&budget);
//   if (!held.Grow(EstimateCallBytes(outline))) return refused;
//   ...
//   held.ShrinkTo(answer.Length());
//
// The bytes are what callers reserve, which are estimates on the safe side; nothing else is
// counted.
#ifndef SRU_SERVER_CALLS_BYTE_BUDGET_H_
#define SRU_SERVER_CALLS_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace sru::server::calls {

// The share of a budget that one caller holds: at most kMost times what is free, so that there is
// always something left for others. Alone it gets four fifths, one of two four ninths.
class ByteShare {
 public:
  static constexpr int64_t kMost = 4;

  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  friend class ByteReservation;

  std::atomic<int64_t> held_{0};
};

// Thread-safe. Must outlive its reservations.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  virtual ~ByteBudget() = default;
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  int64_t limit() const { return limit_; }
  // A caller who is alone may hold so much (ByteShare).
  int64_t most_of_caller() const {
    return limit_ - (limit_ + ByteShare::kMost) / (ByteShare::kMost + 1);
  }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 protected:
  friend class ByteReservation;

  // Returns false and reserves nothing if that would exceed the limit. For a moment other threads
  // may see the refused bytes as used, so near the limit a call that would just have fitted may be
  // refused, but never the reverse.
  virtual bool Reserve(int64_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }

 private:
  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// The bytes that one call has reserved; its destructor gives them back. Not thread-safe.
class ByteReservation {
 public:
  // Null: there is no limit. With a share, which must outlive it, that bounds it too.
  explicit ByteReservation(ByteBudget* budget, ByteShare* share = nullptr)
      : budget_(budget), share_(budget == nullptr ? nullptr : share) {}
  ~ByteReservation() { ShrinkTo(0); }
  ByteReservation(const ByteReservation&) = delete;
  ByteReservation& operator=(const ByteReservation&) = delete;

  int64_t bytes() const { return bytes_; }

  // Reserves this many more bytes, which must not be negative. Returns false and changes nothing if
  // the budget does not have them.
  [[nodiscard]] bool Grow(int64_t bytes) {
    if (budget_ != nullptr && !budget_->Reserve(bytes)) return false;
    if (share_ != nullptr) {
      const int64_t held = share_->held_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      if (held > ByteShare::kMost * (budget_->limit() - budget_->used())) {
        share_->held_.fetch_sub(bytes, std::memory_order_relaxed);
        budget_->Release(bytes);
        return false;
      }
    }
    bytes_ += bytes;
    return true;
  }

  // Counts its bytes for this share from now on. It has no share yet.
  void SetShare(ByteShare* share) {
    if (budget_ == nullptr) return;
    share_ = share;
    share_->held_.fetch_add(bytes_, std::memory_order_relaxed);
  }

  // Gives back whatever exceeds `bytes`.
  void ShrinkTo(int64_t bytes) {
    if (bytes >= bytes_) return;
    if (budget_ != nullptr) budget_->Release(bytes_ - bytes);
    if (share_ != nullptr) share_->held_.fetch_sub(bytes_ - bytes, std::memory_order_relaxed);
    bytes_ = bytes;
  }

 private:
  ByteBudget* const budget_;
  ByteShare* share_;
  int64_t bytes_ = 0;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BYTE_BUDGET_H_
