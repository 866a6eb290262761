// The parts of the metrics of one loaded model. Each object owns one or a few series: it adds them
// to the registry and removes them in its destructor. A metric per model is therefore one member of
// ModelMetrics (metrics.h) and the line that records it. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_MODEL_SERIES_H_
#define SRU_SERVER_TELEMETRY_MODEL_SERIES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "prometheus/registry.h"
#include "server/calls/method_info.h"

namespace sru::server::telemetry {

// Upper bounds of a histogram's buckets.
using Buckets = prometheus::Histogram::BucketBoundaries;
Buckets DurationBuckets();      // 50 us to 10 s
Buckets SizeBuckets();          // 1 to 65,536, by powers of two
Buckets RatioBuckets();         // 0.01 to 1
Buckets LoadDurationBuckets();  // 10 ms to 500 s

// The model that series belong to. It must outlive them, and the registry must outlive it.
class SeriesOwner {
 public:
  // Without a model, for calls without one, the labels are empty.
  explicit SeriesOwner(prometheus::Registry* registry, std::string model = "",
                       std::string version = "")
      : registry_(*registry), model_(std::move(model)), version_(std::move(version)) {}

  prometheus::Registry& registry() const { return registry_; }
  // The labels of a series: `others` and those of the model.
  prometheus::Labels Labels(prometheus::Labels others = {}) const {
    others["model"] = model_;
    others["version"] = version_;
    return others;
  }

 private:
  prometheus::Registry& registry_;
  const std::string model_;
  const std::string version_;
};

// One counter. The first one with a name makes the family, with the help text.
class ModelCounter {
 public:
  ModelCounter(const SeriesOwner& owner, const char* name, const char* help)
      : family_(prometheus::BuildCounter().Name(name).Help(help).Register(owner.registry())),
        series_(family_.Add(owner.Labels())) {}
  ~ModelCounter() { family_.Remove(&series_); }
  ModelCounter(const ModelCounter&) = delete;
  ModelCounter& operator=(const ModelCounter&) = delete;

  void Add(int64_t count) {
    if (count > 0) series_.Increment(static_cast<double>(count));
  }

 private:
  prometheus::Family<prometheus::Counter>& family_;
  prometheus::Counter& series_;
};

// One histogram. The first one with a name makes the family, with the help text.
class ModelHistogram {
 public:
  ModelHistogram(const SeriesOwner& owner, const char* name, const char* help,
                 const Buckets& buckets, prometheus::Labels labels = {})
      : family_(prometheus::BuildHistogram().Name(name).Help(help).Register(owner.registry())),
        series_(family_.Add(owner.Labels(std::move(labels)), buckets)) {}
  ~ModelHistogram() { family_.Remove(&series_); }
  ModelHistogram(const ModelHistogram&) = delete;
  ModelHistogram& operator=(const ModelHistogram&) = delete;

  void Observe(double value) { series_.Observe(value); }
  void Observe(absl::Duration duration) { Observe(absl::ToDoubleSeconds(duration)); }

 private:
  prometheus::Family<prometheus::Histogram>& family_;
  prometheus::Histogram& series_;
};

// A histogram that appears when it is made or gets its first value: a model need have none that its
// task does not use. Thread-safe.
class LazyHistogram {
 public:
  // `name` and `help` are literals.
  LazyHistogram(const SeriesOwner& owner, const char* name, const char* help, Buckets (*buckets)(),
                prometheus::Labels labels = {})
      : owner_(owner), name_(name), help_(help), buckets_(buckets), labels_(std::move(labels)) {}

  ModelHistogram& Make() {
    std::call_once(made_,
                   [this] { histogram_.emplace(owner_, name_, help_, buckets_(), labels_); });
    return *histogram_;
  }
  template <typename Value>
  void Observe(Value value) {
    Make().Observe(value);
  }

 private:
  const SeriesOwner& owner_;
  const char* const name_;
  const char* const help_;
  Buckets (*const buckets_)();
  const prometheus::Labels labels_;
  std::once_flag made_;
  std::optional<ModelHistogram> histogram_;
};

// One of these for each method, by the label `method`.
class MethodHistograms {
 public:
  MethodHistograms(const SeriesOwner& owner, const char* name, const char* help,
                   Buckets (*buckets)()) {
    for (size_t i = 0; i < calls::kNumMethods; ++i) {
      const char* const method = calls::MethodName(static_cast<calls::MethodId>(i));
      methods_.emplace_back(owner, name, help, buckets, prometheus::Labels{{"method", method}});
    }
  }

  LazyHistogram& Of(calls::MethodId method) { return methods_[static_cast<size_t>(method)]; }

 private:
  std::deque<LazyHistogram> methods_;
};

// The series of sru_requests_total for one model, or for calls without one. Each appears with its
// first call.
class RequestCounters {
 public:
  explicit RequestCounters(const SeriesOwner& owner);
  ~RequestCounters();
  RequestCounters(const RequestCounters&) = delete;
  RequestCounters& operator=(const RequestCounters&) = delete;

  void Count(calls::MethodId method, absl::StatusCode code);

 private:
  static constexpr size_t kNumCodes = 17;

  const SeriesOwner& owner_;
  prometheus::Family<prometheus::Counter>& family_;
  std::array<std::atomic<prometheus::Counter*>, calls::kNumMethods * kNumCodes> counters_{};
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_MODEL_SERIES_H_
