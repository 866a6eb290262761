// Which gRPC this is compiled against, and which one runs. Code that differs by version asks
// SRU_GRPC_AT_LEAST; ARCHITECTURE.md lists where. Tested with 1.51 (Debian 12 and 13) and 1.83.
#ifndef SRU_SERVER_COMPAT_GRPC_VERSION_H_
#define SRU_SERVER_COMPAT_GRPC_VERSION_H_

#include <string>

#include "grpcpp/version_info.h"

#define SRU_GRPC_AT_LEAST(major, minor) \
  (GRPC_CPP_VERSION_MAJOR > (major) ||  \
   (GRPC_CPP_VERSION_MAJOR == (major) && GRPC_CPP_VERSION_MINOR >= (minor)))

// Before it, gRPC's public interface lacks what this server needs (certificates and keys that are
// replaced in memory, connections that are handed over, logs through Abseil), so its core is used.
#define SRU_GRPC_IS_CURRENT SRU_GRPC_AT_LEAST(1, 80)

namespace sru::server {

// Of the library that runs, such as "1.83.0"; it may be newer than the one compiled against.
std::string GrpcVersion();

// Whether gRPC withstands what callers without a token could do to it until 2023: floods of headers
// (CVE-2023-33953, CVE-2023-32731) and of streams that are reset (CVE-2023-44487), mended until
// 1.60. By the gRPC that this is compiled against; distributions do not mend 1.51.
inline constexpr bool kGrpcWithstandsFloods = SRU_GRPC_AT_LEAST(1, 60);

}  // namespace sru::server

#endif  // SRU_SERVER_COMPAT_GRPC_VERSION_H_
