// The metrics that the server reports to Prometheus. Base units (seconds, bytes, tokens), prefix
// sru_.
//
// A metric is one entry. A metric that is recorded per model as things happen is a member of
// ModelMetrics. A metric that is read at each scrape is a row of the table in metrics.cc, with its
// value in ServerLevels.
//
// Series exist only for loaded models: a call that names no loaded model is counted under model=""
// version="", so that callers cannot make series. The series of a model are looked up once, when it
// is loaded, so that recording a call takes a few additions. They are removed when the model is
// freed. A version that is reloaded while the old one still answers calls continues the same
// series. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_METRICS_H_
#define SRU_SERVER_TELEMETRY_METRICS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "server/base/clock.h"
#include "server/batching/engine.h"
#include "server/batching/prefix_cache.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/queue/reject_reason.h"
#include "server/batching/state_arenas.h"
#include "server/batching/steps/step_service.h"
#include "server/calls/method_info.h"
#include "server/telemetry/call_times.h"
#include "server/telemetry/model_series.h"
#include "server/telemetry/model_status.h"

namespace sru::server::telemetry {

class Metrics;

// The series of one loaded model. Must not outlive its Metrics.
class ModelMetrics : public batching::ComputeObserver {
 public:
  // Records a call that named this model, with its sequences. Of `times` only the total is read
  // unless the call ended with OK.
  void OnCall(calls::MethodId method, absl::StatusCode code, const CallTimes& times,
              int64_t sequences = 1);

  // Batches, or steps, of one size.
  struct BatchSum {
    int64_t batches = 0;
    absl::Duration compute;
  };

  // Sums over all calls that compute, since the model was loaded.
  struct CallSums {
    int64_t succeeded = 0;
    int64_t failed = 0;
    int64_t sequences = 0;  // this and the times: of calls that succeeded
    CallTimes times;
    absl::Duration failed_total;
    std::map<int, BatchSum> batches;             // that were computed, or steps, by their sequences
    absl::Time last_end = absl::InfinitePast();  // when the last of them was answered, by the date
  };
  CallSums sums() const {
    MutexLock lock(&sums_mutex_);
    return sums_;
  }

  // Counts the tokens of a call that its texts and words gave, and those of them that the
  // vocabulary does not have.
  void OnWords(int64_t words, int64_t unknown) {
    text_tokens_.Add(words);
    unknown_tokens_.Add(unknown);
  }

  // Counts a call of this model that was refused before the batcher, which counts its own refusals.
  void OnRefusal(batching::RejectReason reason) { refusals_.Count(reason); }
  batching::RejectCounts refusals() const { return refusals_.counts(); }

  // ComputeObserver:
  void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
               const absl::Status& status) override;
  void OnStep(int sequences, absl::Duration compute) override;
  void OnFirstToken(absl::Duration duration) override { first_token_.Observe(duration); }
  void OnNextToken(absl::Duration duration) override { next_token_.Observe(duration); }

 private:
  friend class Metrics;

  ModelMetrics(prometheus::Registry* registry, const Clock* clock, const std::string& model,
               int64_t version, int max_batch_tokens);

  void SumBatch(int sequences, absl::Duration compute);

  const SeriesOwner owner_;
  const Clock& clock_;
  const int max_batch_tokens_;
  batching::RejectCounters refusals_;  // shown as levels
  mutable Mutex sums_mutex_;
  CallSums sums_ ABSL_GUARDED_BY(sums_mutex_);

  // The table of metrics per model that are recorded as things happen, one entry each.
  RequestCounters requests_{owner_};
  MethodHistograms request_duration_{
      owner_, "sru_request_duration_seconds",
      "Time inside the server of calls answered with OK, from arrival to answer.", DurationBuckets};
  ModelHistogram tokenize_duration_{owner_, "sru_tokenize_duration_seconds",
                                    "Time to check a call and turn its text into ids.",
                                    DurationBuckets()};
  ModelHistogram queue_duration_{owner_, "sru_queue_duration_seconds",
                                 "Time that a call waits for a batch.", DurationBuckets()};
  ModelHistogram compute_duration_{
      owner_, "sru_compute_duration_seconds",
      "Forward pass of one batch, or one step of Generate or Translate.", DurationBuckets()};
  ModelHistogram batch_sequences_{owner_, "sru_batch_sequences",
                                  "Sequences in one batch; of a reader, queries or parts of them.",
                                  SizeBuckets()};
  ModelHistogram batch_tokens_{owner_, "sru_batch_tokens", "Tokens in one batch.", SizeBuckets()};
  ModelHistogram batch_fill_ratio_{owner_, "sru_batch_fill_ratio",
                                   "Tokens in one batch divided by --max_batch_tokens.",
                                   RatioBuckets()};
  ModelCounter text_tokens_{owner_, "sru_text_tokens_total",
                            "Tokens that texts and words of calls were turned into; ids and "
                            "features are not counted."};
  ModelCounter unknown_tokens_{
      owner_, "sru_unknown_tokens_total",
      "Tokens of sru_text_tokens_total that the model's vocabulary lacks."};
  // Of a model that generates or translates, and of one that generates.
  LazyHistogram decode_sequences_{owner_, "sru_decode_batch_sequences",
                                  "Calls of Generate, or sentences of Translate, in one step.",
                                  SizeBuckets};
  LazyHistogram first_token_{owner_, "sru_time_to_first_token_seconds",
                             "Time from queuing a call of Generate to its first token.",
                             DurationBuckets};
  LazyHistogram next_token_{owner_, "sru_inter_token_seconds",
                            "Time between two tokens of a call of Generate, one per step whatever "
                            "its samples.",
                            DurationBuckets};
};

