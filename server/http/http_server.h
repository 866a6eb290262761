// An HTTP/1.1 server for few and small requests that slow or silent clients cannot hold up: for
// probes, a scraper, and people who look at a page. Boost.Beast implements HTTP; this decides which
// connections may stay open, and for how long.
//
// One thread does all reading and writing, so no connection can occupy a thread. A connection
// carries one request. Each of its three parts (headers, body, answer) has a time limit as a whole,
// which bytes that trickle in do not renew. An answer can be sent in parts while it is made. When all connections are taken, the oldest one of the
// address that has the most is closed to make room for a new one.
//
// Thread-safe.
#ifndef SRU_SERVER_HTTP_HTTP_SERVER_H_
#define SRU_SERVER_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/listen_address.h"
#include "server/http/page_message.h"

namespace sru::server {

// A request that waits for its answer.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  virtual const PageRequest& request() const = 0;
  // True when the connection is gone, so that nobody would get the answer.
  virtual bool gone() const = 0;
  // Sends the answer and then closes the connection. May be called from any thread, at most once.
  // Without it, the connection is closed when the server stops or has to make room. Several calls
  // may share an answer.
  virtual void Reply(std::shared_ptr<const PageResponse> response) = 0;
  void Reply(PageResponse response) {
    Reply(std::make_shared<const PageResponse>(std::move(response)));
  }
  // Sends the status and the headers of `head`, and as the body what is written to the stream until
  // that is destroyed. May be called from any thread, at most once and instead of Reply(). The
  // client has Limits::stream_timeout for all of it.
  virtual std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head) = 0;
};

class HttpServer {
 public:
  struct Limits {
    int max_connections = 512;
    size_t max_header_bytes = 8 << 10;
    size_t max_body_bytes = 64 << 10;
    absl::Duration header_timeout = absl::Seconds(2);   // from the connection to the last header
    absl::Duration body_timeout = absl::Seconds(5);     // for the whole body
    absl::Duration answer_timeout = absl::Seconds(10);  // until the client has taken all of it
    absl::Duration stream_timeout = absl::Seconds(90);  // likewise, of an answer in parts
  };

  // Called on the server's one thread, so it must return at once. By then the body has been read,
  // or the reason why it cannot be read is known. An exception is answered with 503 (memory) or
  // 500.
  using Handler = std::function<void(const std::shared_ptr<HttpCall>& call)>;

  // kUnavailable, with the reason, if the server cannot listen on `address`. Port 0 lets the system
  // choose.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ListenAddress& address,
                                                           const Limits& limits, Handler handler);
  // Like Stop().
  virtual ~HttpServer() = default;

  // Stops listening and closes connections whose request is not complete; answers that are being
  // written get half a second. No call of the handler runs afterwards, and replies are dropped.
  virtual void Stop() = 0;

  // The address with the actual port.
  virtual const ListenAddress& address() const = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_HTTP_SERVER_H_
