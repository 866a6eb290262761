// The transport of HTTP connections: a socket with what reads and writes it, TLS or not.
#ifndef SRU_SERVER_HTTP_HTTP_SOCKET_H_
#define SRU_SERVER_HTTP_HTTP_SOCKET_H_

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "server/http/http_transport.h"
#include "server/transport/byte_stream.h"

namespace sru::server::http {

using HttpSocket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

// `received` is what was read of `bytes` before. `scratch` is where data is read into; all connections of a thread may share it.
// `on_failure` gets OpenSSL's reason why a handshake has failed, or "" if the client went after it had sent something.
std::unique_ptr<HttpTransport> MakeTransport(
    HttpSocket socket, std::unique_ptr<transport::ByteStream> bytes, std::string received,
    absl::Span<char> scratch, std::function<void(const std::string& detail)> on_failure);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_SOCKET_H_
