#include "server/http/http_socket.h"

#include <sys/socket.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_connection.h"

namespace sru::server::http {
namespace {

using boost::system::error_code;
using transport::ByteStream;
using transport::Loop;
using transport::TurnKey;
using Descriptor = boost::asio::posix::stream_descriptor;

// Answers up to this size are copied, so that head and body leave together.
constexpr size_t kMaxCopiedBytes = 64 << 10;
// Bytes that are written in one turn.
constexpr size_t kWrittenBytes = 64 << 10;

class SocketTransport final : public HttpTransport {
 public:
  SocketTransport(Loop* loop, int socket, std::unique_ptr<ByteStream> bytes, std::string received)
      : loop_(*loop),
        socket_(loop->io(), socket),
        bytes_(std::move(bytes)),
        received_(std::move(received)) {}

  // Without data there is no buffer, so that a connection that is idle holds none.
  void Read(const TurnKey& key, std::shared_ptr<User> user) override {
    if (received_.empty() && !bytes_->MayHoldMore()) {
      return AwaitData(ByteStream::Outcome::kWantsRead, key, std::move(user));
    }
    loop_.RunInTurn(key, [this, key, user = std::move(user)] { ReadSome(key, user); });
  }

  Sent Write(absl::string_view first, absl::string_view second,
             std::shared_ptr<User> user) override {
    first_ = first;
    second_ = second;
    if (!first.empty() && !second.empty() && first.size() + second.size() <= kMaxCopiedBytes) {
      copy_ = absl::StrCat(first, second);
      first_ = copy_;
      second_ = {};
    }
    const ByteStream::Outcome outcome = WriteSome();
    if (outcome == ByteStream::Outcome::kDone) return Sent::kAll;
    if (outcome == ByteStream::Outcome::kEnd) {
      boost::asio::post(loop_.io(), [this, user = std::move(user)] {
        Loop::Turn turn(&loop_);
        user->OnWritten(/*ok=*/false);
      });
    } else {
      AwaitTaken(outcome, std::move(user));
    }
    return Sent::kLater;
  }

  std::string CertificateName() const override { return bytes_->CertificateName(); }
  bool IsTrustedBy(ssl_ctx_st* context) const override { return bytes_->IsTrustedBy(context); }

  void ShutdownSend() override { bytes_->EndSending(); }

  void Close(bool reset) override {
    if (!socket_.is_open()) return;
    const linger at_once{1, 0};
    if (reset) {
      setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  static Descriptor::wait_type WaitFor(ByteStream::Outcome outcome) {
    return outcome == ByteStream::Outcome::kWantsWrite ? Descriptor::wait_write
                                                       : Descriptor::wait_read;
  }

  void AwaitData(ByteStream::Outcome outcome, const TurnKey& key, std::shared_ptr<User> user) {
    socket_.async_wait(WaitFor(outcome), [this, key, user = std::move(user)](error_code error) {
      Loop::Turn turn(&loop_);
      if (error) return user->OnRead(/*ok=*/false, {});
      if (loop_.MayReadNow(key)) return ReadSome(key, user);
      loop_.RunInTurn(key, [this, key, user] { ReadSome(key, user); });
    });
  }

  void ReadSome(const TurnKey& key, const std::shared_ptr<User>& user) {
    if (!socket_.is_open()) return user->OnRead(false, {});
    if (!received_.empty()) return user->OnRead(true, std::exchange(received_, std::string()));
    const ByteStream::Result result = bytes_->Read(loop_.read_buffer());
    switch (result.outcome) {
      case ByteStream::Outcome::kDone:
        return user->OnRead(true, {loop_.read_buffer().data(), result.bytes});
      case ByteStream::Outcome::kEnd:
        return user->OnRead(false, {});
      default:
        return AwaitData(result.outcome, key, user);
    }
  }

  ByteStream::Outcome WriteSome() {
    for (size_t written = 0; !first_.empty() || !second_.empty();) {
      if (written >= kWrittenBytes) return ByteStream::Outcome::kWantsWrite;  // others come first
      absl::string_view& part = first_.empty() ? second_ : first_;
      const ByteStream::Result result = bytes_->Write(part.substr(0, kWrittenBytes));
      if (result.outcome != ByteStream::Outcome::kDone) return result.outcome;
      part.remove_prefix(result.bytes);
      written += result.bytes;
    }
    std::string().swap(copy_);
    return ByteStream::Outcome::kDone;
  }

  void AwaitTaken(ByteStream::Outcome outcome, std::shared_ptr<User> user) {
    socket_.async_wait(WaitFor(outcome), [this, user = std::move(user)](error_code error) {
      Loop::Turn turn(&loop_);
      const ByteStream::Outcome now = error ? ByteStream::Outcome::kEnd : WriteSome();
      if (now == ByteStream::Outcome::kDone || now == ByteStream::Outcome::kEnd) {
        return user->OnWritten(now == ByteStream::Outcome::kDone);
      }
      AwaitTaken(now, user);
    });
  }

  Loop& loop_;
  Descriptor socket_;
  const std::unique_ptr<ByteStream> bytes_;
  std::string received_;     // before this had the connection, and not read yet
  absl::string_view first_;  // what is left to be written
  absl::string_view second_;
  std::string copy_;
};

}  // namespace

std::unique_ptr<HttpTransport> MakeTransport(Loop* loop, int socket,
                                             std::unique_ptr<ByteStream> bytes,
                                             std::string received) {
  return std::make_unique<SocketTransport>(loop, socket, std::move(bytes), std::move(received));
}

}  // namespace sru::server::http
