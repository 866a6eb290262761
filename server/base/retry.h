// When the caller of a refused call should come back: a part of the status, which every door writes
// in its own way (RetryInfo in the details of a status, Retry-After).
#ifndef SRU_SERVER_BASE_RETRY_H_
#define SRU_SERVER_BASE_RETRY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sru::server {

inline constexpr char kRetryPayloadUrl[] = "sru.server.Retry";

// After a refusal for memory: calls of a usual size finish within that time.
inline constexpr absl::Duration kMemoryRetryAfter = absl::Milliseconds(100);

// After a refusal of a stream because of those that are open: they end at any time.
inline constexpr absl::Duration kStreamRetryAfter = absl::Seconds(1);

// The status with this time, which lies between 0 and a day.
inline absl::Status RetryAfter(absl::Status status, absl::Duration delay) {
  const absl::Duration within = std::clamp(delay, absl::ZeroDuration(), absl::Hours(24));
  status.SetPayload(kRetryPayloadUrl, absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(within))));
  return status;
}

// The time that RetryAfter() has set; empty: waiting may not help.
inline std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRetryPayloadUrl);
  int64_t nanoseconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &nanoseconds)) {
    return std::nullopt;
  }
  return absl::Nanoseconds(nanoseconds);
}

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_RETRY_H_
