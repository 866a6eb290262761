#include "bench/run.h"

#include "base/status.h"

namespace sru::bench {

absl::Status CheckRunOptions(const RunOptions& options) {
  if (options.warmup < absl::ZeroDuration() || options.warmup > absl::Hours(24)) {
    return InvalidArgument("--warmup: expected 0s to 24h, found ",
                           absl::FormatDuration(options.warmup));
  }
  if (options.duration <= absl::ZeroDuration() || options.duration > absl::Hours(24)) {
    return InvalidArgument("--duration: expected more than 0s, at most 24h, found ",
                           absl::FormatDuration(options.duration));
  }
  if (options.deadline <= absl::ZeroDuration() ||
      (options.deadline > absl::Hours(24) && options.deadline != absl::InfiniteDuration())) {
    return InvalidArgument("--deadline: expected more than 0s, at most 24h, or inf, found ",
                           absl::FormatDuration(options.deadline));
  }
  return absl::OkStatus();
}

}  // namespace sru::bench
