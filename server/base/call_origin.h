// CallOrigin: what is known of who makes a call.
#ifndef SRU_SERVER_BASE_CALL_ORIGIN_H_
#define SRU_SERVER_BASE_CALL_ORIGIN_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sru::server {

namespace callers {
class Caller;  // server/callers/caller.h
}  // namespace callers

// The address of a peer(): "127.0.0.1", "::1" or "unix". gRPC's library encodes brackets.
inline std::string AddressOfPeer(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return "unix";
  return absl::StrReplaceAll(peer.substr(0, peer.rfind(':')),
                             {{"[", ""}, {"]", ""}, {"%5B", ""}, {"%5D", ""}, {"%25", "%"}});
}

class CallOrigin {
 public:
  // The value of a header of the call, by its lower-case name; empty if there is none. Valid as
  // long as the call.
  virtual absl::string_view FindHeader(absl::string_view name) const = 0;
  // The caller's address in gRPC's form: "ipv4:10.0.0.1:4711", "unix:".
  virtual std::string peer() const = 0;
  // The name that the caller's certificate gives it (OwnerOf() in transport/tls_certificates.h);
  // empty if it has shown none, or the transport does not tell.
  virtual std::string certificate() const { return ""; }
  // Who calls, and what its calls may take; null: nothing is known of it, and it has no limits.
  virtual const std::shared_ptr<callers::Caller>& caller() const {
    static const std::shared_ptr<callers::Caller> nobody;
    return nobody;
  }
  // Of a call over HTTP the method and the path of its route: {"POST", "/v1/classify"}; else empty.
  virtual std::pair<absl::string_view, absl::string_view> http_route() const { return {}; }
  // Whether the call is part of a request of which another one has begun: what its caller has left
  // was looked at then.
  virtual bool goes_on() const { return false; }

 protected:
  ~CallOrigin() = default;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CALL_ORIGIN_H_
