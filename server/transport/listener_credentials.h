// What gRPC asks this server of a connection and of a call: which certificates to show, and whether
// a call may go on. How gRPC is told differs by its version; listener_credentials.cc is the only
// place that knows. Where the certificates come from and which tokens are known is credentials.h's
// business.
//
//   auto certificates = std::make_shared<ServedCertificates>(/*mutual=*/true);
//   certificates->Use(pem);
//   builder.AddListeningPort(address, MakeListenerCredentials(certificates, check));
#ifndef SRU_SERVER_TRANSPORT_LISTENER_CREDENTIALS_H_
#define SRU_SERVER_TRANSPORT_LISTENER_CREDENTIALS_H_

#include <memory>

#include "absl/status/status.h"
#include "grpcpp/security/server_credentials.h"
#include "server/transport/call_check.h"
#include "server/transport/tls_certificates.h"

namespace sru::server::transport {

// The certificates that listeners show, the same for all that share one. Handshakes that begin
// after Use() has returned see the new ones; connections that are open are not interrupted.
// Thread-safe.
class ServedCertificates {
 public:
  // With `mutual`, clients must show a certificate of one of the authorities in TlsPem::client_ca.
  explicit ServedCertificates(bool mutual);
  ServedCertificates(const ServedCertificates&) = delete;
  ServedCertificates& operator=(const ServedCertificates&) = delete;
  ~ServedCertificates();

  bool mutual() const { return mutual_; }

  // Before the first listener is made, and then whenever they change. What does not pass
  // CheckTlsCertificates() must not come here. An error says why gRPC does not take them; what was
  // in use stays in use.
  absl::Status Use(const TlsPem& pem);

  // What there is to it depends on gRPC's version; in listener_credentials.cc.
  struct Core;
  const std::shared_ptr<Core>& core() const { return core_; }

 private:
  const bool mutual_;
  const std::shared_ptr<Core> core_;
};

// The credentials of one listener; each needs its own. Without `certificates` connections are in
// the clear. `check` sees every call, of whatever service or method, when its headers have arrived
// and before any message is read; a null one lets all go on.
std::shared_ptr<grpc::ServerCredentials> MakeListenerCredentials(
    std::shared_ptr<const ServedCertificates> certificates, CallCheck check);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_LISTENER_CREDENTIALS_H_
