// Route: what the gateway answers at a path, and RestCall, what it hands to the route's handler.
//
//   Route route(AnswerMemory::kTensors, "POST", "/v2/models/{name}/infer",
//               ErrorForm::kOpenInference);
//   route.handle = [](const std::shared_ptr<RestCall>& call) {
//     ...
//     call->Unary(kModelInfer, Serialize(request), [call](calls::LocalAnswer answer) {
//       if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
//       call->Reply(...);
//     });
//   };
#ifndef SRU_SERVER_REST_ROUTE_H_
#define SRU_SERVER_REST_ROUTE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/local_calls.h"
#include "server/calls/method_info.h"
#include "server/http/page_message.h"
#include "server/rest/error_response.h"
#include "server/rest/memory_hold.h"

namespace sru::server::rest {

// One HTTP request, until it is answered by Reply(), Fail() or ReplyInParts(): exactly one of them,
// once. The functions may be called on any thread, one at a time. A handler must not block; it
// keeps the RestCall alive through the functions that it passes on.
class RestCall {
 public:
  virtual ~RestCall() = default;

  virtual const http::PageRequest& request() const = 0;
  // What stood for {name} in the route's path, percent-decoded.
  virtual const std::string& parameter(const std::string& name) const = 0;
  // The body, complete. May be moved away.
  virtual std::string& body() = 0;
  // What this request has reserved of the memory of all calls, at first the bytes of the body. Kept
  // until the client has taken the answer.
  virtual MemoryHold& memory() = 0;
  // Readers of JSON stop at these, since they would have to keep more than that before the method
  // sees it.
  virtual const calls::RequestLimits& limits() const = 0;

  // Checks `token`, which a field of the request has, or the header if it is empty. The calls that
  // follow have it. Routes with `token_in_body` call this first of all; until it is OK, a request
  // without the header has a small part of the memory.
  virtual absl::Status Authenticate(absl::string_view token) = 0;
  // Takes the caller's place for a call of this method, before it is made. For routes that learn
  // from the request which method that is, and so have no Route::calls.
  virtual absl::Status Enter(calls::MethodId /*method*/) { return absl::OkStatus(); }
  // False for a model that the caller's limits forbid.
  virtual bool MayUse(absl::string_view /*model*/) const { return true; }

  // Calls of the server's own methods, by their full names, with the headers of the request
  // (authorization, x-request-id, traceparent, the caller's address) and its deadline. Cancelled
  // when the client goes away. What `done` throws fails the request; `on_message` must not throw.
  virtual std::shared_ptr<calls::LocalCall> Unary(const std::string& method, absl::Cord request,
                                                  calls::LocalCalls::OnDone done) = 0;
  virtual std::shared_ptr<calls::LocalStream> ServerStream(const std::string& method,
                                                           absl::Cord request,
                                                           calls::LocalCalls::OnMessage on_message,
                                                           calls::LocalCalls::OnDone done) = 0;

  // Runs `work` on one of the threads that read long bodies; without them, at once. What it throws
  // fails the request.
  virtual void RunAside(std::function<void()> work) = 0;

  // Adds X-Request-Id.
  virtual void Reply(http::PageResponse response) = 0;
  // In the form of the route.
  virtual void Fail(const RestError& error) = 0;
  // Gives up the places that the request has among those of its caller and of the port. Before the
  // last part of an answer, so that a client that has seen the end finds them free; whole answers
  // do so themselves.
  virtual void LeavePlaces() {}
  // As HttpCall::ReplyInParts(), with X-Request-Id. The body of `head` is not sent.
  virtual std::unique_ptr<http::PageStream> ReplyInParts(http::PageResponse head) = 0;
};

using SharedCall = std::shared_ptr<RestCall>;

// What a unary call's answer will take of the memory of all calls besides the message itself, for
// the service to reserve before it computes,
// for each of its bytes. kJsonIfAsked: kJson if the request's Content-Type is JSON, otherwise kOwn.
enum class AnswerMemory : int {
  kJsonIfAsked = -1,
  kOwn = 0,      // no call computes, or the handler reserves what it makes of an answer
  kTensors = 1,  // the values once more: the message as it is parsed
  kJson = 8,     // the message as it is parsed and the text, which is copied while it grows
};

struct Route {
  // A POST takes JSON, unless its content types are changed.
  Route(AnswerMemory memory, std::string method_name, std::string route_path,
        ErrorForm errors = ErrorForm::kV1)
      : answer_memory(memory),
        method(std::move(method_name)),
        path(std::move(route_path)),
        error_form(errors) {
    if (method == "POST") content_types = {kJsonContentType};
  }

  AnswerMemory answer_memory;
  std::string method;  // "GET" or "POST"
  // Starts with '/'. A segment {x} stands for any one that is not empty; a path without such
  // segments goes first.
  std::string path;
  // What a body may be; the first is taken if the request does not say. Empty: the route takes no
  // body.
  std::vector<std::string> content_types;
  size_t most_body = std::numeric_limits<size_t>::max();  // bytes
  ErrorForm error_form;
  // The token, if the server asks for them at all, may be a field of the body: a request without
  // the header is let in, and the handler calls Authenticate().
  bool token_in_body = false;
  bool is_probe = false;  // needs no token, unless Gateway::Options::auth_probes says so
  std::optional<calls::MethodId> calls;  // what it calls, as far as callers' limits are about it
  std::function<void(const SharedCall&)> handle;
  // Its Operation Object of OpenAPI 3.1; null: it is not described.
  std::function<nlohmann::json()> openapi;

  size_t max_body() const { return content_types.empty() ? 0 : most_body; }
};

// Routes that belong together.
struct RouteGroup {
  std::vector<Route> routes;
  // The schemas that the operations refer to as #/components/schemas/NAME, by name; may be null.
  std::function<nlohmann::json()> schemas;
};

// All routes. Thread-safe once they have been added.
class RouteTable {
 public:
  struct Match {
    const Route* route = nullptr;  // null: none
    std::map<std::string, std::string> parameters;
    std::string
        allowed;  // no route has the method, but others have the path: the methods, as "GET, POST"
    ErrorForm errors = ErrorForm::kV1;  // of the route, or of those with a path like it
  };

  void Add(Route route) { routes_.push_back(std::move(route)); }
  // `path` as it was sent. A HEAD finds what GET does.
  Match Find(absl::string_view method, absl::string_view path) const;
  // The route whose path a misspelt one may have meant, as "POST /v1/classify"; empty: none is
  // near.
  std::string Nearest(absl::string_view path) const;

 private:
  std::vector<Route> routes_;
};

// The value of a header Content-Type without its parameters, in lower case.
std::string MediaType(absl::string_view content_type);

// "%2F" becomes "/"; nullopt if it is malformed.
std::optional<std::string> PercentDecode(absl::string_view text);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_ROUTE_H_
