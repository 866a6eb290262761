#include "client/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sru::client {

absl::Status CannotBeRead(absl::string_view name, int error) {
  return InvalidArgument(name, ": cannot be read: ", std::strerror(error));
}

absl::StatusOr<std::string> ReadAll(int fd, absl::string_view name) {
  std::string bytes;
  char chunk[65536];
  for (;;) {
    const ssize_t size = read(fd, chunk, sizeof(chunk));
    if (size == 0) return bytes;
    if (size > 0) {
      bytes.append(chunk, static_cast<size_t>(size));
    } else if (errno != EINTR) {
      return CannotBeRead(name, errno);
    }
  }
}

absl::StatusOr<std::string> ReadFile(absl::string_view option, const std::string& path) {
  const std::string name = absl::StrCat(option, ": ", path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotBeRead(name, errno);
  absl::StatusOr<std::string> bytes = ReadAll(fd, name);
  close(fd);
  return bytes;
}

}  // namespace sru::client
