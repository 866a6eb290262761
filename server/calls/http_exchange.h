// HttpExchange and HttpHandler: a request over HTTP that is no call of gRPC's protocol, and who
// answers it: an Exchange and a CallHandler whose one message is the body, and whose answer has an
// HTTP status in place of a call's.
//
//   Transport                         Handler
//   start(exchange)               ->  makes the handler; it may SetHead() and Finish() at once
//   handler->OnBody(body)             unless the handler has answered before
//   handler->OnWritten(ok)        <-  exchange->SetHead(200, headers), exchange->Write(part)
//   handler->OnDone()             <-  exchange->Finish({}) or WriteAndFinish(body, {})
#ifndef SRU_SERVER_CALLS_HTTP_EXCHANGE_H_
#define SRU_SERVER_CALLS_HTTP_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/calls/exchange.h"

namespace sru::server::calls {

class HttpHandler : public CallHandler {
 public:
  // At most once. kResourceExhausted: it is too long; kUnavailable: there is no memory for it;
  // kDeadlineExceeded: it did not come in time; kCancelled: the client is gone.
  virtual void OnBody(absl::StatusOr<absl::Cord> body) = 0;
  // Other tokens or certificates are in use: whether the request's sender may call still. Not after
  // OnDone().
  virtual bool IsAccepted() const { return true; }
  void OnMessage(std::optional<absl::Cord> /*message*/) final {}

 protected:
  ~HttpHandler() = default;
};

// method() is the target: path and query. Parts that are written are not empty, and the end has
// neither headers nor trailers. A client that is gone after the head and before its body is no
// request any more: OnCancel() is followed by OnBody() with kCancelled.
class HttpExchange : public Exchange {
 public:
  virtual absl::string_view verb() const = 0;  // "POST"
  // Visits all fields in their order. The authority is "host".
  virtual void VisitHeaders(
      const std::function<void(absl::string_view name, absl::string_view value)>& visit) const = 0;
  // Within start(): what the head has shown. `caller` tells callers apart and is not read; null:
  // the sender is not accepted, and has less memory and time. The body may have `max_body` bytes;
  // with 0 none is read, and OnBody() gets an empty one.
  virtual void OnChecked(const void* /*caller*/, size_t /*max_body*/) {}
  // Once, before the first part and the end. Names as HTTP/1.1 writes them. An answer whose headers
  // have no Content-Length comes in parts.
  virtual void SetHead(int status, Metadata headers) = 0;

 protected:
  ~HttpExchange() = default;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_HTTP_EXCHANGE_H_
