// The certificate, key and client authorities of a TLS server, read from PEM and checked, so that a
// mistake is reported when the files are read and not at somebody's handshake.
#ifndef SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_
#define SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sru::server {

// The contents of the three files; `client_ca` is empty where client certificates are not asked
// for.
struct TlsPem {
  std::string certificate;  // the server's own first, then those that lead to a known authority
  std::string key;
  std::string client_ca;
};

struct TlsCertificates {
  TlsPem pem;
  std::string subject;
  absl::Time not_after;  // when the first certificate of the chain to expire does so
};

// kInvalidArgument names the flag (--tls_cert, --tls_key, --tls_client_ca), what was expected and
// what was found: not PEM, a key with a passphrase, a key of another certificate, a certificate
// that is not valid at `now`, or whose chain does not hold together. Pure, thread-safe.
absl::StatusOr<TlsCertificates> CheckTlsCertificates(TlsPem pem, absl::Time now);

}  // namespace sru::server

#endif  // SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_
