#include "server/base/listen_address.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return error();
  absl::string_view host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return error();
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return error();
  }
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 0 || port > 65535) return error();
  return ListenAddress{std::string(host), port};
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
