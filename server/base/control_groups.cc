#include "server/base/control_groups.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::server {
namespace {

bool HasWord(absl::string_view list, absl::string_view word) {
  return absl::c_linear_search(std::vector<absl::string_view>(absl::StrSplit(list, ',')), word);
}

// Where the groups of a version are mounted, and the group that the top of that stands for: a
// container's is not the machine's.
std::pair<std::string, std::string> FindMount(int version, absl::string_view controller,
                                              const std::string& root) {
  const absl::string_view file_system = version == 1 ? "cgroup" : "cgroup2";
  const std::string mounts = ReadSystemFile(root + "/proc/self/mountinfo");
  for (absl::string_view line : absl::StrSplit(mounts, '\n')) {
    // 36 35 0:29 ROOT MOUNT options optional... - TYPE source super_options
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> type = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 5 || type.size() < 3 || type[0] != file_system) continue;
    // Each controller of version 1 has a file system of its own.
    if (version == 1 && !HasWord(type[2], controller)) continue;
    return {std::string(mount[4]), std::string(mount[3])};
  }
  // Where it is when mountinfo does not say.
  return {version == 1 ? absl::StrCat("/sys/fs/cgroup/", controller) : "/sys/fs/cgroup", "/"};
}

}  // namespace

std::string ReadSystemFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<ControlGroup> FindControlGroups(absl::string_view controller,
                                            const std::string& root_path) {
  const std::string root(absl::StripSuffix(root_path, "/"));
  std::vector<ControlGroup> groups;
  const std::string own = ReadSystemFile(root + "/proc/self/cgroup");
  for (absl::string_view line : absl::StrSplit(own, '\n')) {
    // number:controllers:path, where version 2 is number 0 and has no controllers.
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const int version = parts[0] == "0" && parts[1].empty() ? 2 : 1;
    if (version == 1 && !HasWord(parts[1], controller)) continue;
    absl::string_view path = parts[2];
    const auto [mount, top] = FindMount(version, controller, root);
    // The path is the host's; what the mount shows begins at `top`. A path that is not below it
    // comes from a group name space that begins there already.
    if (top != "/" && (path == top || absl::StartsWith(path, top + "/"))) {
      path.remove_prefix(top.size());
    }
    while (true) {
      path = absl::StripSuffix(path, "/");
      groups.push_back({version, absl::StrCat(root, mount, path, "/")});
      if (path.empty()) break;
      path = path.substr(0, path.rfind('/') + 1);
    }
  }
  return groups;
}

}  // namespace sru::server
