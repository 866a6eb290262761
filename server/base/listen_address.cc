#include "server/base/listen_address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status.h"

namespace sru::server {

std::string ListenAddress::ToString() const {
  if (absl::StartsWith(host, kUnixPrefix)) return host;
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view text) {
  const auto error = [&] {
    return InvalidArgument("--", flag,
                           ": expected HOST:PORT with a port from 0 to 65535, such as "
                           "0.0.0.0:50051 or [::]:50051, found '",
                           text, "'");
  };
  if (absl::StartsWith(text, kUnixPrefix)) {
    if (text.size() == kUnixPrefix.size()) return error();
    return ListenAddress{std::string(text), 0};
  }
  const std::optional<HostPort> cut = SplitHostPort(text);
  int port = 0;
  if (!cut.has_value() || cut->host.empty() || !absl::SimpleAtoi(cut->port.value_or(""), &port) ||
      port < 0 || port > 65535) {
    return error();
  }
  return ListenAddress{std::string(cut->host), port};
}

absl::StatusOr<std::optional<ListenAddress>> ParseOptionalListenAddress(absl::string_view flag,
                                                                        absl::string_view text) {
  if (text.empty()) return std::nullopt;
  return ParseListenAddress(flag, text);
}

}  // namespace sru::server
