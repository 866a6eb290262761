#include "server/rpc/memory_options.h"

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(bool, allow_compression, false,
          "Take messages that a client has compressed; without it they get UNIMPLEMENTED. gRPC "
          "checks the length of a message only when it is unpacked, so a caller can make the "
          "server take a thousand times the bytes that it sends: for trusted callers only.");
ABSL_FLAG(int64_t, max_receive_memory_mb, 0,
          "How much gRPC may hold of messages that are still arriving, over all connections, in "
          "units of 10^6 bytes; over it streams are reset. 0 = a quarter of what the process may "
          "take (its control group's limit, or the machine's memory).");
ABSL_FLAG(int64_t, max_inflight_mb, 0,
          "How much calls may hold, from the arrival of their messages until their answers have "
          "left, over all models, in units of 10^6 bytes; over it calls get RESOURCE_EXHAUSTED at "
          "once. 0 = a quarter of what the process may take.");
ABSL_FLAG(double, send_timeout_s, 30,
          "After how many seconds an answer that its client does not take costs the client its "
          "connection. 0 = never.");

namespace sru::server {
namespace {

constexpr const char* kFlagNames[] = {"allow_compression", "max_receive_memory_mb",
                                      "max_inflight_mb", "send_timeout_s"};

constexpr int64_t kMegabyte = 1000000;
constexpr int64_t kMostMegabytes = 1 << 30;
// With less than this, gRPC has no room for the buffers of a few connections.
constexpr int64_t kLeastReceiveMegabytes = 16;
// Less than the largest call takes with the default options.
constexpr int64_t kLeastInflightMegabytes = 1;
constexpr absl::Duration kLeastSendTimeout = absl::Milliseconds(10);
constexpr absl::Duration kMostSendTimeout = absl::Hours(24 * 7);
// Used where the system does not say how much memory there is.
constexpr int64_t kAssumedLimit = int64_t{4} << 30;

// 0 stands for "a quarter".
absl::Status CheckMegabytes(absl::string_view flag, int64_t value, int64_t least) {
  if (value == 0 || (value >= least && value <= kMostMegabytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected 0 or ", least, " to ",
                                                 kMostMegabytes, ", found ", value));
}

}  // namespace

absl::Status ValidateMemoryOptions(const MemoryOptions& o) {
  if (absl::Status status =
          CheckMegabytes("max_receive_memory_mb", o.max_receive_mb, kLeastReceiveMegabytes);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          CheckMegabytes("max_inflight_mb", o.max_inflight_mb, kLeastInflightMegabytes);
      !status.ok()) {
    return status;
  }
  if (o.send_timeout == absl::InfiniteDuration() ||
      (o.send_timeout >= kLeastSendTimeout && o.send_timeout <= kMostSendTimeout)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--send_timeout_s: expected 0 (never) or ", absl::FormatDuration(kLeastSendTimeout), " to ",
      absl::FormatDuration(kMostSendTimeout), ", found ", absl::FormatDuration(o.send_timeout)));
}

absl::Span<const char* const> MemoryFlagNames() { return kFlagNames; }

absl::StatusOr<MemoryOptions> MemoryOptionsFromFlags() {
  MemoryOptions options;
  options.allow_compression = absl::GetFlag(FLAGS_allow_compression);
  options.max_receive_mb = absl::GetFlag(FLAGS_max_receive_memory_mb);
  options.max_inflight_mb = absl::GetFlag(FLAGS_max_inflight_mb);
  const double send_timeout = absl::GetFlag(FLAGS_send_timeout_s);
  options.send_timeout = send_timeout == 0 ? absl::InfiniteDuration() : absl::Seconds(send_timeout);
  if (absl::Status status = ValidateMemoryOptions(options); !status.ok()) return status;
  return options;
}

MemoryBudgets ResolveMemoryBudgets(const MemoryOptions& options, const MemoryLimits& limits) {
  const int64_t quarter = (limits.limit_bytes > 0 ? limits.limit_bytes : kAssumedLimit) / 4;
  MemoryBudgets budgets;
  budgets.receive_bytes = options.max_receive_mb > 0
                              ? options.max_receive_mb * kMegabyte
                              : std::max(quarter, kLeastReceiveMegabytes * kMegabyte);
  budgets.inflight_bytes = options.max_inflight_mb > 0 ? options.max_inflight_mb * kMegabyte
                                                       : std::max(quarter, kMegabyte);
  return budgets;
}

}  // namespace sru::server
