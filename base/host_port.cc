#include "base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace sru {

std::optional<HostPort> SplitHostPort(absl::string_view text) {
  HostPort result;
  result.brackets = absl::ConsumePrefix(&text, "[");
  const size_t end = text.find(result.brackets ? ']' : ':');
  result.host = text.substr(0, end);
  if (end == absl::string_view::npos) {
    return result.brackets ? std::nullopt : std::optional<HostPort>(result);
  }
  absl::string_view rest = text.substr(result.brackets ? end + 1 : end);
  if (rest.empty()) return result;
  if (!absl::ConsumePrefix(&rest, ":")) return std::nullopt;
  if (!result.brackets && absl::StrContains(rest, ':')) {
    result.host = text;
  } else {
    result.port = rest;
  }
  return result;
}

bool IsLoopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  return absl::EqualsIgnoreCase(host, "localhost");
}

}  // namespace sru
