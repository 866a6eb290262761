#include "server/http/page_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "server/transport/security_options.h"

namespace sru::server::http {
namespace {

constexpr size_t kMaxNameBytes = 253;  // the limit of DNS
constexpr absl::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_";

// `name` is in lower case. Browsers take a name whose last part is a number for an address.
bool IsName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  absl::string_view last;
  for (absl::string_view label : absl::StrSplit(name, '.')) {
    if (label.empty() || label.find_first_not_of(kNameCharacters) != absl::string_view::npos) {
      return false;
    }
    last = label;
  }
  if (absl::ConsumePrefix(&last, "0x")) {
    return last.find_first_not_of("0123456789abcdef") != absl::string_view::npos;
  }
  return last.find_first_not_of("0123456789") != absl::string_view::npos;
}

}  // namespace

bool PageHost::is_loopback() const { return transport::IsLoopbackHost(host); }

std::optional<PageHost> ParsePageHost(absl::string_view header) {
  const std::optional<HostPort> cut = SplitHostPort(header);
  if (!cut.has_value()) return std::nullopt;
  if (const auto text = cut->port; text.has_value()) {
    int port = 0;
    if (text->size() > 5 || text->find_first_not_of("0123456789") != absl::string_view::npos ||
        !absl::SimpleAtoi(*text, &port) || port > 65535) {
      return std::nullopt;
    }
  }
  PageHost result;
  if (cut->brackets) result.kind = PageHost::Kind::kIpV6;
  result.host = absl::AsciiStrToLower(cut->host);
  // A NUL would end the text for inet_pton().
  if (result.host.find('\0') != std::string::npos) return std::nullopt;
  if (result.kind == PageHost::Kind::kIpV6) {
    in6_addr address{};
    if (inet_pton(AF_INET6, result.host.c_str(), &address) != 1) return std::nullopt;
    return result;
  }
  in_addr address{};
  if (inet_pton(AF_INET, result.host.c_str(), &address) == 1) {
    result.kind = PageHost::Kind::kIpV4;
    return result;
  }
  if (!IsName(result.host)) return std::nullopt;
  return result;
}

absl::StatusOr<std::vector<std::string>> ParsePageHostNames(absl::string_view flag,
                                                            absl::string_view text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    names.push_back(absl::AsciiStrToLower(name));
    if (IsName(names.back())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag,
                     ": expected names of hosts with commas between them, without scheme and port, "
                     "such as sru.example.org (addresses need not be listed), found '",
                     name, "'"));
  }
  return names;
}

bool IsAllowedPageHost(absl::string_view header, const std::vector<std::string>& names) {
  const std::optional<PageHost> host = ParsePageHost(header);
  if (!host.has_value()) return false;
  if (host->kind != PageHost::Kind::kName || !absl::StrContains(host->host, '.')) return true;
  return std::find(names.begin(), names.end(), host->host) != names.end();
}

std::string WrongPageHost(absl::string_view header) {
  const std::optional<PageHost> host = ParsePageHost(header);
  if (!host.has_value()) {
    return "the header Host is missing or wrong; open the page by the server's name or address";
  }
  return absl::StrCat("the page is not shown under the name ", host->host,
                      ", which could be another web site's; open it by the server's address, or "
                      "start the server with --status_page_host=",
                      host->host);
}

}  // namespace sru::server::http
