// CallOrigin: what is known of who makes a call.
#ifndef SRU_SERVER_BASE_CALL_ORIGIN_H_
#define SRU_SERVER_BASE_CALL_ORIGIN_H_

#include <string>

#include "absl/strings/string_view.h"

namespace sru::server {

class CallOrigin {
 public:
  // The value of a header of the call, by its lower-case name; empty if there is none. Valid as long as the call.
  virtual absl::string_view FindHeader(absl::string_view name) const = 0;
  // The caller's address in gRPC's form: "ipv4:10.0.0.1:4711", "unix:".
  virtual std::string peer() const = 0;
  // The common name in the certificate that the caller has shown; empty if it has shown none, or the transport does not tell.
  virtual std::string certificate() const { return ""; }

 protected:
  ~CallOrigin() = default;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_CALL_ORIGIN_H_