// Spans since the start: those that the collector has taken, and those that were lost.
struct SpanCounts {
  int64_t exported = 0;
  int64_t dropped_queue_full = 0;
  int64_t dropped_collector = 0;  // it refused them, or was away for too long
  int64_t dropped_shutdown = 0;
};

// The levels that are read at each scrape.
struct ServerLevels {
  struct ModelLevels {
    std::string model;
    int64_t version = 0;
    batching::BatcherStats stats;
    int instances = 0;                                          // most batches at once
    batching::RejectCounts rejected_before_batcher = {};        // calls, since the start
    std::string task;                                           // models::TaskName()
    std::optional<batching::StateArenas::Stats> states = {};    // of a model that keeps some
    std::optional<batching::StepStats> generator = {};          // of a model that generates
    std::optional<batching::PrefixCache::Stats> prefixes = {};  // of a model with a prefix cache
    // Of a model that translates; `stats` has what it shares with other models.
    std::optional<batching::StepStats> translations = {};
  };
  struct DeviceLevels {
    kernels::DeviceInfo info;
    bool lost = false;
  };
  // The busiest callers, and "other".
  struct CallerLevels {
    std::string name;
    int64_t calls = 0;  // that have ended, since the start
    int64_t tokens = 0;
    int64_t refused = 0;
    int64_t in_flight = 0;
  };
  std::vector<CallerLevels> callers;
  std::string grpc_version;
  bool ready = false;
  int64_t requests_in_flight = 0;
  std::optional<int64_t> connections;  // of the gRPC port; nothing: its transport does not tell
  // Of the HTTP port for calls; nothing: there is none.
  struct HttpLevels {
    int64_t connections = 0;
    int64_t body_bytes = 0;
    std::array<int64_t, 6> answers{};  // by the first digit of their status
  };
  std::optional<HttpLevels> http;
  std::optional<SpanCounts> spans;  // nothing: the server makes none
  int64_t suppressed_log_lines = 0;
  int64_t dropped_log_lines = 0;
  int64_t receive_memory_bytes = 0;
  int64_t receive_memory_limit_bytes = 0;
  int64_t received_message_bytes = 0;  // since the start
  int64_t inflight_bytes = 0;
  int64_t inflight_limit_bytes = 0;
  batching::RejectCounts rejected;  // calls that named no loaded model, since the start
  int64_t unsent_answers = 0;
  int64_t open_streams = 0;
  int64_t answers_not_taken = 0;  // since the start
  std::string backend;            // empty until models are loaded
  std::string dtype;
  std::string isa;  // kernels::Backend::instruction_set()
  std::vector<ModelLevels> models;
  std::vector<ModelStatus> statuses;
  std::vector<ModelLoadCounts> load_counts;
  bool repository_emptied = false;    // ModelManager::repository_emptied()
  std::vector<DeviceLevels> devices;  // none for a backend on the processor
  // What the states of all models may take: of each of `devices`, or one entry for the processor.
  std::vector<size_t> state_budget_bytes;
};

class Metrics {
 public:
  // Must outlive it.
  explicit Metrics(const Clock* clock);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Gives the same object to all callers with the same model and version while one of them holds
  // it. The last owner removes the series. Of the methods that `answers` names (null: all), the
  // durations are there from the start.
  std::shared_ptr<ModelMetrics> ForModel(
      const std::string& model, int64_t version, int max_batch_tokens,
      const std::function<bool(calls::MethodId)>& answers = nullptr);

  // Records that a model was loaded, which took this long from its files to a warm engine.
  void OnModelLoaded(absl::Duration duration) {
    load_duration_.Observe(absl::ToDoubleSeconds(duration));
  }

  // Counts a call that named no loaded model, or none at all (ListModels).
  void OnCallWithoutModel(calls::MethodId method, absl::StatusCode code) {
    without_model_.Count(method, code);
  }

  // Counts a call of a method that no service has.
  void OnUnknownMethod() { unknown_methods_.Increment(); }

  // Counts a call that was refused before it had found a model.
  void OnRefusalWithoutModel(batching::RejectReason reason) { refusals_.Count(reason); }
  batching::RejectCounts refusals_without_model() const { return refusals_.counts(); }

  // For the series of other classes, which must not outlive this object.
  prometheus::Registry* registry() { return &registry_; }

  // All families with their current values.
  std::vector<prometheus::MetricFamily> Collect(const ServerLevels& levels) const;

  // The same in Prometheus' text format.
  std::string Text(const ServerLevels& levels) const;

 private:
  using ModelKey = std::pair<std::string, int64_t>;
  struct SharedModelMetrics {
    std::unique_ptr<ModelMetrics> metrics;
    int owners = 0;
  };

  void Release(const ModelKey& key);

  const Clock& clock_;
  // Thread-safe by themselves.
  prometheus::Registry registry_;
  const SeriesOwner no_model_{&registry_};
  RequestCounters without_model_{no_model_};
  batching::RejectCounters refusals_;
  prometheus::Counter& unknown_methods_;
  prometheus::Histogram& load_duration_;

  Mutex mutex_;
  std::map<ModelKey, SharedModelMetrics> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_METRICS_H_
