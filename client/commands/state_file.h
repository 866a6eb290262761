// Files that hold a state of a language model: --state_in and --state_out.
#ifndef SRU_CLIENT_COMMANDS_STATE_FILE_H_
#define SRU_CLIENT_COMMANDS_STATE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace sru::client {

// Leaves `state` as it is without a path. kInvalidArgument, naming --state_in, if the file cannot
// be read or is empty.
absl::Status ReadState(const std::string& path, std::string* state);

// Replaces the file, or the one that a symbolic link leads to, in one step, so that it is never
// half a state. A device or a pipe is written to.
absl::Status WriteState(const std::string& path, const std::string& state);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_STATE_FILE_H_
