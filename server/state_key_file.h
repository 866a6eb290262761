// Keeps the keys of states as --state_key_file has them.
#ifndef SRU_SERVER_STATE_KEY_FILE_H_
#define SRU_SERVER_STATE_KEY_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/state_keys.h"
#include "server/base/file_watcher.h"

namespace sru::server {

// Reads the file and lets `watcher` put what it holds later into the result; a bad change leaves the earlier keys in use, with a line in
// the log. Null for an empty path. Errors name the flag: kInvalidArgument also when others than the file's owner and group may
// read or write it.
absl::StatusOr<std::shared_ptr<models::StateKeys>> WatchStateKeys(const std::string& path,
                                                                  FileWatcher* watcher);

}  // namespace sru::server

#endif  // SRU_SERVER_STATE_KEY_FILE_H_
