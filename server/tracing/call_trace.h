// CallTrace: what is noted of a call that is sampled, from which its spans are made when it has
// ended (spans.h).
//
// Not thread-safe: what notes something of a call does so one after the other.
#ifndef SRU_SERVER_TRACING_CALL_TRACE_H_
#define SRU_SERVER_TRACING_CALL_TRACE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/queue/batcher.h"
#include "server/telemetry/call_times.h"

namespace sru::server::tracing {

class Tracer;

// An id of a span (8 bytes) or one half of a trace's: from a generator of the thread, never 0.
uint64_t RandomId();

// The stages of a call, or of one message of a stream, from `start` on.
struct Stages {
  absl::Time start;
  telemetry::CallTimes times;
  // When the results were there; InfinitePast(): there were none, and nothing was queued.
  absl::Time computed = absl::InfinitePast();
  batching::BatchRef batch;  // that finished last; none of steps
};

struct CallTrace {
  // For what a span may have: more than these are left out.
  static constexpr size_t kMostEvents = 64;
  static constexpr size_t kMostStages = 32;

  struct Event {
    absl::Time time;
    int64_t count = 0;
  };

  // `count` more tokens or steps (`unit`) came. The first one is an event, then every 16th, and
  // each at least a quarter further than the one before, so that even a long text has few.
  void OnProgress(const char* unit, absl::Time now, int64_t count) {
    if (count == 0) return;
    progress_unit = unit;
    progress += count;
    if (progress < next_event || events.size() >= kMostEvents) return;
    events.push_back({now, progress});
    next_event = std::max(progress - progress % 16 + 16, progress + progress / 4);
  }
  void OnStages(const Stages& of_message) {
    if (stages.size() < kMostStages) stages.push_back(of_message);
  }
  // As many spans are made of it at most: the call, and each time its stages and their batch.
  int64_t num_spans() const { return 1 + 5 * static_cast<int64_t>(stages.size()); }

  Tracer* tracer = nullptr;
  std::array<uint64_t, 2> trace_id{};
  uint64_t span_id = 0;
  uint64_t parent_id = 0;  // 0: none
  std::string trace_state;
  absl::Time begin;

  // While it runs.
  absl::Time computed = absl::InfinitePast();
  batching::BatchRef batch;
  std::vector<Stages> stages;
  std::vector<Event> events;
  const char* progress_unit = "";
  int64_t progress = 0;
  int64_t next_event = 1;

  // At its end (EndTrace()).
  absl::Time end;
  std::string method;  // "sru.v1.InferenceService/Classify"
  std::string http_method;
  std::string http_route;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string error;  // of errors that are not the caller's
  std::string request_id;
  std::string caller;
  std::string client_address;
  std::string model;
  int64_t version = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
};

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_CALL_TRACE_H_
