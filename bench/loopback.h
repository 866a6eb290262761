// Resolves addresses of this machine. The load generator overloads servers on purpose, so it must
// not be pointed at other machines.
#ifndef SRU_BENCH_LOOPBACK_H_
#define SRU_BENCH_LOOPBACK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::bench {

// The bytes of a sockaddr.
using SocketAddress = std::string;

// The socket addresses of HOST:PORT or unix:PATH. kInvalidArgument if the target is malformed, or
// if HOST resolves to anything but loopback addresses.
absl::StatusOr<std::vector<SocketAddress>> ResolveLoopback(const std::string& address);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOOPBACK_H_
