// LocalCalls: calls that the server makes of its own methods, in the same process and without a
// channel: those of requests over HTTP and of the messages of a ModelStreamInfer. Methods with a
// stream of requests cannot be called. The caller's thread parses the request; the answer comes to
// a function, on the thread that made it.
//
//   calls.Unary(*methods.Find("/sru.v1.InferenceService/Classify"), request, info,
//               [](LocalAnswer answer) { ... });
//
// Thread-safe.
#ifndef SRU_SERVER_CALLS_LOCAL_CALLS_H_
#define SRU_SERVER_CALLS_LOCAL_CALLS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/calls/exchange.h"
#include "server/calls/method.h"

namespace sru::server::calls {

// A call's headers, deadline and caller.
struct LocalCallInfo {
  // By SteadyNow(). The caller cancels the call when it has passed.
  absl::Time deadline = absl::InfiniteFuture();
  Metadata headers;
  std::string peer;                                                 // CallOrigin::peer()
  int answer_expansion = 0;                                         // Exchange::answer_expansion()
  std::shared_ptr<callers::Caller> caller = nullptr;                // CallOrigin::caller()
  std::pair<absl::string_view, absl::string_view> http_route = {};  // CallOrigin::http_route()
  bool goes_on = false;                                             // CallOrigin::goes_on()
};

struct LocalAnswer {
  CallEnd end;
  absl::Cord message;  // of a unary call that succeeded
};

// A call that runs. Dropping it does not end the call.
class LocalCall {
 public:
  virtual ~LocalCall() = default;
  // The call ends soon, usually with CANCELLED. No effect once it has ended.
  virtual void Cancel() = 0;
};

// A call with any number of answers, which come one by one as they are asked for: a method that
// waits for its caller waits for ours.
class LocalStream : public LocalCall {
 public:
  // Asks for the next message: `on_message` or `on_done` follows. Call it once at the start and
  // once after each message; it may be called within `on_message`.
  virtual void Next() = 0;
};

class LocalCalls {
 public:
  using OnDone = std::function<void(LocalAnswer answer)>;
  using OnMessage = std::function<void(absl::Cord message)>;

  LocalCalls();
  // Calls that run go on: Close() first, if their functions use what is gone then.
  ~LocalCalls();
  LocalCalls(const LocalCalls&) = delete;
  LocalCalls& operator=(const LocalCalls&) = delete;

  // `done` is called once, possibly before this returns; with UNAVAILABLE after Close(). It must
  // not throw. `method` outlives the call.
  std::shared_ptr<LocalCall> Unary(const Method& method, absl::Cord request, LocalCallInfo info,
                                   OnDone done);

  // The functions are called one at a time and must not throw. `done` is called once, last, and not
  // before the returned stream's Next() or Cancel() was called, unless after Close().
  std::shared_ptr<LocalStream> ServerStream(const Method& method, absl::Cord request,
                                            LocalCallInfo info, OnMessage on_message, OnDone done);

  // Refuses what comes later, cancels what still runs after `grace`, and waits until it has ended.
  // A call's `done` has returned by then.
  void Close(absl::Duration grace = absl::ZeroDuration());

 private:
  class LocalExchange;
  class Running;

  std::shared_ptr<LocalStream> Start(const Method& method, absl::Cord request, LocalCallInfo info,
                                     OnMessage on_message, OnDone done);

  const std::shared_ptr<Running> running_;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_LOCAL_CALLS_H_
