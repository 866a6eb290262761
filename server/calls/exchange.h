// Exchange and CallHandler: the two sides of a call. An Exchange is what a call sees of its
// transport, a CallHandler what the transport sees of the call. Neither knows what the other is:
// gRPC's library (server/rpc/grpc_door.h), a request over HTTP or a message of another call
// (local_calls.h), or a test (tests/testing/puppet_exchange.h).
//
//   Transport                         Call
//   start(exchange)               ->  makes the handler; it may Read() or Finish() at once
//   handler->OnMessage(message)   <-  exchange->Read(); by itself, once, where there is one request
//   handler->OnWritten(ok)        <-  exchange->Write(message)
//   handler->OnCancel()
//   handler->OnDone()             <-  exchange->Finish(end) or WriteAndFinish(message, end)
//
// Threads. OnMessage() and OnWritten() answer one Read() or Write() each, and may come before that
// function returns. OnCancel() comes at most once, at any time until OnDone(), on any thread; the
// call still has to finish. OnDone() is the last: no other reaction runs or will, and the exchange
// is gone when it returns. After Finish() and WriteAndFinish() both may be gone. A call may use an
// exchange from any thread, with one Read() and one Write() on their way at a time, and none of
// either after the end.
#ifndef SRU_SERVER_CALLS_EXCHANGE_H_
#define SRU_SERVER_CALLS_EXCHANGE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "server/base/call_origin.h"

namespace sru::server::calls {

// A header of this name asks for the answer's messages in an encoding ("gzip"), as far as the
// caller accepts it; it is not sent. The name is the one that gRPC's library takes.
inline constexpr char kEncodingRequest[] = "grpc-internal-encoding-request";

// Lower-case names.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// How a call ends.
struct CallEnd {
  absl::Status status;  // it may say when to come back (server/base/retry.h)
  Metadata headers;     // sent before the first message; lost if one was sent already
  Metadata trailers;
};

class CallHandler {
 public:
  // The message that was asked for. Empty: the caller sends no more, or is gone.
  virtual void OnMessage(std::optional<absl::Cord> message) = 0;
  // The message has left. Not OK: it never will, and no other can.
  virtual void OnWritten(bool /*ok*/) {}
  // The caller is gone, or its deadline has passed; is_cancelled() says so already.
  virtual void OnCancel() {}
  // Usually deletes the handler.
  virtual void OnDone() = 0;

 protected:
  ~CallHandler() = default;
};

class Exchange : public CallOrigin {
 public:
  // The full name of the method: "/sru.v1.InferenceService/Classify".
  virtual absl::string_view method() const = 0;
  // Until the call's deadline; infinite if it has none.
  virtual absl::Duration time_left() const = 0;
  // The call has lost most of its time before it came, so that others should be answered in its
  // place.
  virtual bool came_late() const { return false; }
  virtual bool is_cancelled() const = 0;

  // Each byte of an answer's values takes so many bytes more on its way to the caller, who may want
  // it as text.
  virtual int answer_expansion() const { return 0; }

  // Returns whether the message that was given last came compressed. Within OnMessage(); transports
  // that do not know say no.
  virtual bool message_was_compressed() const { return false; }

  // Sends a header field before the first message, besides those of the end. Not after the first
  // Write(). Transports whose callers take no headers ignore it.
  virtual void AddHeader(std::string /*name*/, std::string /*value*/) {}
  // Takes one message from the wire, and no more. For streams of requests only.
  virtual void Read() = 0;
  virtual void Write(absl::Cord message) = 0;
  // Ends the call. Exactly one of the two, once, and not while a Write() is on its way.
  virtual void Finish(CallEnd end) = 0;
  virtual void WriteAndFinish(absl::Cord message, CallEnd end) = 0;

 protected:
  ~Exchange() = default;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_EXCHANGE_H_
