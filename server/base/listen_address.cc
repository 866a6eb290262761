#include "server/base/listen_address.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace sru::server {

std::string ListenAddress::ToString() const {
  if (absl::StartsWith(host, kUnixPrefix)) return host;
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view text) {
  const auto error = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag,
                     ": expected HOST:PORT with a port from 0 to 65535, such as "
                     "0.0.0.0:50051 or [::]:50051, found '",
                     text, "'"));
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
  std::optional<ListenAddress> address;
  if (text.empty()) return address;
  absl::StatusOr<ListenAddress> parsed = ParseListenAddress(flag, text);
  if (!parsed.ok()) return parsed.status();
  address = *std::move(parsed);
  return address;
}

}  // namespace sru::server
