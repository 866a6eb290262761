// EventStream: an answer that consists of server-sent events (text/event-stream) or of frames of
// Connect or gRPC-Web, sent as the client takes them.
//
// The answer begins with the first event, so that what fails before it has an HTTP status of its
// own. While no event comes, a comment now and then keeps proxies from closing the connection.
//
// Thread-safe.
#ifndef SRU_SERVER_REST_EVENT_STREAM_H_
#define SRU_SERVER_REST_EVENT_STREAM_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/alarm.h"
#include "server/http/page_message.h"
#include "server/rest/error_response.h"
#include "server/rest/route.h"

namespace sru::server::rest {

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  // `form` decides on events or frames, and on the form of errors. Comments have `keep_alive`
  // between them; frames have no comments.
  EventStream(SharedCall call, ErrorForm form, absl::Duration keep_alive = absl::Seconds(15))
      : call_(std::move(call)), form_(form), keep_alive_(keep_alive) {}
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // Starts the clock for comments.
  void Start();

  // Sends `data` (without line ends) as an event. `sent` runs when more should come, or with false
  // when nobody reads any more. Events are sent in the order of the calls; callers bound what waits
  // by waiting for `sent`.
  void Send(absl::string_view data, std::function<void(bool)> sent) {
    Push(Event(data, /*is_end=*/false), std::move(sent), /*last=*/false);
  }

  // Sends a last event, unless it is empty, and ends the answer. Nothing may come after it. Forms
  // with frames need a last event: the ErrorBody() of the call's end.
  void End(absl::string_view data) {
    Push(data.empty() ? "" : Event(data, /*is_end=*/true), nullptr, /*last=*/true);
  }
  // Ends the answer with an error: as an event if the answer has begun, otherwise as the answer.
  void Fail(const RestError& error);

 private:
  struct Part {
    std::string text;
    std::function<void(bool)> sent;
  };

  std::string Event(absl::string_view data, bool is_end) const;
  void Push(std::string text, std::function<void(bool)> sent, bool last);
  void Pump();
  void OnWritten(bool ok);
  void OnAlarm();

  const SharedCall call_;
  const ErrorForm form_;
  const absl::Duration keep_alive_;
  Mutex mutex_;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<http::PageStream> stream_ ABSL_GUARDED_BY(mutex_);
  std::deque<Part> waiting_ ABSL_GUARDED_BY(mutex_);
  std::function<void(bool)> sent_ ABSL_GUARDED_BY(mutex_);  // of the part that is being written
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is in Pump()
  bool quiet_ ABSL_GUARDED_BY(mutex_) = true;     // since the last look
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // nobody reads
};

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_EVENT_STREAM_H_
