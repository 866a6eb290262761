// Tracer: decides which calls are sampled, and has a thread that exports their spans to a
// collector.
//
// A call waits for nothing: what finds the queue full is dropped and counted. The thread exports as
// soon as a batch of spans waits, or after max_delay. What a collector refuses for now (HTTP 429,
// 502, 503, 504 and gRPC's like) or does not take is sent again, kMostAttempts times in all, after
// the time that it asks for (kMostWait at most) or a growing one.
//
// Thread-safe.
#ifndef SRU_SERVER_TRACING_TRACER_H_
#define SRU_SERVER_TRACING_TRACER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/call_origin.h"
#include "server/base/clock.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/call_trace.h"
#include "server/tracing/sender.h"
#include "server/tracing/spans.h"
#include "server/tracing/tracing_options.h"

namespace sru::server::tracing {

class Tracer {
 public:
  static constexpr int kMostAttempts = 5;
  static constexpr absl::Duration kMostWait = absl::Seconds(30);

  // `options` are enabled(). `clock` must outlive it.
  Tracer(const TracingOptions& options, const Clock* clock, Sender sender = nullptr);
  ~Tracer() { Stop(absl::ZeroDuration()); }

  // Null: the call is not sampled.
  std::unique_ptr<CallTrace> Begin(const CallOrigin& call, absl::Time now);
  // `method` is "SERVICE/METHOD".
  void End(std::unique_ptr<CallTrace> trace, const CallOrigin& call, absl::string_view method,
           absl::string_view request_id, const telemetry::CallRecord& record);

  // Exports what waits, for `timeout` at most, and ends the thread. What comes later is dropped.
  void Stop(absl::Duration timeout);

  telemetry::SpanCounts counts() const;

 private:
  void Run();
  void Export(const std::vector<std::unique_ptr<CallTrace>>& calls);
  // What becomes of an attempt; for the log.
  void Note(const absl::Status& status);
  // Waits; false: the thread is to end.
  bool Sleep(absl::Duration duration);

  const TracingOptions options_;
  const Clock& clock_;
  const uint64_t sampled_below_;  // of the upper 63 bits of a trace id's last 64
  const Sender send_;
  SpanWriter writer_;     // of the thread
  bool failing_ = false;  // likewise

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<CallTrace>> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queued_spans_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time stop_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  telemetry::SpanCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Of a server that may have no tracer.
inline std::unique_ptr<CallTrace> BeginTrace(Tracer* tracer, const CallOrigin& call,
                                             absl::Time now) {
  return tracer == nullptr ? nullptr : tracer->Begin(call, now);
}

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_TRACER_H_
