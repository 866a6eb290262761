// H2Connection: unary gRPC calls over one HTTP/2 connection, as cheaply as a load generator needs.
//
// gRPC's own client costs about as much per call as the server it would measure, and under overload
// it spends its time on calls that are late already. This one knows only what a unary call needs:
// requests are appended to a buffer, many to a system call; answers are scanned for their trailers
// and not kept. It refuses header compression towards itself, so that header blocks can be
// skipped, and reads the plain literals that gRPC's C-core sends; it is made for this project's
// servers, not for any.
//
// RFC 9113 (frames, flow control), RFC 7541 (header compression), and gRPC's PROTOCOL-HTTP2.
//
// Not thread-safe: one thread calls everything. No call blocks but Open().
#ifndef SRU_CLIENT_BENCH_H2_CONNECTION_H_
#define SRU_CLIENT_BENCH_H2_CONNECTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/bench/loopback.h"

namespace sru::bench {

class H2Connection {
 public:
  // Called once for each call that ends, from ReadAnswers(): with its code and, unless it is OK,
  // its message. It may start calls, but neither cancel nor destroy.
  using Done =
      std::function<void(uint32_t stream, absl::StatusCode code, absl::string_view message)>;

  // Connects to one of `addresses` and shakes hands; blocks up to 5 seconds. `method` is the path
  // of a unary method, for all calls. kUnavailable when nobody listens or it is not HTTP/2.
  static absl::StatusOr<std::unique_ptr<H2Connection>> Open(
      const std::vector<SocketAddress>& addresses, const std::string& method, Done done);
  ~H2Connection();

  H2Connection(const H2Connection&) = delete;
  H2Connection& operator=(const H2Connection&) = delete;

  // Puts one call into the output buffer. `message` is the serialised request and must outlive the
  // call; `timeout_us`, if more than 0, is sent as the call's deadline. Only while usable().
  uint32_t Start(const std::string& message, int64_t timeout_us);

  // Tells the server to drop a call. Its Done is not called.
  void Cancel(uint32_t stream);

  // Whether a call can be started now: false once the connection is lost or going away, and while
  // the server allows no more concurrent calls.
  bool usable() const { return alive_ && !going_away_ && open_calls_ < max_concurrent_; }
  // False once the connection is lost, or going away: no further call will ever be possible.
  bool alive() const { return alive_ && !going_away_; }
  // No answer will come any more.
  bool lost() const { return !alive_; }

  // Writes what is buffered, as far as the socket takes it. Returns whether something is left.
  bool Flush();
  // Reads what is there and calls Done for each call that ended. When the connection is lost, every
  // open call ends with kUnavailable.
  void ReadAnswers();

  int fd() const { return fd_; }

 private:
  struct PendingData {
    uint32_t stream;
    const std::string* message;
    size_t offset;   // of message with its 5-byte gRPC prefix
    int64_t window;  // of the stream
  };

  H2Connection(int fd, const std::string& method, Done done);

  bool Handshake();
  void AppendFrame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload);
  void AppendHeaders(uint32_t stream, int64_t timeout_us);
  // Appends as much of the data as the windows allow; true when all of it is out.
  bool AppendData(PendingData* data);
  void AppendPending();
  void ParseInput();
  void OnFrame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload);
  void OnSettings(absl::string_view payload);
  void OnTrailers(uint32_t stream, absl::string_view block);
  void OnWindowUpdate(uint32_t stream, int64_t increment);
  // Forgets an open call; false when it is not open.
  bool Close(uint32_t stream);
  void End(uint32_t stream, absl::StatusCode code, absl::string_view message);
  void Lose(const std::string& why);

  const int fd_;
  const std::string method_;
  const Done done_;
  bool alive_ = true;
  bool going_away_ = false;
  bool got_settings_ = false;

  std::string out_;
  size_t out_begin_ = 0;
  std::string in_;
  std::string trailers_;          // of a block that goes on in CONTINUATION frames
  uint32_t trailers_stream_ = 0;  // 0 = none

  uint32_t next_stream_ = 1;
  // Whether stream 2 * i + 1 is open, for i from first_open_ on.
  std::deque<bool> open_;
  uint32_t first_open_ = 0;
  int64_t open_calls_ = 0;
  std::deque<PendingData> pending_;  // requests that wait for a window

  bool index_headers_ = true;  // the server keeps the default header table
  bool indexed_ = false;       // and has our headers in it
  int64_t max_concurrent_ = 1 << 30;
  int64_t max_frame_ = 16384;
  int64_t stream_window_ = 65535;
  int64_t window_ = 65535;
  int64_t unacknowledged_ = 0;  // bytes received that the server's window does not know of
};

}  // namespace sru::bench

#endif  // SRU_CLIENT_BENCH_H2_CONNECTION_H_
