// TrustedProxies: the address of who calls, through proxies that are named by --trusted_proxies:
// the last one that none of them is known by. What a caller writes into the header itself stands
// before what the proxies add, and is not looked at.
//
//   X-Forwarded-For: SPOOFED, 203.0.113.7, 10.0.0.2
//   with --trusted_proxies=10.0.0.0/8, from 10.0.0.1: 203.0.113.7
//
// Constant, so thread-safe.
#ifndef SRU_SERVER_CALLERS_TRUSTED_PROXIES_H_
#define SRU_SERVER_CALLERS_TRUSTED_PROXIES_H_

#include <boost/asio/ip/network_v6.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server::callers {

class TrustedProxies {
 public:
  TrustedProxies() = default;  // none

  // Addresses, networks ("10.0.0.0/8", "fd00::/8") and "unix", between commas. Errors name `flag`.
  static absl::StatusOr<TrustedProxies> Parse(absl::string_view flag, absl::string_view text);

  // The name of the caller's address: "10.0.0.1"; of IPv6 its network, "2001:db8:1:2::/64", since
  // one machine has many addresses of it; kAnonymous where there is none (a socket in the file
  // system). `peer` is in gRPC's form or as "10.0.0.1", "::1"; `forwarded` is the value of
  // X-Forwarded-For. A part of it that is no address ends the search: the caller is then the last
  // proxy.
  std::string CallerAddress(absl::string_view peer, absl::string_view forwarded) const;
  // Whether the peer is one of the proxies: what it forwards is looked at.
  bool Trusts(absl::string_view peer) const { return CallerAddress(peer, "0.0.0.0") == "0.0.0.0"; }

 private:
  bool Trusts(const boost::asio::ip::address_v6& address) const;

  std::vector<boost::asio::ip::network_v6> networks_;  // IPv4 as ::ffff:0:0/96
  bool unix_ = false;
};

}  // namespace sru::server::callers

#endif  // SRU_SERVER_CALLERS_TRUSTED_PROXIES_H_
