#include "client/address.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"

namespace sru::client {
namespace {

bool IsNear(absl::string_view address) {
  const std::optional<HostPort> host = SplitHostPort(address);
  return host.has_value() && IsLoopback(std::string(host->host));
}

}  // namespace

bool StaysOnThisMachine(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) return true;
  if (absl::ConsumePrefix(&target, "dns:")) {
    absl::ConsumePrefix(&target, "///");
    return IsNear(target);
  }
  if (!absl::ConsumePrefix(&target, "ipv4:") && !absl::ConsumePrefix(&target, "ipv6:")) {
    return IsNear(target);
  }
  const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
  return std::all_of(addresses.begin(), addresses.end(), IsNear);
}

}  // namespace sru::client
