#include "client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::client {
namespace {

// The host of HOST, HOST:PORT, [HOST] or [HOST]:PORT.
absl::string_view HostOf(absl::string_view text) {
  const size_t colon = text.rfind(':');
  // Two colons and no brackets are an IPv6 address without a port.
  const bool has_port =
      colon != absl::string_view::npos && colon > 0 &&
      (absl::StartsWith(text, "[") ? text[colon - 1] == ']' : text.find(':') == colon);
  if (has_port) text = text.substr(0, colon);
  if (absl::ConsumePrefix(&text, "[") && !absl::ConsumeSuffix(&text, "]")) return "";
  return text;
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

}  // namespace

bool StaysOnThisMachine(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) return true;
  if (absl::ConsumePrefix(&target, "dns:")) {
    absl::ConsumePrefix(&target, "///");
    return IsLoopback(std::string(HostOf(target)));
  }
  if (!absl::ConsumePrefix(&target, "ipv4:") && !absl::ConsumePrefix(&target, "ipv6:")) {
    return IsLoopback(std::string(HostOf(target)));
  }
  const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
  return std::all_of(addresses.begin(), addresses.end(), [](absl::string_view address) {
    return IsLoopback(std::string(HostOf(address)));
  });
}

}  // namespace sru::client
