// Gateway: HTTP requests with JSON become calls of the server's own methods, so that the parser,
// the limits, the deadlines, the metrics and the access log of the calls count for them too.
// docs/rest.md has the routes and headers; server/callers/caller.h, the headers of limits.
//
// Web sites of other origins must not get in, unless `allow_origins` has them: OPTIONS is refused,
// and so is what a browser sends for a page of another origin or of a name that a stranger can own
// (page_host.h).
//
// Thread-safe.
#ifndef SRU_SERVER_REST_GATEWAY_H_
#define SRU_SERVER_REST_GATEWAY_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/side_threads.h"
#include "server/callers/caller.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/byte_budget.h"
#include "server/calls/method.h"
#include "server/http/http_call.h"
#include "server/http/page_message.h"
#include "server/rest/route.h"

namespace sru::server::rest {

class Gateway {
 public:
  struct Options {
    // Must outlive the gateway.
    const calls::MethodTable* methods = nullptr;
    // Paths of the only routes that there are, such as "/v1/classify". Empty: all.
    std::vector<std::string> only;
    // Further requests are refused with 429 until the call of an earlier one has ended. 0: no
    // bound.
    int max_calls = 0;
    // The longest deadline of a call, and that of a request that names none.
    absl::Duration max_timeout = absl::InfiniteDuration();
    // Who calls, or why a request with these headers is refused. Null: everybody passes, and none
    // are told apart.
    std::function<absl::StatusOr<callers::CallerPtr>(const http::PageRequest& request)>
        authenticate;
    // False: it refuses nobody for the lack of a token. No route then waits for one in the body.
    bool asks_for_tokens = true;
    bool auth_probes = false;  // routes that are probes need a token too
    // Requests and answers reserve from it what the services do not: JSON, and what it expands to.
    // Null: no limit. Must outlive the gateway and the answers.
    calls::ByteBudget* memory = nullptr;
    // The same as the methods have.
    calls::RequestLimits limits;
    // Of a body, unpacked. What arrives is bounded by the port.
    size_t max_body_bytes = std::numeric_limits<size_t>::max();
    // Long bodies are read on these; null: on the threads of the port. Must outlive the gateway and
    // its requests.
    SideThreads* readers = nullptr;
    bool reads_all_aside = false;  // short bodies are read on `readers`, too
    // What sets that bound, behind its error: " (--max_message_bytes)".
    std::string max_body_flag;
    // Routes besides the gateway's own: those of modules that a build may leave out.
    std::vector<RouteGroup> more;
    // Names under which pages may be opened besides those of page_host.h, and so call this.
    std::vector<std::string> page_hosts;
    // Origins whose pages may call this and read the answers (allowed_origins.h).
    std::vector<std::string> allow_origins;
    // Called for a request that is refused before a service has seen it, by `authenticate` too, for
    // the log. `caller` is null if nobody knows.
    std::function<void(const http::PageRequest& request, const callers::Caller* caller,
                       int http_status, const absl::Status& reason)>
        on_refused;
  };

  explicit Gateway(Options options);
  // Like Close().
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Makes the call of a request: for http::HttpServer::Options. The head is looked at before the
  // body is read. Does not block.
  std::shared_ptr<http::HttpCall> Start(calls::HttpExchange* exchange, http::PageRequest request);

  // From now on requests get 503. Cancels the calls that still run after `grace`, and waits for
  // their ends.
  void Close(absl::Duration grace = absl::ZeroDuration());

 private:
  class Call;
  struct State;

  const std::shared_ptr<State> state_;  // shared with the calls
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_GATEWAY_H_
