// SpanWriter: makes the messages of spans. A call is a SERVER span; its children are its stages.
//
// A batch is a span of its own, in a trace of its own, to which the span `compute` of each of its
// sampled calls links: so a backend shows which calls met in a batch, how large it was, and when it
// ran. Its ids follow from the number of the batch and a number of this process, so that a call
// knows them without asking; the first call of a batch brings the batch's span along.
//
// Not thread-safe.
#ifndef SRU_SERVER_TRACING_SPANS_H_
#define SRU_SERVER_TRACING_SPANS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "opentelemetry/trace.pb.h"
#include "server/base/clock.h"
#include "server/tracing/call_trace.h"
#include "server/tracing/tracing_options.h"

namespace sru::server::tracing {

class SpanWriter {
 public:
  // Both must outlive it.
  SpanWriter(const TracingOptions& options, const Clock* clock)
      : options_(options), clock_(*clock) {}

  // Fills an empty request, best one of an arena: it has a hundred small parts a call.
  void Write(const std::vector<std::unique_ptr<CallTrace>>& calls,
             opentelemetry::proto::ExportTraceServiceRequest* request);

 private:
  using Span = opentelemetry::proto::Span;

  void WriteCall(const CallTrace& call);
  void WriteStages(const CallTrace& call, const Stages& stages);
  void WriteBatch(const CallTrace& call, const Stages& stages);
  Span* Add(absl::string_view name, absl::Time start, absl::Time end);
  Span* AddChild(const CallTrace& call, absl::string_view name, absl::Time start, absl::Time end);
  std::array<uint64_t, 2> BatchTrace(int64_t number) const {
    return {process_, static_cast<uint64_t>(number)};
  }
  uint64_t Nanoseconds(absl::Time time) const {
    return static_cast<uint64_t>(absl::ToUnixNanos(time + to_date_));
  }

  const TracingOptions& options_;
  const Clock& clock_;
  const uint64_t process_ = RandomId();
  absl::Duration to_date_;  // from the clock's time
  opentelemetry::proto::ScopeSpans* scope_ = nullptr;
  std::array<int64_t, 4096> written_batches_{};  // [number modulo size]
};

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_SPANS_H_
