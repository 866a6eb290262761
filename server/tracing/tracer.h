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

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/call_origin.h"
#include "server/base/clock.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/call_trace.h"
#include "server/tracing/tracing_options.h"

namespace opentelemetry::proto {
class ScopeSpans;  // opentelemetry/trace.pb.h
}  // namespace opentelemetry::proto

namespace sru::server::tracing {

// A new id of a span, or one half of a trace's; not 0.
uint64_t RandomId();
// 16 digits.
std::string HexOf(uint64_t id);

// When to give up, by SteadyNow(); it is asked every now and then.
using Deadline = std::function<absl::Time()>;

// Sends the bytes of an ExportTraceServiceRequest, one at a time, and returns how many of its spans
// the collector has rejected. kUnavailable: another try may help, after RetryAfterOf()
// (server/base/retry.h) if that is said.
using Sender =
    std::function<absl::StatusOr<int64_t>(const std::string& request, const Deadline& deadline)>;

// One over HTTP (Beast) or gRPC; in sender.cc. `options` must outlive it.
Sender MakeSender(const TracingOptions& options);

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
  void End(CallTrace* trace, const CallOrigin& call, absl::string_view method,
           absl::string_view request_id, const telemetry::CallRecord& record);

  // Exports what waits, for `timeout` at most, and ends the thread. What comes later is dropped.
  void Stop(absl::Duration timeout);

  telemetry::SpanCounts counts() const;

 private:
  // In spans.cc. Thread-safe.
  void MakeSpans(const CallTrace& call, const CallOrigin& origin, absl::string_view method,
                 absl::string_view request_id, const telemetry::CallRecord& record,
                 opentelemetry::proto::ScopeSpans* spans);
  void Run();
  void Export(const std::string& spans, int64_t count);
  // What becomes of an attempt; for the log.
  void Note(const absl::Status& status);
  // Waits until `end`, or until so many spans are queued; false: the thread is to end.
  bool WaitUntil(absl::Time end, int64_t spans) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TracingOptions options_;
  const Clock& clock_;
  const uint64_t sampled_below_;  // of the upper 63 bits of a trace id's last 64
  const Sender send_;
  const std::string process_ = HexOf(RandomId());
  std::array<std::atomic<int64_t>, 4096> written_batches_{};  // [number modulo size]
  bool failing_ = false;                                      // of the thread

  mutable Mutex mutex_;
  CondVar changed_;
  // For each call the bytes of a ScopeSpans, and how many spans that are.
  std::vector<std::pair<std::string, int64_t>> queue_ ABSL_GUARDED_BY(mutex_);
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
