// Reads whole files without exceptions: std::istreambuf_iterator throws for a directory.
#ifndef SRU_CLIENT_READ_FILE_H_
#define SRU_CLIENT_READ_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::client {

// kInvalidArgument: "NAME: cannot be read: " and the reason, which is a value of errno.
absl::Status CannotBeRead(absl::string_view name, int error);

// The bytes of a descriptor until its end. CannotBeRead() if a read fails.
absl::StatusOr<std::string> ReadAll(int fd, absl::string_view name);

// The bytes of a file. CannotBeRead(), with "OPTION: PATH" as the name, if it cannot be opened or a
// read fails.
absl::StatusOr<std::string> ReadFile(absl::string_view option, const std::string& path);

}  // namespace sru::client

#endif  // SRU_CLIENT_READ_FILE_H_
