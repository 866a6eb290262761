// The bytes of one connection, with or without TLS. All of it runs on the connection's one thread.
#ifndef SRU_SERVER_HTTP_HTTP_TRANSPORT_H_
#define SRU_SERVER_HTTP_HTTP_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "server/transport/loop.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace sru::server::http {

class HttpConnection;

// Each operation keeps its user, the connection, alive and tells it how it ends. After Close()
// nothing more is to be done, but operations under way still end.
class HttpTransport {
 public:
  using User = HttpConnection;
  enum class Sent { kAll, kLater };

  virtual ~HttpTransport() = default;

  // Reads some, in turn with others. One at a time; does not call OnRead() before it returns.
  virtual void Read(const transport::TurnKey& key, std::shared_ptr<User> user) = 0;
  // Writes both parts. One at a time. kAll: it is done. kLater: OnWritten() follows, and until then
  // the parts must stay where they are.
  virtual Sent Write(absl::string_view first, absl::string_view second,
                     std::shared_ptr<User> user) = 0;
  // The name that the client's certificate gives it (OwnerOf() in transport/tls_certificates.h);
  // empty if it has shown none.
  virtual std::string CertificateName() const = 0;
  // Returns whether this context, too, accepts the client's certificate, if one was asked for.
  virtual bool IsTrustedBy(ssl_ctx_st* context) const = 0;
  // The client is told that nothing more will come.
  virtual void ShutdownSend() = 0;
  // With `reset`, what the client has not taken yet is dropped; otherwise the kernel keeps it and
  // goes on sending it.
  virtual void Close(bool reset) = 0;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_TRANSPORT_H_
