#include "server/base/process_start.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace sru::server {
namespace {

// Of the fields after the program's name: proc(5) numbers them from 3, and `starttime` is the 22nd.
constexpr size_t kStartTimeField = 22 - 3;

absl::Time ReadProcessStartTime() {
  const absl::Time now = absl::Now();
  timespec since_boot{};
  std::ifstream file("/proc/self/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::optional<absl::Duration> start = ParseStartAfterBoot(stat, sysconf(_SC_CLK_TCK));
  if (!start.has_value() || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return now;
  return now - (absl::DurationFromTimespec(since_boot) - *start);
}

}  // namespace

std::optional<absl::Duration> ParseStartAfterBoot(absl::string_view stat,
                                                  int64_t ticks_per_second) {
  // The name stands in parentheses and may itself hold spaces and parentheses.
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos || ticks_per_second <= 0) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  int64_t ticks = 0;
  if (fields.size() <= kStartTimeField || !absl::SimpleAtoi(fields[kStartTimeField], &ticks)) {
    return std::nullopt;
  }
  return absl::Seconds(ticks) / ticks_per_second;
}

absl::Time ProcessStartTime() {
  static const absl::Time start = ReadProcessStartTime();
  return start;
}

}  // namespace sru::server
