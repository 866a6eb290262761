#include "server/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sru::server {
namespace {

// The names that a version of control groups has for the same things.
struct GroupFiles {
  absl::string_view file_system;    // in mountinfo
  absl::string_view usual_mount;    // where the file system is when mountinfo does not say
  absl::string_view limit;          // bytes, or "max"
  absl::string_view used;           // bytes
  absl::string_view inactive_file;  // the line of memory.stat, over all groups below
};
constexpr GroupFiles kVersion1 = {"cgroup", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"cgroup2", "/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};

// Files of proc and sys have no size to ask for. Empty when there is none.
std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(ReadFile(path), &value) || value < 0) return std::nullopt;
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

bool HasWord(absl::string_view list, absl::string_view word) {
  for (absl::string_view entry : absl::StrSplit(list, ',')) {
    if (entry == word) return true;
  }
  return false;
}

class Reader {
 public:
  explicit Reader(const std::string& root) : root_(absl::StripSuffix(root, "/")) {}

  MemoryLimits Read() {
    const std::string memory = ReadFile(root_ + "/proc/meminfo");
    const std::optional<int64_t> total = FindNumber(memory, "MemTotal");
    const std::optional<int64_t> available = FindNumber(memory, "MemAvailable");
    if (total.has_value()) AddLevel(*total << 10, (*total - available.value_or(*total)) << 10);
    for (absl::string_view line : absl::StrSplit(ReadFile(root_ + "/proc/self/cgroup"), '\n')) {
      // number:controllers:path, where version 2 is number 0 and has no controllers.
      const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
      if (parts.size() != 3) continue;
      if (parts[0] == "0" && parts[1].empty()) AddGroups(kVersion2, parts[2]);
      if (HasWord(parts[1], "memory")) AddGroups(kVersion1, parts[2]);
    }
    return limits_;
  }

 private:
  void AddLevel(int64_t limit, int64_t used) {
    used = std::clamp<int64_t>(used, 0, limit);
    if (!any_ || limit < limits_.limit_bytes) {
      limits_.limit_bytes = limit;
      limits_.used_bytes = used;
    }
    const int64_t available = limit - used;
    limits_.available_bytes = any_ ? std::min(limits_.available_bytes, available) : available;
    any_ = true;
  }

  // The mount of the file system, and the group that its top stands for: a container's is not the
  // machine's.
  std::pair<std::string, std::string> FindMount(const GroupFiles& files) const {
    for (absl::string_view line : absl::StrSplit(ReadFile(root_ + "/proc/self/mountinfo"), '\n')) {
      // 36 35 0:29 ROOT MOUNT options optional... - TYPE source super_options
      const std::pair<absl::string_view, absl::string_view> halves =
          absl::StrSplit(line, absl::MaxSplits(" - ", 1));
      const std::vector<absl::string_view> mount = absl::StrSplit(halves.first, ' ');
      const std::vector<absl::string_view> type = absl::StrSplit(halves.second, ' ');
      if (mount.size() < 5 || type.size() < 3 || type[0] != files.file_system) continue;
      // Each controller of version 1 has a file system of its own.
      if (files.file_system == kVersion1.file_system && !HasWord(type[2], "memory")) continue;
      return {std::string(mount[4]), std::string(mount[3])};
    }
    return {std::string(files.usual_mount), "/"};
  }

  // The group and all above it, as far up as this process can see.
  void AddGroups(const GroupFiles& files, absl::string_view path) {
    const auto [mount, top] = FindMount(files);
    if (top != "/") {
      // The path is the host's; what the mount shows begins at `top`. A path that is not below it
      // comes from a group name space that begins there already.
      if (path == top) {
        path = "/";
      } else if (absl::StartsWith(path, top + "/")) {
        path.remove_prefix(top.size());
      }
    }
    while (true) {
      path = absl::StripSuffix(path, "/");
      AddGroup(files, absl::StrCat(root_, mount, path, "/"));
      if (path.empty()) return;
      path = path.substr(0, path.rfind('/') + 1);
    }
  }

  void AddGroup(const GroupFiles& files, const std::string& directory) {
    const std::optional<int64_t> limit = ReadNumber(absl::StrCat(directory, files.limit));
    // Without a limit version 2 says "max" and version 1 a number near 2^63.
    if (!limit.has_value() || *limit >= int64_t{1} << 62) return;
    const std::optional<int64_t> used = ReadNumber(absl::StrCat(directory, files.used));
    const int64_t inactive =
        FindNumber(ReadFile(directory + "memory.stat"), files.inactive_file).value_or(0);
    AddLevel(*limit, used.value_or(0) - inactive);
  }

  const std::string root_;
  MemoryLimits limits_;
  bool any_ = false;
};

}  // namespace

MemoryLimits ReadMemoryLimits(const std::string& root) { return Reader(root).Read(); }

}  // namespace sru::server
