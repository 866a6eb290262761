// Keeps the keys of states as --state_key_file has them.
#ifndef SRU_SERVER_WIRING_STATE_KEY_FILE_H_
#define SRU_SERVER_WIRING_STATE_KEY_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/state_keys.h"
#include "server/base/file_watcher.h"
#include "server/transport/security_metrics.h"

namespace sru::server::wiring {

// Reads the file and lets `watcher` put what it holds later into the result; a bad change leaves
// the earlier keys in use, with a line in the log. `metrics` counts the changes. Null for an empty
// path. Errors name the flag: kInvalidArgument also when others than the file's owner and group may
// read or write it.
absl::StatusOr<std::shared_ptr<models::StateKeys>> WatchStateKeys(
    const std::string& path, FileWatcher* watcher, transport::SecurityMetrics* metrics);

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_STATE_KEY_FILE_H_
