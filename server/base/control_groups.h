// The control groups that bound this process, of both versions, also where a container sees its
// group under a path of the host's. Thread-safe.
#ifndef SRU_SERVER_BASE_CONTROL_GROUPS_H_
#define SRU_SERVER_BASE_CONTROL_GROUPS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sru::server {

// A directory with the files of a group.
struct ControlGroup {
  int version = 2;        // 1 or 2, which have other files
  std::string directory;  // ends with '/'
};

// The process's group and all above it, as far up as this process can see. `controller` is "memory"
// or "cpu". `root` is where proc and sys are looked for: tests give a directory of their own.
std::vector<ControlGroup> FindControlGroups(absl::string_view controller, const std::string& root);

// A file of proc or sys, which has no size to ask for; empty when there is none.
std::string ReadSystemFile(const std::string& path);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CONTROL_GROUPS_H_
