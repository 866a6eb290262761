// What GET /status.json answers: the state of the server, its models and every metric, as JSON.
//
//   {"time": 1767225600.25,                      seconds since the epoch, by the server's clock
//    "version": "0.2.0",
//    "build": {"version", "commit", "build_id"}, as GET /version has it (base/build_info.h)
//    "flags": [{"name", "value", "source"}, ...],  those that were changed (Flags::changed())
//    "state": "loading" | "ready" | "draining",
//    "limits": {"max_batch_tokens": 4096, ...},  flags that the figures are read against
//    "try": {"allowed": true, "reason": ""},     whether this viewer may call models, else why not
//    "models": [{"name", "version", "latest", "state", "reason", "description", "backend",
//                "backend_description", "dtype", "instances", "parameters", "task",
//                "labels", "takes_text", "figures": {as in history, the newest ones}}, ...],
//    "history": {"interval_s": 3, "times": [...],  the last ten minutes, of all models; with
//                "figures": {"calls": [...], ...}},     ?model=NAME&version=N of that one
//    "slow_calls": {"log_slow_ms": 0, "calls": [the last 100, the newest one first]},
//    "errors": [{"time", "method", "code", "error", "model", "version", "sequences", "tokens",
//                "request_id", "trace_id", "total_us", "tokenize_us", "queue_us", "compute_us",
//                "rest_us", "batch_sequences", "batch_tokens", "steps", "first_step_us"}, ...],
//    "metrics": {"sru_queue_tokens": {"type": "gauge", "help": "...", "series": [
//                    {"labels": {"model": "trec", "version": "1"}, "value": 0}]},
//                "sru_request_duration_seconds": {"type": "histogram", "help": "...", "series": [
//                    {"labels": {...}, "count": 2, "sum": 0.1, "bounds": [0.001, 1],
//                     "counts": [1, 2, 2]}]}}}
//
// The figures of a time are those since the time before: rates per second (calls, of them errors,
// refused, generated tokens), percentiles and means in seconds (p50, p90, p99 of calls that are no
// streams; tokenize, queue, compute; first_ and next_ token; loop_lag), means of batches (fill,
// batch) and levels (waiting tokens, running batches, calls in_flight). null: nothing was observed.
//
// "counts" are cumulative; the last is that of the bucket without an upper bound and equals
// "count". Rates and percentiles come from the differences of two answers. The metrics are those of
// /metrics, so that nothing is counted twice.
#ifndef SRU_SERVER_HTTP_STATUS_JSON_H_
#define SRU_SERVER_HTTP_STATUS_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "prometheus/metric_family.h"
#include "server/telemetry/history.h"
#include "server/telemetry/recent_calls.h"

namespace sru::server::http {

// One model version as the page shows it.
struct ModelView {
  std::string name;
  int64_t version = 0;
  bool latest = false;          // answers calls that ask for version 0
  std::string state = "ready";  // ModelStateName()
  std::string reason;           // why it, or the version to follow it, could not be loaded
  std::string description;
  std::string backend;
  std::string backend_description;
  std::string dtype;
  int instances = 0;
  int64_t parameters = 0;
  std::string task;                 // models::TaskName()
  std::vector<std::string> labels;  // empty: no classifier
  bool takes_text = false;
};

struct StatusSnapshot {
  absl::Time time;
  std::string state;
  struct Limits {
    int64_t max_batch_tokens = 0;
    int64_t max_queue_tokens = 0;
    int64_t max_queue_sequences = 0;
    int64_t max_sequence_tokens = 0;
  } limits;
  std::vector<Flags::Setting> flags;
  std::vector<ModelView> models;  // sorted by name, then version
  std::vector<prometheus::MetricFamily> metrics;
  const telemetry::History* history = nullptr;  // null: none
  absl::Duration slow;                          // --log_slow_ms
  std::vector<telemetry::RecentCall> slow_calls;
  std::vector<telemetry::RecentCall> errors;
};

// What GET /version answers: "build" of the above.
std::string BuildJson();

// `try_access` is OK, or says why this viewer may not try a model. `scope`: whose history it has.
std::string StatusJson(const StatusSnapshot& snapshot, const absl::Status& try_access,
                       const telemetry::History::Key& scope = {});

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_STATUS_JSON_H_
