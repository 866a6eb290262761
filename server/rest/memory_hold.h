// MemoryHold: what one HTTP request has reserved of the memory that all calls may hold together. Its destructor gives
// it back. Not thread-safe.
#ifndef SRU_SERVER_REST_MEMORY_HOLD_H_
#define SRU_SERVER_REST_MEMORY_HOLD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/calls/bounds/byte_budget.h"

namespace sru::server::rest {

class MemoryHold {
 public:
  // `budget` must outlive it; null: there is no limit.
  explicit MemoryHold(calls::ByteBudget* budget) : budget_(budget), held_(budget) {}

  int64_t bytes() const { return held_.bytes(); }

  // Reserves this many more bytes, which must not be negative. False, and nothing changes, if the budget does not have
  // them.
  [[nodiscard]] bool Grow(int64_t bytes) {
    if (bytes == 0 || held_.Grow(bytes)) return true;
    refused_ = held_.bytes() + bytes;
    return false;
  }

  // The error of a request for which Grow() returned false.
  absl::Status NoMemory() const {
    if (budget_ != nullptr && refused_ > budget_->limit()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory: the request would take at least ", refused_,
                       " bytes, all calls together may take ", budget_->limit(),
                       " (--max_inflight_mb); send smaller requests"));
    }
    return absl::ResourceExhaustedError(
        "the requests of the server hold all the memory that they may; retry later");
  }

  // Gives back what exceeds `bytes`.
  void ShrinkTo(int64_t bytes) { held_.ShrinkTo(bytes); }

 private:
  calls::ByteBudget* const budget_;
  calls::ByteReservation held_;
  int64_t refused_ = 0;  // what it would have had after the last Grow() that returned false
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_MEMORY_HOLD_H_
