#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_socket.h"
#include "server/http/tcp_sent.h"

namespace sru::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadBytes = 16 << 10;  // what a TLS record holds at most
// Answers up to this size are copied, so that head and body are one record.
constexpr size_t kMaxCopiedBytes = 64 << 10;

// Takes a reference of its own. The stream takes another.
asio::ssl::context ContextOf(ssl_ctx_st* context) {
  SSL_CTX_up_ref(context);
  return asio::ssl::context(context);
}

class TlsTransport final : public HttpTransport {
 public:
  TlsTransport(HttpSocket socket, const std::shared_ptr<ssl_ctx_st>& context,
               std::function<void(const std::string& detail)> on_failure)
      : context_(ContextOf(context.get())),
        stream_(std::move(socket), context_),
        on_failure_(std::move(on_failure)) {}

  void Start(std::shared_ptr<User> user) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [this, user = std::move(user)](error_code error) {
                              if (error) Report(error);
                              user->OnStarted(!error);
                            });
  }

  void Read(std::shared_ptr<User> user) override {
    if (read_ == nullptr) read_ = std::make_unique<std::array<char, kReadBytes>>();
    stream_.async_read_some(asio::buffer(*read_),
                            [this, user = std::move(user)](error_code error, size_t size) {
                              user->OnRead(!error, {read_->data(), error ? 0 : size});
                            });
  }

  Sent Write(absl::string_view first, absl::string_view second,
             std::shared_ptr<User> user) override {
    if (first.empty() && second.empty()) return Sent::kAll;
    auto done = [this, user = std::move(user)](error_code error, size_t /*size*/) {
      copy_.clear();
      user->OnWritten(!error);
    };
    if (second.empty()) {
      asio::async_write(stream_, asio::buffer(first.data(), first.size()), std::move(done));
    } else if (first.size() + second.size() <= kMaxCopiedBytes) {
      copy_ = absl::StrCat(first, second);
      asio::async_write(stream_, asio::buffer(copy_), std::move(done));
    } else {
      const std::array<asio::const_buffer, 2> parts = {asio::buffer(first.data(), first.size()),
                                                       asio::buffer(second.data(), second.size())};
      asio::async_write(stream_, parts, std::move(done));
    }
    return Sent::kLater;
  }

  // Sends "close notify". Whether the client answers with its own makes no difference.
  void ShutdownSend(std::shared_ptr<User> user) override {
    stream_.async_shutdown([user = std::move(user)](error_code /*error*/) {});
  }

  void Close(bool reset) override {
    error_code ignored;
    auto& socket = stream_.next_layer();
    sent_ = socket.is_open() && ClientHasSent(socket.native_handle());
    if (reset) socket.set_option(asio::socket_base::linger(true, 0), ignored);
    socket.close(ignored);
  }

 private:
  void Report(error_code error) {
    if (error == asio::error::eof || error == asio::error::connection_reset ||
        error == asio::ssl::error::stream_truncated || error == asio::error::operation_aborted) {
      if (sent_ || ClientHasSent(stream_.next_layer().native_handle())) on_failure_("");
      return;
    }
    std::array<char, 256> text{};
    ERR_error_string_n(static_cast<uint32_t>(error.value()), text.data(), text.size());
    on_failure_(error.category() == asio::error::get_ssl_category()
                    ? absl::StrCat("SSL_ERROR_SSL: ", text.data())
                    : error.message());
  }

  asio::ssl::context context_;
  asio::ssl::stream<HttpSocket> stream_;
  const std::function<void(const std::string& detail)> on_failure_;
  std::unique_ptr<std::array<char, kReadBytes>> read_;
  std::string copy_;
  bool sent_ = false;  // before the connection was closed from here
};

}  // namespace

std::unique_ptr<HttpTransport> MakeTlsTransport(
    HttpSocket socket, const std::shared_ptr<ssl_ctx_st>& context,
    std::function<void(const std::string& detail)> on_failure) {
  return std::make_unique<TlsTransport>(std::move(socket), context, std::move(on_failure));
}

}  // namespace sru::server::http
