// The certificate, key and client authorities of a TLS server, read from PEM and checked, so that a
// mistake is reported when the files are read and not at somebody's handshake: also what OpenSSL's
// configuration forbids (a security level, a provider that is missing).
#ifndef SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_
#define SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL
struct x509_st;     // OpenSSL's X509

namespace sru::server::transport {

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
  std::vector<std::string> client_authorities;  // the subjects of those in client_ca
  // With all of it, for a port that is not gRPC's: what gRPC offers, and client certificates
  // required where there is a client_ca.
  std::shared_ptr<ssl_ctx_st> context;
};

// kInvalidArgument names the flag (--tls_cert, --tls_key, --tls_client_ca), what was expected and
// what was found: not PEM, a key with a passphrase, a key of another certificate, a certificate
// that is not valid at `now`, or whose chain does not hold together; a key or signature that
// OpenSSL does not take at its security level, with OpenSSL's reason. Thread-safe; depends on
// nothing but its arguments and OpenSSL's configuration.
absl::StatusOr<TlsCertificates> CheckTlsCertificates(TlsPem pem, absl::Time now);

// The protocols that the server's side of a connection offers by ALPN. A client that offers
// protocols, and none of these, is refused.
enum class AlpnOffer {
  kHttp2,
  kHttp2AndHttp1,
};
// For a connection with TlsCertificates::context, before its handshake.
void OfferProtocols(ssl_st* connection, AlpnOffer offer);
// "h2" or "http/1.1"; empty if there was no offer on one side. Valid as long as the connection.
absl::string_view AgreedProtocol(const ssl_st* connection);

// The name that a certificate gives its owner: the common name, where the subject has nothing else;
// the whole subject in the form of RFC 2253 ("CN=web,O=Ours"); without a subject, the first
// alternative name that is a URI ("URI=spiffe://ours/web") or a DNS name ("DNS=web"). No two of
// them are the same text. Empty if there is none of them. Thread-safe.
std::string OwnerOf(const x509_st& certificate);
// The same of a certificate in PEM. Empty, too, for what is none.
std::string OwnerOf(absl::string_view pem);

// For the log: "certificate of /CN=a, valid until 2026-01-31T12:00:00+00:00, clients must show a
// certificate of /CN=b". Pure.
std::string Describe(const TlsCertificates& certificates);
// What is new: "new certificate of ...", "new authorities of clients: ...". Pure.
std::string DescribeChange(const TlsCertificates& before, const TlsCertificates& after);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_TLS_CERTIFICATES_H_
