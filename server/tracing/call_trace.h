// CallTrace: what is noted of a call that is sampled, from which its spans are made when it ends.
//
// Not thread-safe: what notes something of a call does so one after the other.
#ifndef SRU_SERVER_TRACING_CALL_TRACE_H_
#define SRU_SERVER_TRACING_CALL_TRACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/telemetry/call_times.h"

namespace sru::server::tracing {

class Tracer;

struct CallTrace {
  // More of them are left out.
  static constexpr size_t kMostEvents = 64;
  static constexpr size_t kMostStages = 32;

  // When the stages of a call, or of one message of a stream, began, and how long each took.
  struct Stages {
    absl::Time start;
    telemetry::CallTimes times;
  };
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

  Tracer* tracer = nullptr;
  // Ids are hexadecimal digits, as in a traceparent.
  std::string trace_id;
  std::string span_id;
  std::string parent_id;  // empty: none
  std::string trace_state;
  absl::Time begin;
  std::vector<Stages> stages;
  std::vector<Event> events;
  const char* progress_unit = "";
  int64_t progress = 0;
  int64_t next_event = 1;
};

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_CALL_TRACE_H_
