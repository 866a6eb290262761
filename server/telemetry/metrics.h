// What the server tells Prometheus. Base units (seconds, bytes, tokens), prefix sru_.
//
// A metric is one entry. What is recorded as it happens, per model, is a member of ModelMetrics;
// what is read when somebody scrapes is a row of the table in metrics.cc, with its value in
// ServerLevels.
//
// Series exist only for loaded models: a call that names no loaded model is counted under
// model="" version="", so that callers cannot make series. The series of a model are looked up
// once, when it is loaded; recording a call is a few additions. They go when the model is freed; a
// version that is loaded anew while the old one still answers calls goes on with the same series.
// Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_METRICS_H_
#define SRU_SERVER_TELEMETRY_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "server/base/mutex.h"
#include "server/batching/batcher.h"
#include "server/batching/engine.h"
#include "server/batching/reject_reason.h"
#include "server/telemetry/call_times.h"
#include "server/telemetry/method.h"
#include "server/telemetry/model_series.h"
#include "server/telemetry/model_status.h"

namespace sru::server {

class Metrics;

// The series of one loaded model. Must not outlive its Metrics.
class ModelMetrics : public BatchObserver {
 public:
  // One call that named this model. `times` is read for an OK call only.
  void OnCall(Method method, absl::StatusCode code, const CallTimes& times);

  // A call of this model was refused before it reached the batcher, which counts its own refusals.
  void OnRefusal(RejectReason reason) { refusals_.Count(reason); }
  RejectCounts refusals() const { return refusals_.counts(); }

  // BatchObserver:
  void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
               const absl::Status& status) override;

 private:
  friend class Metrics;
  ModelMetrics(prometheus::Registry* registry, const std::string& model, int64_t version,
               int max_batch_tokens);

  const SeriesOwner owner_;
  const int max_batch_tokens_;
  RejectCounters refusals_;  // shown as levels

  // The table of metrics per model that are recorded as things happen: one entry each.
  RequestCounters requests_{owner_};
  MethodHistograms request_duration_{
      owner_, "sru_request_duration_seconds",
      "Time inside the server of calls that were answered with OK, from arrival to answer.",
      DurationBuckets()};
  ModelHistogram tokenize_duration_{owner_, "sru_tokenize_duration_seconds",
                                    "Checking a call and turning its text into ids.",
                                    DurationBuckets()};
  ModelHistogram queue_duration_{owner_, "sru_queue_duration_seconds",
                                 "Waiting for a batch, per call.", DurationBuckets()};
  ModelHistogram compute_duration_{owner_, "sru_compute_duration_seconds",
                                   "Forward pass of one batch.", DurationBuckets()};
  ModelHistogram batch_sequences_{owner_, "sru_batch_sequences", "Sequences in one batch.",
                                  SizeBuckets()};
  ModelHistogram batch_tokens_{owner_, "sru_batch_tokens", "Tokens in one batch.", SizeBuckets()};
  ModelHistogram batch_fill_ratio_{owner_, "sru_batch_fill_ratio",
                                   "Tokens in one batch divided by --max_batch_tokens.",
                                   RatioBuckets()};
};

// Levels that are read when somebody scrapes.
struct ServerLevels {
  struct ModelLevels {
    std::string model;
    int64_t version = 0;
    BatcherStats stats;
    int instances = 0;                          // workers in service
    RejectCounts rejected_before_batcher = {};  // calls, since the start
  };
  struct DeviceLevels {
    kernels::DeviceInfo info;
    bool lost = false;
  };
  bool ready = false;
  int64_t requests_in_flight = 0;
  int64_t connections = 0;
  int64_t suppressed_log_lines = 0;
  int64_t dropped_log_lines = 0;
  int64_t receive_memory_limit_bytes = 0;
  int64_t received_message_bytes = 0;  // since the start
  int64_t inflight_bytes = 0;
  int64_t inflight_limit_bytes = 0;
  RejectCounts rejected;  // calls that named no loaded model, since the start
  int64_t unsent_answers = 0;
  int64_t answers_not_taken = 0;  // since the start
  std::string backend;            // empty until models are loaded
  std::string dtype;
  std::string isa;  // kernels::Backend::instruction_set()
  std::vector<ModelLevels> models;
  std::vector<ModelStatus> statuses;
  std::vector<ModelLoadCounts> load_counts;
  bool repository_emptied = false;    // ModelManager::repository_emptied()
  std::vector<DeviceLevels> devices;  // none for a backend on the processor
};

class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The same object for everybody who asks for the same model and version meanwhile. The series are
  // removed with its last owner.
  std::shared_ptr<ModelMetrics> ForModel(const std::string& model, int64_t version,
                                         int max_batch_tokens);

  // A model was loaded, which took this long from its files to a warm engine.
  void OnModelLoaded(absl::Duration duration);

  // A call that named no loaded model, or none at all (ListModels).
  void OnCallWithoutModel(Method method, absl::StatusCode code);

  // A call of a method that no service has.
  void OnUnknownMethod() { unknown_methods_.Increment(); }

  // A call was refused before it had found a model.
  void OnRefusalWithoutModel(RejectReason reason) { refusals_.Count(reason); }
  RejectCounts refusals_without_model() const { return refusals_.counts(); }

  // For series of other files; they must not outlive this object.
  prometheus::Registry* registry() { return &registry_; }

  // Everything there is now.
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

  prometheus::Registry registry_;
  const SeriesOwner no_model_{&registry_};
  RequestCounters without_model_{no_model_};
  RejectCounters refusals_;
  prometheus::Counter& unknown_methods_;
  prometheus::Histogram& load_duration_;

  Mutex mutex_;
  std::map<ModelKey, SharedModelMetrics> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server

#endif  // SRU_SERVER_TELEMETRY_METRICS_H_
