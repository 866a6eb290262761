#include "server/base/memory_limit.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/base/control_groups.h"

namespace sru::server {
namespace {

// The names that a version of control groups has for the same things.
struct GroupFiles {
  absl::string_view limit;          // bytes, or "max"
  absl::string_view used;           // bytes
  absl::string_view inactive_file;  // the line of memory.stat, over all groups below
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(ReadSystemFile(path), &value) || value < 0) return std::nullopt;
  return value;
}

// The number after `key` on a line of its own; the unit, if there is one, is left to the caller.
std::optional<int64_t> FindNumber(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t:"), absl::SkipEmpty());
    int64_t value = 0;
    if (words.size() >= 2 && words[0] == key && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return std::nullopt;
}

}  // namespace

MemoryLimits ReadMemoryLimits(const std::string& root) {
  std::optional<MemoryLimits> limits;
  const auto add_level = [&limits](int64_t limit, int64_t used) {
    used = std::clamp<int64_t>(used, 0, limit);
    if (!limits.has_value()) limits = {limit, used, limit - used};
    if (limit < limits->limit_bytes) {
      limits->limit_bytes = limit;
      limits->used_bytes = used;
    }
    limits->available_bytes = std::min(limits->available_bytes, limit - used);
  };
  const std::string memory = ReadSystemFile(absl::StrCat(root, "/proc/meminfo"));
  const std::optional<int64_t> total = FindNumber(memory, "MemTotal");
  const std::optional<int64_t> available = FindNumber(memory, "MemAvailable");
  if (total.has_value()) add_level(*total << 10, (*total - available.value_or(*total)) << 10);
  for (const auto& [version, directory] : FindControlGroups("memory", root)) {
    const GroupFiles& files = version == 1 ? kVersion1 : kVersion2;
    const std::optional<int64_t> limit = ReadNumber(absl::StrCat(directory, files.limit));
    // Without a limit version 2 says "max" and version 1 a number near 2^63.
    if (!limit.has_value() || *limit >= int64_t{1} << 62) continue;
    const std::optional<int64_t> used = ReadNumber(absl::StrCat(directory, files.used));
    const int64_t inactive =
        FindNumber(ReadSystemFile(directory + "memory.stat"), files.inactive_file).value_or(0);
    add_level(*limit, used.value_or(0) - inactive);
  }
  return limits.value_or(MemoryLimits());
}

}  // namespace sru::server
