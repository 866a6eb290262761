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
#include "server/http/http_call.h"
#include "server/http/page_message.h"
#include "server/transport/loop.h"

namespace sru::server::door {
class NativeDoor;
class Session;
class SessionHost;
struct PeerInfo;
}  // namespace sru::server::door

namespace sru::server::http {

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
    // From the end of a request's body until its answer is ready; an answer in parts has to end by
    // then.
    absl::Duration max_call = absl::InfiniteDuration();
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
    // Makes the call of a request whose head has arrived, on one of the loops, and so must return
    // at once.
    std::function<std::shared_ptr<HttpCall>(calls::HttpExchange* exchange, PageRequest request)>
        start;
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

  // kUnavailable names `flag`, the address and why the server cannot listen on it. Port 0 lets the
  // system choose.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view flag,
                                                           const ListenAddress& address,
                                                           Options options);
  // Without a port of its own: other doors give it connections and requests.
  explicit HttpServer(Options options);
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
