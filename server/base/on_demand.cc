#include "server/base/on_demand.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/status.h"

namespace sru::server {

absl::Status WriteAddressFile(const std::string& path, absl::string_view address) {
  if (path.empty()) return absl::OkStatus();
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished);
  if (!address.empty()) file << address << "\n";
  file.close();
  if (file.fail() || (!address.empty() && std::rename(unfinished.c_str(), path.c_str()) != 0)) {
    return InvalidArgument("--address_file: expected a path where the server may write, found ",
                           path, ": ", std::strerror(errno));
  }
  return absl::OkStatus();
}

void RemoveAddressFile(const std::string& path, absl::string_view address) {
  std::string found;
  if (std::getline(std::ifstream(path), found) && found == address) std::remove(path.c_str());
}

absl::Status WatchLock(const std::string& path, std::function<void()> unused) {
  if (path.empty()) return absl::OkStatus();
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return InvalidArgument("--while_locked: expected a file that the server may write, found ",
                           path, ": ", std::strerror(errno));
  }
  std::thread([file, unused = std::move(unused)] {
    while (flock(file, LOCK_EX) != 0 && errno == EINTR) {
    }
    unused();
  }).detach();
  return absl::OkStatus();
}

}  // namespace sru::server
