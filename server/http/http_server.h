// Answers HTTP: for probes, a scraper, people who look at a page, and for calls. Doors
// (server/door/native_door.h) own the connections and their loops; this makes the session of each
// connection of HTTP/1.1, whose requests Boost.Beast reads, and the handler of each request over
// HTTP/2.
//
// Headers, body and answer have a time limit as a whole, which bytes that trickle in do not renew.
// An answer can be sent in parts while it is made.
//
// Thread-safe.
#ifndef SRU_SERVER_HTTP_HTTP_SERVER_H_
#define SRU_SERVER_HTTP_HTTP_SERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/listen_address.h"
#include "server/calls/http_exchange.h"
#include "server/http/page_message.h"
#include "server/transport/loop.h"

namespace sru::server::door {
class NativeDoor;
class Session;
class SessionHost;
struct PeerInfo;
}  // namespace sru::server::door

namespace sru::server::http {

// A request that waits for its answer.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  virtual const PageRequest& request() const = 0;
  // True when the connection is gone, so that nobody would get the answer.
  virtual bool gone() const = 0;
  // `on_gone` runs once, on one of the server's threads, when the connection is gone before its
  // answer has been written; at once if it is gone already. It must return at once. Call this at
  // most once.
  virtual void OnGone(std::function<void()> on_gone) = 0;
  // Sends the answer. May be called from any thread, at most once.
  // Without it, the connection is closed when the server stops or has to make room. Several calls
  // may share an answer.
  virtual void Reply(std::shared_ptr<const PageResponse> response) = 0;
  void Reply(PageResponse response) {
    Reply(std::make_shared<const PageResponse>(std::move(response)));
  }
  // Sends the status and the headers of `head`, and as the body what is written to the stream until
  // that is destroyed. May be called from any thread, at most once and instead of Reply().
  virtual std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head) = 0;
};

class HttpServer final {
 public:
  struct Limits {
    int max_connections = 512;  // of a port of its own
    size_t max_header_bytes = 8 << 10;
    size_t max_body_bytes = 64 << 10;
    // The sum of all bodies that are being read or whose calls are not answered. 0 = no bound. Over
    // it, the oldest body that has not come whole makes way, of the address whose such bodies have
    // the most bytes; an address that is alone with such bodies has its new ones refused. Their
    // requests are answered with 503 and Retry-After.
    size_t max_total_body_bytes = 0;
    absl::Duration header_timeout = absl::Seconds(2);  // from their first byte to the last header
    absl::Duration body_timeout = absl::Seconds(5);    // for the whole body
    // For each 16 KiB of it, and for its rest.
    absl::Duration progress_timeout = absl::InfiniteDuration();
    // Until the client has taken all of an answer, or of one in parts what it has been sent so far.
    absl::Duration answer_timeout = absl::Seconds(10);
    absl::Duration idle_timeout = absl::Seconds(60);  // between two requests of a connection
    // A connection that is older is closed after its answer, and one in parts is cut off when so
    // much more has passed.
    absl::Duration max_age = absl::InfiniteDuration();
    absl::Duration max_age_grace = absl::InfiniteDuration();
  };

  struct Options {
    Limits limits;
    // Must outlive the server, and its calls. Null: one loop of its own.
    transport::LoopSet* loops = nullptr;
    // A connection carries any number of requests, one after the other. Bodies may be chunked. A
    // client that closes its side of the connection gets the answer to its last request. One that
    // had not announced that this is the last is gone if the answer takes long, or comes in parts.
    bool keep_alive = false;
    // Called when the headers of a request have arrived, before its body is read. If it returns an
    // answer, that is sent, and the handler does not see the request; otherwise it may set the
    // request's `admission`. Must return at once. May be null.
    std::function<std::shared_ptr<const PageResponse>(PageRequest* request)> check_headers;
    // The answer to what is no request; null: a line of text.
    std::function<PageResponse(int status, const std::string& text)> make_error;
    // As door::DoorOptions, of a port of its own. May be null.
    std::function<void(absl::string_view reason, const std::string& peer)> on_refused;
    // A connection is closed because the answer to a request was not taken in time. May be null.
    std::function<void(absl::string_view path, const std::string& peer)> on_not_taken;
  };

  struct Stats {
    int64_t connections = 0;           // open now
    std::array<int64_t, 6> answers{};  // so far, by the first digit of their status
    int64_t body_bytes = 0;            // of all bodies that are being read or handled
    int64_t not_taken = 0;             // answers so far that were not taken in time
  };

  // Called on one of the loops, so it must return at once. By then the body has been read,
  // or the reason why it cannot be read is known. An exception is answered with 503 (memory) or
  // 500.
  using Handler = std::function<void(const std::shared_ptr<HttpCall>& call)>;

  // kUnavailable names `flag`, the address and why the server cannot listen on it. Port 0 lets the
  // system choose.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view flag,
                                                           const ListenAddress& address,
                                                           Options options, Handler handler);
  // Without a port of its own: other doors give it connections and requests.
  HttpServer(Options options, Handler handler);
  // Like Stop().
  ~HttpServer();

  // For door::DoorOptions, on one of the loops. What a connection of HTTP/1.1 says.
  std::shared_ptr<door::Session> StartSession(door::SessionHost* host, const door::PeerInfo& peer);
  // Makes the handler of a request that comes another way than over HTTP/1.1.
  calls::HttpHandler* Answer(calls::HttpExchange* exchange);

  // From now on, answers say that their connections are closed, and they are.
  void BeginDrain();

  // Shuts its own port; other doors must be shut already. No call of the handler runs afterwards,
  // and replies are dropped.
  void Stop();

  // Of its own port, with the number that the system chose.
  const ListenAddress& address() const;
  door::NativeDoor& door() const;

  Stats stats() const;

 private:
  struct Shared;
  class Shelf;
  struct Port;

  absl::Status Listen(absl::string_view flag, const ListenAddress& address);

  const std::unique_ptr<Shared> shared_;
  const std::unique_ptr<transport::LoopSet> own_loops_;
  transport::LoopSet& loops_;
  std::vector<std::unique_ptr<Shelf>> shelves_;
  std::unique_ptr<Port> port_;
  bool stopped_ = false;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_SERVER_H_
