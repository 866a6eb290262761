// ByteStream: the bytes of one connection, with TLS or without, on a socket that does not block.
#ifndef SRU_SERVER_TRANSPORT_BYTE_STREAM_H_
#define SRU_SERVER_TRANSPORT_BYTE_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/transport/tls_certificates.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace sru::server::transport {

// Used by one thread. Does not own the socket.
class ByteStream {
 public:
  enum class Outcome {
    kDone,
    kWantsRead,   // when the socket can be read
    kWantsWrite,  // when it can be written
    kEnd,         // the peer has ended its side, or the connection is broken
  };
  struct Result {
    Outcome outcome = Outcome::kDone;
    size_t bytes = 0;  // that were read or written; more than 0 if kDone
  };

  virtual ~ByteStream() = default;
  // To be called until it is kDone, before anything else. kEnd: it has failed.
  virtual Outcome Handshake() { return Outcome::kDone; }
  // Why the handshake has failed; empty: the peer has closed the connection.
  virtual std::string HandshakeError() const { return ""; }
  // Whether a byte has come, of a handshake too.
  virtual bool PeerHasSent() const { return true; }
  // The protocol that both sides have agreed on by ALPN, "h2" or "http/1.1"; empty if none.
  virtual absl::string_view protocol() const { return ""; }
  // The name that the peer's certificate gives it (OwnerOf() in tls_certificates.h); empty if it
  // has shown none.
  virtual std::string CertificateName() const { return ""; }
  // Returns whether this context, too, would accept the certificate that the peer has shown. True
  // where none was asked for.
  virtual bool IsTrustedBy(ssl_ctx_st* /*context*/) const { return true; }
  virtual Result Read(absl::Span<char> buffer) = 0;
  // How many records without data, such as TLS's KeyUpdate, Read() has taken since this was asked.
  // Each costs more than its bytes show.
  virtual int TakeEmptyRecords() { return 0; }
  // Whether Read() may give more though the socket has nothing.
  virtual bool MayHoldMore() const { return false; }
  // After kWantsRead or kWantsWrite, the next bytes to be written begin with the same ones.
  virtual Result Write(absl::string_view bytes) = 0;
  // Tells the peer that nothing more will come, as well as that goes without waiting.
  virtual void EndSending() = 0;
};

std::unique_ptr<ByteStream> MakePlainStream(int socket);
// The server's side of a connection that agrees on a protocol of `offer` (ALPN). Null if there is
// no memory.
std::unique_ptr<ByteStream> MakeTlsStream(int socket, ssl_ctx_st* context, AlpnOffer offer);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_BYTE_STREAM_H_
