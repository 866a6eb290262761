// The reasons for which a call is refused before it is queued: one entry each, with its name in
// sru_rejections_total and the code that the caller gets. Code that refuses a call makes the status
// with MakeRefusal() and counts it once: the batcher in its stats, anything before the batcher in
// the metrics of the model or in those of calls without a model. Thread-safe.
#ifndef SRU_SERVER_BATCHING_QUEUE_REJECT_REASON_H_
#define SRU_SERVER_BATCHING_QUEUE_REJECT_REASON_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace sru::server::batching {

enum class RejectReason { kQueueFull, kDeadline, kDraining, kNoWorker, kMemory, kStreams };

struct RejectReasonInfo {
  const char* name = nullptr;  // the value of the label `reason` of sru_rejections_total
  // What the caller gets. RESOURCE_EXHAUSTED may say when to come back.
  absl::StatusCode code = absl::StatusCode::kUnknown;
};

// The table of reasons. The compiler warns when a reason is missing.
constexpr RejectReasonInfo Describe(RejectReason reason) {
  switch (reason) {
    case RejectReason::kQueueFull:  // the queue's bound on tokens or on sequences would be passed
      return {"queue_full", absl::StatusCode::kResourceExhausted};
    case RejectReason::kDeadline:  // by the measured speed, the request would be late
      return {"deadline", absl::StatusCode::kResourceExhausted};
    case RejectReason::kDraining:  // the server is shutting down
      return {"draining", absl::StatusCode::kUnavailable};
    case RejectReason::kNoWorker:  // every device has failed
      return {"no_worker", absl::StatusCode::kUnavailable};
    case RejectReason::kMemory:  // the calls of the server may not hold more memory
      return {"memory", absl::StatusCode::kResourceExhausted};
    case RejectReason::kStreams:  // as many streams are open as may be
      return {"streams", absl::StatusCode::kResourceExhausted};
  }
  return {};
}

inline constexpr size_t kNumRejectReasons = [] {
  size_t count = 0;
  while (Describe(static_cast<RejectReason>(count)).name != nullptr) ++count;
  return count;
}();

inline constexpr std::array<RejectReason, kNumRejectReasons> kRejectReasons = [] {
  std::array<RejectReason, kNumRejectReasons> reasons{};
  for (size_t i = 0; i < kNumRejectReasons; ++i) reasons[i] = static_cast<RejectReason>(i);
  return reasons;
}();

inline constexpr char kReasonPayloadUrl[] = "sru.server.RejectReason";

// A status with the reason's code, from which GetRejectReason() gives the reason back.
inline absl::Status MakeRefusal(RejectReason reason, absl::string_view message) {
  const RejectReasonInfo info = Describe(reason);
  absl::Status status(info.code, message);
  status.SetPayload(kReasonPayloadUrl, absl::Cord(info.name));
  return status;
}
// Empty for a status that MakeRefusal() did not make.
inline std::optional<RejectReason> GetRejectReason(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kReasonPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  for (const RejectReason reason : kRejectReasons) {
    if (*payload == Describe(reason).name) return reason;
  }
  return std::nullopt;
}

// How many calls were refused, by reason.
class RejectCounts {
 public:
  int64_t& operator[](RejectReason reason) { return counts_[static_cast<size_t>(reason)]; }
  int64_t operator[](RejectReason reason) const { return counts_[static_cast<size_t>(reason)]; }

 private:
  std::array<int64_t, kNumRejectReasons> counts_{};
};

// The same, counted by many threads.
class RejectCounters {
 public:
  void Count(RejectReason reason) {
    counters_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  RejectCounts counts() const {
    RejectCounts counts;
    for (const RejectReason reason : kRejectReasons) {
      counts[reason] = counters_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
    }
    return counts;
  }

 private:
  std::array<std::atomic<int64_t>, kNumRejectReasons> counters_{};
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_REJECT_REASON_H_
