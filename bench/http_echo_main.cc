// http_echo: the HTTP library alone, as a measure of what a server that is built on it can reach. Reads a request on a
// connection that stays open, and answers with a body of --answer_bytes bytes. Two threads, no limits, no timeouts.
//
//   http_echo --answer_bytes=600        prints "listening on 127.0.0.1:PORT"; ends with SIGTERM
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"

namespace sru::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

class EchoSession : public std::enable_shared_from_this<EchoSession> {
 public:
  EchoSession(Tcp::socket socket, std::string body)
      : socket_(std::move(socket)), body_(std::move(body)) {
    socket_.set_option(Tcp::no_delay(true));
  }

  void Read() {
    request_ = {};
    http::async_read(socket_, buffer_, request_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (!error) self->Write();
                     });
  }

 private:
  void Write() {
    response_ = {};
    response_.result(http::status::ok);
    response_.set(http::field::content_type, "application/json");
    response_.keep_alive(request_.keep_alive());
    response_.body() = body_;
    response_.prepare_payload();
    http::async_write(socket_, response_,
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (!error && self->response_.keep_alive()) self->Read();
                      });
  }

  Tcp::socket socket_;
  const std::string body_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
};

void Accept(Tcp::acceptor* acceptor, const std::string& body) {
  acceptor->async_accept([acceptor, body](beast::error_code error, Tcp::socket socket) {
    if (!error) std::make_shared<EchoSession>(std::move(socket), body)->Read();
    Accept(acceptor, body);
  });
}

int EchoMain(int argc, char** argv) {
  const std::string flag = "--answer_bytes=";
  const std::string argument = argc == 2 ? argv[1] : "";
  char* end = nullptr;
  const unsigned long bytes =
      argument.rfind(flag, 0) == 0 ? std::strtoul(argument.c_str() + flag.size(), &end, 10) : 0;
  if (end == nullptr || *end != '\0' || bytes == 0 || bytes > (1 << 20)) {
    std::cerr << "http_echo: expected --answer_bytes=N, with N from 1 to " << (1 << 20) << "\n";
    return 1;
  }
  asio::io_context context(2);
  Tcp::acceptor acceptor(context, Tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
  std::cout << "listening on 127.0.0.1:" << acceptor.local_endpoint().port() << std::endl;
  Accept(&acceptor, std::string(bytes, 'x'));
  std::thread second([&context] { context.run(); });
  context.run();
  second.join();
  return 0;
}

}  // namespace
}  // namespace sru::bench

int main(int argc, char** argv) { return sru::bench::EchoMain(argc, argv); }
