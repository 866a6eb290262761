#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <utility>

#include "server/http/http_socket.h"

namespace sru::server::http {
namespace {

using boost::system::error_code;
using Wait = boost::asio::socket_base;

class PlainTransport final : public HttpTransport {
 public:
  PlainTransport(HttpSocket socket, absl::Span<char> scratch)
      : socket_(std::move(socket)), scratch_(scratch) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
  }

  void Start(std::shared_ptr<User> user) override { user->OnStarted(/*ok=*/true); }

  // Waits first, so that a connection that is idle holds no buffer.
  void Read(std::shared_ptr<User> user) override {
    socket_.async_wait(Wait::wait_read, [this, user = std::move(user)](error_code error) {
      if (error) return user->OnRead(/*ok=*/false, {});
      const ssize_t size = recv(socket_.native_handle(), scratch_.data(), scratch_.size(), 0);
      if (size > 0) return user->OnRead(true, {scratch_.data(), static_cast<size_t>(size)});
      const bool again = size < 0 && (errno == EAGAIN || errno == EINTR);
      user->OnRead(again, {});
    });
  }

  Sent Write(absl::string_view first, absl::string_view second,
             std::shared_ptr<User> user) override {
    first_ = first;
    second_ = second;
    const Outcome outcome = WriteSome();
    if (outcome == Outcome::kAll) return Sent::kAll;
    // What has failed is reported like what failed later.
    AwaitWritable(std::move(user));
    return Sent::kLater;
  }

  void ShutdownSend(std::shared_ptr<User> /*user*/) override {
    error_code ignored;
    socket_.shutdown(Wait::shutdown_send, ignored);
  }

  void Close(bool reset) override {
    error_code ignored;
    if (reset) socket_.set_option(Wait::linger(true, 0), ignored);
    socket_.close(ignored);
  }

 private:
  enum class Outcome { kAll, kSome, kFailed };

  Outcome WriteSome() {
    while (!first_.empty() || !second_.empty()) {
      iovec parts[2] = {{const_cast<char*>(first_.data()), first_.size()},
                        {const_cast<char*>(second_.data()), second_.size()}};
      msghdr message{};
      message.msg_iov = first_.empty() ? parts + 1 : parts;
      message.msg_iovlen = first_.empty() || second_.empty() ? 1 : 2;
      const ssize_t size = sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return errno == EAGAIN ? Outcome::kSome : Outcome::kFailed;
      const size_t of_first = std::min<size_t>(static_cast<size_t>(size), first_.size());
      first_.remove_prefix(of_first);
      second_.remove_prefix(static_cast<size_t>(size) - of_first);
    }
    return Outcome::kAll;
  }

  void AwaitWritable(std::shared_ptr<User> user) {
    socket_.async_wait(Wait::wait_write, [this, user = std::move(user)](error_code error) mutable {
      const Outcome outcome = error ? Outcome::kFailed : WriteSome();
      if (outcome == Outcome::kSome) return AwaitWritable(std::move(user));
      user->OnWritten(outcome == Outcome::kAll);
    });
  }

  HttpSocket socket_;
  const absl::Span<char> scratch_;
  absl::string_view first_;  // what is left to be written
  absl::string_view second_;
};

}  // namespace

std::unique_ptr<HttpTransport> MakePlainTransport(HttpSocket socket, absl::Span<char> scratch) {
  return std::make_unique<PlainTransport>(std::move(socket), scratch);
}

}  // namespace sru::server::http
