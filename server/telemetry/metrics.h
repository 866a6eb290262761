// What the server tells Prometheus. Base units (seconds, bytes, tokens), prefix sru_.
//
// Series exist only for loaded models: a call that names no loaded model is counted under
// model="" version="", so that callers cannot make series. The series of a model are looked up
// once, when it is loaded; recording a call is a few additions. They go when the model is freed; a
// version that is loaded anew while the old one still answers calls goes on with the same series.
// Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_METRICS_H_
#define SRU_SERVER_TELEMETRY_METRICS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "server/base/mutex.h"
#include "server/batching/batcher.h"
#include "server/batching/engine.h"
#include "server/telemetry/call_times.h"
#include "server/telemetry/model_status.h"

namespace sru::server {

enum class Method { kClassify, kEncode, kListModels, kGetModel, kLoadModel, kUnloadModel };
inline constexpr int kNumMethods = 6;
const char* MethodName(Method method);

class Metrics;

// The counters of one model and all methods, by code; each series appears with its first call.
class RequestCounters {
 public:
  RequestCounters(prometheus::Family<prometheus::Counter>* family, std::string model,
                  std::string version);
  void Count(Method method, absl::StatusCode code);
  // Takes the series back. Count() may not be called any more.
  void RemoveSeries();

 private:
  static constexpr int kNumCodes = 17;

  prometheus::Family<prometheus::Counter>* const family_;
  const std::string model_;
  const std::string version_;
  std::array<std::atomic<prometheus::Counter*>, kNumMethods * kNumCodes> counters_{};
};

// The series of one loaded model. Must not outlive its Metrics.
class ModelMetrics : public BatchObserver {
 public:
  // One call that named this model. `times` is read for an OK call only.
  void OnCall(Method method, absl::StatusCode code, const CallTimes& times);

  // A call of this model was refused because calls may not hold more memory.
  void OnMemoryRefusal() { memory_refusals_.fetch_add(1, std::memory_order_relaxed); }
  int64_t memory_refusals() const { return memory_refusals_.load(std::memory_order_relaxed); }

  // BatchObserver:
  void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
               const absl::Status& status) override;

 private:
  friend class Metrics;
  ModelMetrics(Metrics* metrics, const std::string& model, int64_t version, int max_batch_tokens);
  void RemoveSeries(Metrics* metrics);

  const int max_batch_tokens_;
  std::atomic<int64_t> memory_refusals_{0};
  RequestCounters requests_;
  std::array<prometheus::Histogram*, kNumMethods> request_duration_{};
  prometheus::Histogram* const tokenize_duration_;
  prometheus::Histogram* const queue_duration_;
  prometheus::Histogram* const compute_duration_;
  prometheus::Histogram* const batch_sequences_;
  prometheus::Histogram* const batch_tokens_;
  prometheus::Histogram* const batch_fill_ratio_;
};

// Levels that are read when somebody scrapes.
struct ServerLevels {
  struct ModelLevels {
    std::string model;
    int64_t version = 0;
    BatcherStats stats;
    int instances = 0;            // workers in service
    int64_t rejected_memory = 0;  // calls, since the start
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
  int64_t rejected_memory = 0;  // calls that named no model, since the start
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

  // For series of other files; they must not outlive this object.
  prometheus::Registry* registry() { return &registry_; }

  // Everything there is now.
  std::vector<prometheus::MetricFamily> Collect(const ServerLevels& levels) const;

  // The same in Prometheus' text format.
  std::string Text(const ServerLevels& levels) const;

 private:
  friend class ModelMetrics;

  using ModelKey = std::pair<std::string, int64_t>;
  struct SharedModelMetrics {
    std::unique_ptr<ModelMetrics> metrics;
    int owners = 0;
  };

  void Release(const ModelKey& key);

  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& request_duration_;
  prometheus::Family<prometheus::Histogram>& tokenize_duration_;
  prometheus::Family<prometheus::Histogram>& queue_duration_;
  prometheus::Family<prometheus::Histogram>& compute_duration_;
  prometheus::Family<prometheus::Histogram>& batch_sequences_;
  prometheus::Family<prometheus::Histogram>& batch_tokens_;
  prometheus::Family<prometheus::Histogram>& batch_fill_ratio_;
  prometheus::Histogram& load_duration_;
  RequestCounters without_model_;

  Mutex mutex_;
  std::map<ModelKey, SharedModelMetrics> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server

#endif  // SRU_SERVER_TELEMETRY_METRICS_H_
