// How many connections the system's limits allow: of open files (ulimit -n) and of memory.
#ifndef SRU_SERVER_TRANSPORT_FILE_LIMIT_H_
#define SRU_SERVER_TRANSPORT_FILE_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sru::server::transport {

// Descriptors that connections of callers leave to the metrics port, files and gRPC itself.
inline constexpr int kReservedFiles = 64;

// The limit of open files.
int FileLimit();
// The same, raised to what the process may have.
int RaiseFileLimit();

// How many connections there may be at least with so many open files.
int ConnectionsWithin(int file_limit);

// How many of `max_connections` (0 = no limit) an eighth of the process' memory holds while nothing
// is sent on them, at least 16: 48 KiB each with TLS, 28 KiB without. 0 bytes = unknown: all.
int ConnectionsWithinMemory(int max_connections, bool has_tls, int64_t memory_bytes);

// kFailedPrecondition when so few connections would be left that serving makes no sense.
absl::Status CheckFileLimit(int file_limit);

// What to tell the operator when the limit is unusually low; else empty. `max_connections` is the
// option, 0 = no limit of its own.
std::string FileLimitWarning(int file_limit, int max_connections);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_FILE_LIMIT_H_
