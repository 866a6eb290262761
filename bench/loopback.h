// Addresses of this machine. The load generator makes overload on purpose, so it must not be
// pointed at others.
#ifndef SRU_BENCH_LOOPBACK_H_
#define SRU_BENCH_LOOPBACK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::bench {

// Bytes of a sockaddr.
using SocketAddress = std::string;

// The socket addresses of HOST:PORT or unix:PATH. kInvalidArgument when it is written wrongly, or
// when HOST resolves to anything but loopback addresses.
absl::StatusOr<std::vector<SocketAddress>> ResolveLoopback(const std::string& address);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOOPBACK_H_
