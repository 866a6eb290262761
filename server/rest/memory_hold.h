// MemoryHold: what one HTTP request has reserved of the memory that all calls may hold together.
// Its destructor gives it back. At first a request may have to share a part of that memory with
// others of its kind. Not thread-safe.
#ifndef SRU_SERVER_REST_MEMORY_HOLD_H_
#define SRU_SERVER_REST_MEMORY_HOLD_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/retry.h"
#include "server/callers/caller.h"
#include "server/calls/byte_budget.h"

namespace sru::server::rest {

class MemoryHold {
 public:
  // `budget` must outlive it; null: there is no limit. `caller`: whose share of it is bounded; may
  // be null. `part` must outlive it, or the time until LeavePart(); null: none.
  explicit MemoryHold(calls::ByteBudget* budget, callers::CallerPtr caller = nullptr,
                      calls::ByteBudget* part = nullptr)
      : budget_(budget), caller_(std::move(caller)), held_(budget), part_budget_(part) {
    if (caller_ != nullptr) held_.SetShare(&caller_->memory());
    if (part != nullptr) part_.emplace(part);
  }

  int64_t bytes() const { return held_.bytes(); }

  // Reserves this many more bytes, which must not be negative. False, and nothing changes, if the
  // budget does not have them.
  [[nodiscard]] bool Grow(int64_t bytes) {
    if (bytes == 0) return true;
    if (!part_.has_value() || part_->Grow(bytes)) {
      if (held_.Grow(bytes)) return true;
      if (part_.has_value()) part_->ShrinkTo(held_.bytes());
    }
    refused_ = held_.bytes() + bytes;
    return false;
  }

  // The error of a request for which Grow() returned false.
  absl::Status NoMemory() const {
    if (in_part() && refused_ > part_budget_->limit()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory: the request would take at least ", refused_,
                       " bytes, all requests without the header Authorization may take ",
                       part_budget_->limit(), " until it is known who calls; send the header"));
    }
    if (budget_ != nullptr && refused_ > budget_->most_of_caller()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory: the request would take at least ", refused_,
                       " bytes, those of one caller may take ", budget_->most_of_caller(), " of ",
                       budget_->limit(), " (--max_inflight_mb); send smaller requests"));
    }
    return RetryAfter(
        absl::ResourceExhaustedError(
            "the requests of the server hold all the memory that they may; retry later"),
        kMemoryRetryAfter);
  }

  // Gives back what exceeds `bytes`.
  void ShrinkTo(int64_t bytes) {
    held_.ShrinkTo(bytes);
    if (part_.has_value()) part_->ShrinkTo(bytes);
  }

  // It had none.
  void SetCaller(callers::CallerPtr caller) {
    caller_ = std::move(caller);
    held_.SetShare(&caller_->memory());
  }

  bool in_part() const { return part_.has_value(); }
  // From now on all of the budget is there.
  void LeavePart() { part_.reset(); }

 private:
  calls::ByteBudget* const budget_;
  callers::CallerPtr caller_;
  calls::ByteReservation held_;
  calls::ByteBudget* const part_budget_;
  std::optional<calls::ByteReservation> part_;  // as much as held_
  int64_t refused_ = 0;  // what it would have had after the last Grow() that returned false
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_MEMORY_HOLD_H_
