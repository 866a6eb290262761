#include "client/commands/state_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sru::client {

absl::StatusOr<std::string> ReadState(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string state(std::istreambuf_iterator<char>(file), {});
  if (!file.good() && !file.eof()) {
    return InvalidArgument("--state_in: ", path, " cannot be read: ", std::strerror(errno));
  }
  if (state.empty()) {
    return InvalidArgument("--state_in: ", path,
                           " is empty; expected what --state_out has written");
  }
  return state;
}

absl::Status WriteState(const std::string& path, const std::string& state) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << state;
  file.close();
  if (file && std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string reason = std::strerror(errno);
  std::remove(temporary.c_str());
  return absl::UnknownError(absl::StrCat("--state_out: ", path, " cannot be written: ", reason));
}

}  // namespace sru::client
