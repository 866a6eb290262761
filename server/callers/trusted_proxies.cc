#include "server/callers/trusted_proxies.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "server/callers/callers.h"

namespace sru::server::callers {
namespace {

namespace ip = boost::asio::ip;

constexpr int kAddressBits = 128;
constexpr int kMappedBits = 96;  // before an IPv4 address
constexpr int kNetworkBits = 64;
constexpr size_t kMostLength = 64;

// IPv4 becomes ::ffff:a.b.c.d.
std::optional<ip::address_v6> ToAddress(absl::string_view text) {
  if (text.size() > kMostLength) return std::nullopt;
  boost::system::error_code error;
  const ip::address address = ip::make_address(std::string(text.substr(0, text.find('%'))), error);
  if (error) return std::nullopt;
  return address.is_v6() ? address.to_v6() : ip::make_address_v6(ip::v4_mapped, address.to_v4());
}

// With or without a port: "10.0.0.1:80", "[::1]:80", "::1".
std::optional<ip::address_v6> ParseHost(absl::string_view text) {
  const std::optional<HostPort> cut = SplitHostPort(text);
  return cut.has_value() ? ToAddress(cut->host) : std::nullopt;
}

std::string NameOf(const ip::address_v6& address) {
  if (address.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, address).to_string();
  if (address.is_loopback()) return address.to_string();
  return ip::network_v6(address, kNetworkBits).canonical().to_string();
}

}  // namespace

absl::StatusOr<TrustedProxies> TrustedProxies::Parse(absl::string_view flag,
                                                     absl::string_view text) {
  TrustedProxies proxies;
  for (const absl::string_view one : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const absl::string_view entry = absl::StripAsciiWhitespace(one);
    if (entry == "unix") {
      proxies.unix_ = true;
      continue;
    }
    const std::vector<absl::string_view> halves = absl::StrSplit(entry, absl::MaxSplits('/', 1));
    const std::optional<ip::address_v6> address = ToAddress(halves[0]);
    int bits = 0;
    const int offset = address.has_value() && address->is_v4_mapped() ? kMappedBits : 0;
    bool ok = address.has_value() && entry.find('%') == absl::string_view::npos;
    if (halves.size() == 1) {
      bits = kAddressBits;
    } else {
      ok = ok && absl::SimpleAtoi(halves[1], &bits) && bits >= 0 && bits <= kAddressBits - offset;
      bits += offset;
    }
    if (!ok) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": expected addresses such as 10.0.0.1, networks such as ",
                       "10.0.0.0/8, or unix, between commas, found '", entry.substr(0, 64), "'"));
    }
    proxies.networks_.push_back(
        ip::network_v6(*address, static_cast<unsigned short>(bits)).canonical());
  }
  return proxies;
}

bool TrustedProxies::Trusts(const ip::address_v6& address) const {
  return std::any_of(networks_.begin(), networks_.end(), [&address](const ip::network_v6& trusted) {
    return ip::network_v6(address, trusted.prefix_length()).network() == trusted.network();
  });
}

std::string TrustedProxies::CallerAddress(absl::string_view peer,
                                          absl::string_view forwarded) const {
  // gRPC's library encodes the brackets of IPv6.
  std::string text;
  if (peer.find('%') != absl::string_view::npos) {
    text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
    peer = text;
  }
  if (absl::ConsumePrefix(&peer, "ipv4:")) {  // as the system writes it
    if (networks_.empty()) return std::string(peer.substr(0, peer.find(':')));
  } else {
    absl::ConsumePrefix(&peer, "ipv6:");
  }
  std::optional<ip::address_v6> last = ParseHost(peer);
  bool trusted = last.has_value() ? Trusts(*last) : unix_;
  while (trusted && !forwarded.empty()) {
    const size_t comma = forwarded.rfind(',');
    const bool is_first = comma == absl::string_view::npos;
    const std::optional<ip::address_v6> next =
        ParseHost(absl::StripAsciiWhitespace(is_first ? forwarded : forwarded.substr(comma + 1)));
    if (!next.has_value()) break;
    last = next;
    trusted = Trusts(*next);
    forwarded = is_first ? absl::string_view() : forwarded.substr(0, comma);
  }
  return last.has_value() ? NameOf(*last) : kAnonymous;
}

}  // namespace sru::server::callers
