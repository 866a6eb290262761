// H2Connection: unary gRPC calls over one HTTP/2 connection, as cheaply as a load generator needs.
//
// gRPC's own client costs about as much per call as the server that it would measure, and under
// overload it spends its time on calls that are already late. Here libnghttp2 speaks HTTP/2, and
// this class adds the socket and the little of gRPC that a unary call needs. Many requests go out
// in one system call; of the answers only the trailers are read, unless their messages are wanted.
//
// Not thread-safe: one thread makes all calls. Only Open() blocks.
#ifndef SRU_BENCH_H2_CONNECTION_H_
#define SRU_BENCH_H2_CONNECTION_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/loopback.h"

struct nghttp2_session;
struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // and its SSL

namespace sru::bench {

class H2Connection {
 public:
  // Called once for each call that ends, from ReadAnswers() or Flush(), with its code. `text` is
  // the error's message; if the code is OK, the serialized answer if answers are kept, else empty.
  // It may start calls, but must not cancel any or destroy the connection.
  using Done = std::function<void(uint32_t stream, absl::StatusCode code, absl::string_view text)>;

  // The connection is made with TLS unless `context` is null; the server's certificate must be that
  // of `server_name`, a name or an address.
  struct Tls {
    std::shared_ptr<ssl_ctx_st> context;
    std::string server_name;
  };

  // Connects to one of `addresses` and makes the HTTP/2 handshake; blocks for up to 5 seconds.
  // `method` is the path of the unary method that all calls use. `keep_answers`: whether the
  // answers are kept for `done`. The calls show `token` unless it is empty. kUnavailable if nothing
  // listens or if it does not speak HTTP/2.
  static absl::StatusOr<std::unique_ptr<H2Connection>> Open(
      const std::vector<SocketAddress>& addresses, const std::string& method, Done done,
      bool keep_answers = false, const std::string& token = "", const Tls& tls = {});
  ~H2Connection();

  H2Connection(const H2Connection&) = delete;
  H2Connection& operator=(const H2Connection&) = delete;

  // Queues one call for the next Flush(). `message` is the serialized request and must outlive the
  // call; `timeout_us`, if more than 0, is sent as the call's deadline. Call it only while
  // usable(). Returns the call's stream: 1, 3, 5 and so on.
  uint32_t Start(const std::string& message, int64_t timeout_us);

  // Tells the server to drop a call. Its Done is not called.
  void Cancel(uint32_t stream);

  // Whether a call can be started now: false once the connection is lost or going away, and while
  // the server allows no more concurrent calls.
  bool usable() const;
  // False once the connection is lost or going away: no further call will ever be possible.
  bool alive() const;
  // True if no answer will come any more.
  bool lost() const { return !alive_; }

  // Writes as much of the queue as the socket takes. Returns whether something is left.
  bool Flush();
  // Reads what has arrived and calls Done for each call that ended. If the connection is lost,
  // every open call ends with kUnavailable.
  void ReadAnswers();

  int fd() const { return fd_; }

 private:
  struct Call {
    const std::string* request;
    size_t sent = 0;     // bytes of the request with its gRPC prefix
    int code = -1;       // grpc-status; -1 = none yet
    std::string text;    // grpc-message
    std::string answer;  // with its gRPC prefix, if answers are kept
  };
  using Session = std::shared_ptr<ssl_st>;
  // The callbacks of libnghttp2.
  struct Callbacks;

  H2Connection(int fd, Session tls, const std::string& method, const std::string& token, Done done,
               bool keep_answers);

  bool Handshake();
  // As recv() and send() do it; an error of TLS is EPROTO.
  ssize_t Receive(char* bytes, size_t size);
  ssize_t Send(const char* bytes, size_t size);
  // Moves what libnghttp2 wants to send to the output buffer.
  void FillOutput();
  // Returns nullptr if the call is not open.
  Call* Find(uint32_t stream);
  void End(uint32_t stream, absl::StatusCode code, absl::string_view message);
  // Ends a call whose answer is complete.
  void EndAnswered(uint32_t stream, bool with_trailers);
  void Lose(absl::string_view why);

  const int fd_;
  const Session tls_;  // null: none
  const std::string method_;
  const std::string authorization_;  // empty = none
  const Done done_;
  std::unique_ptr<nghttp2_session, void (*)(nghttp2_session*)> session_;
  bool alive_ = true;
  std::string why_lost_;
  bool got_settings_ = false;

  std::string out_;
  size_t out_begin_ = 0;

  std::unordered_map<uint32_t, Call> calls_;  // that are open, by their streams
};

}  // namespace sru::bench

#endif  // SRU_BENCH_H2_CONNECTION_H_
