// The two transports of HTTP connections: a TCP socket, with and without TLS.
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

struct ssl_ctx_st;

namespace sru::server::http {

using HttpSocket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

// `scratch` is where data is read into; all connections of a thread may share it.
std::unique_ptr<HttpTransport> MakePlainTransport(HttpSocket socket, absl::Span<char> scratch);

// `on_failure` gets OpenSSL's reason, or "" if the client went after it had sent something.
std::unique_ptr<HttpTransport> MakeTlsTransport(
    HttpSocket socket, const std::shared_ptr<ssl_ctx_st>& context,
    std::function<void(const std::string& detail)> on_failure);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_SOCKET_H_
