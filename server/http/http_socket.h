// The transport of HTTP connections: a socket on a loop, with what reads and writes it, TLS or not.
#ifndef SRU_SERVER_HTTP_HTTP_SOCKET_H_
#define SRU_SERVER_HTTP_HTTP_SOCKET_H_

#include <memory>
#include <string>

#include "server/http/http_transport.h"
#include "server/transport/byte_stream.h"
#include "server/transport/loop.h"

namespace sru::server::http {

// Owns `socket`, which `bytes` reads and writes and which does not block. `received` is what was
// read of `bytes` before.
std::unique_ptr<HttpTransport> MakeTransport(transport::Loop* loop, int socket,
                                             std::unique_ptr<transport::ByteStream> bytes,
                                             std::string received);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_SOCKET_H_
