#include "client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::client {
namespace {

constexpr char kDefaultPort[] = "https";

bool IsIpv4(const std::string& text, in_addr* address) {
  return inet_pton(AF_INET, text.c_str(), address) == 1;
}

bool IsIpv6(const std::string& text, in6_addr* address) {
  return inet_pton(AF_INET6, text.c_str(), address) == 1;
}

// HOST, HOST:PORT, [HOST] or [HOST]:PORT.
std::optional<HostPort> Split(absl::string_view text) {
  HostPort result;
  result.port = kDefaultPort;
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    result.host = std::string(text.substr(0, end));
    text.remove_prefix(end + 1);
    if (!text.empty() && text[0] != ':') return std::nullopt;
  } else {
    // Two colons and no brackets: an IPv6 address without a port.
    const size_t colon = text.find(':');
    const bool port = colon != absl::string_view::npos && colon == text.rfind(':');
    const size_t end = port ? colon : text.size();
    result.host = std::string(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (absl::ConsumePrefix(&text, ":")) {
    if (text.empty() || !std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) {
      return std::nullopt;
    }
    result.port = std::string(text);
  }
  if (result.host.empty() || absl::StrContains(result.host, ",") ||
      absl::StrContains(result.host, "/")) {
    return std::nullopt;
  }
  return result;
}

bool IsLoopback(const std::string& host) {
  in_addr v4{};
  if (IsIpv4(host, &v4)) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (IsIpv6(host, &v6)) {
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  return absl::EqualsIgnoreCase(host, "localhost");
}

// The part after "dns:", without an empty authority.
absl::string_view WithoutAuthority(absl::string_view text) {
  absl::ConsumePrefix(&text, "///");
  return text;
}

}  // namespace

std::optional<HostPort> ParseHostPort(absl::string_view target) {
  if (absl::ConsumePrefix(&target, "dns:")) return Split(WithoutAuthority(target));
  const bool v4 = absl::ConsumePrefix(&target, "ipv4:");
  const bool v6 = !v4 && absl::ConsumePrefix(&target, "ipv6:");
  std::optional<HostPort> split = Split(target);
  if (!split.has_value()) return std::nullopt;
  in_addr address4{};
  in6_addr address6{};
  if ((v4 && !IsIpv4(split->host, &address4)) || (v6 && !IsIpv6(split->host, &address6))) {
    return std::nullopt;
  }
  return split;
}

bool StaysOnThisMachine(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) return true;
  const bool list = absl::StartsWith(target, "ipv4:") || absl::StartsWith(target, "ipv6:");
  const absl::string_view scheme = target.substr(0, list ? 5 : 0);
  const std::vector<absl::string_view> parts =
      list ? std::vector<absl::string_view>(absl::StrSplit(target.substr(5), ','))
           : std::vector<absl::string_view>{target};
  return std::all_of(parts.begin(), parts.end(), [&](absl::string_view part) {
    const std::optional<HostPort> one = ParseHostPort(std::string(scheme) + std::string(part));
    return one.has_value() && IsLoopback(one->host);
  });
}

}  // namespace sru::client
