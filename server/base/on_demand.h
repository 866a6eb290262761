// What programs need that start a server on demand and share it: where it listens, and its end once
// nobody uses it.
#ifndef SRU_SERVER_BASE_ON_DEMAND_H_
#define SRU_SERVER_BASE_ON_DEMAND_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sru::server {

// Writes --address_file. A reader sees the whole line or no file. With an empty address, only sees
// that the file can be written; with an empty path, does nothing. kInvalidArgument names the flag.
absl::Status WriteAddressFile(const std::string& path, absl::string_view address);

// Removes the file, unless another server has written its own address there.
void RemoveAddressFile(const std::string& path, absl::string_view address);

// Calls `unused` once, on a thread of its own, when no process holds a lock (flock) on the file of
// --while_locked. This process then keeps the lock until it ends, so that who asks for one waits
// until the server is gone. Does nothing for an empty path. kInvalidArgument names the flag.
absl::Status WatchLock(const std::string& path, std::function<void()> unused);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_ON_DEMAND_H_
