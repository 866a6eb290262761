#include "server/transport/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sru::server::transport {
namespace {

constexpr rlim_t kMostFiles = 1 << 20;
// Descriptors that an idle server has open below those that it keeps back.
constexpr int kOwnFiles = 16;
constexpr int kLeastConnections = 16;
// With fewer, clients may soon be refused.
constexpr int kFewConnections = 256;
// A connection of HTTP/2 without a call takes so much, with its sessions of nghttp2, its table of
// headers full, and of OpenSSL.
constexpr int64_t kConnectionBytes = 28 << 10;
constexpr int64_t kTlsConnectionBytes = 48 << 10;
constexpr int64_t kMemoryShare = 8;

}  // namespace

int FileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min(limit.rlim_cur, kMostFiles));
}

int RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMostFiles));
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return FileLimit();
}

int ConnectionsWithin(int file_limit) {
  return std::max(0, file_limit - kReservedFiles - kOwnFiles);
}

int ConnectionsWithinMemory(int max_connections, bool has_tls, int64_t memory_bytes) {
  if (memory_bytes <= 0) return max_connections;
  const int64_t held =
      memory_bytes / kMemoryShare / (has_tls ? kTlsConnectionBytes : kConnectionBytes);
  const auto most = std::clamp<int64_t>(held, kLeastConnections, kMostFiles);
  return max_connections > 0 && max_connections <= most ? max_connections : static_cast<int>(most);
}

absl::Status CheckFileLimit(int file_limit) {
  if (ConnectionsWithin(file_limit) >= kLeastConnections) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("limit of open files (ulimit -n): expected at least ",
                   kReservedFiles + kOwnFiles + kLeastConnections, ", found ", file_limit,
                   ", which leaves ", ConnectionsWithin(file_limit), " connections"));
}

std::string FileLimitWarning(int file_limit, int max_connections) {
  const int connections = ConnectionsWithin(file_limit);
  const int wanted =
      max_connections > 0 ? std::min(max_connections, kFewConnections) : kFewConnections;
  if (connections >= wanted) return "";
  return absl::StrCat("the limit of ", file_limit, " open files (ulimit -n) leaves about ",
                      connections, " connections; further ones are refused");
}

}  // namespace sru::server::transport
