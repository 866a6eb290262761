#include "client/commands/state_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/read_file.h"

namespace sru::client {

absl::Status ReadState(const std::string& path, std::string* state) {
  if (path.empty()) return absl::OkStatus();
  SRU_ASSIGN_OR_RETURN(*state, ReadFile("--state_in", path));
  if (!state->empty()) return absl::OkStatus();
  return InvalidArgument("--state_in: ", path, " is empty; expected what --state_out has written");
}

absl::Status WriteState(const std::string& path, const std::string& state) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool in_place = std::filesystem::exists(status) && !is_regular_file(status);
  std::string target = in_place ? path : std::filesystem::canonical(path, error).string();
  if (target.empty()) target = path;  // there is no such file yet
  const std::string written = in_place ? target : absl::StrCat(target, ".", getpid());
  std::ofstream file(written, std::ios::binary);
  file << state;
  file.close();
  if (file && (in_place || std::rename(written.c_str(), target.c_str()) == 0)) {
    return absl::OkStatus();
  }
  const std::string reason = std::strerror(errno);
  if (!in_place) std::remove(written.c_str());
  return absl::UnknownError(absl::StrCat("--state_out: ", path, " cannot be written: ", reason));
}

}  // namespace sru::client
