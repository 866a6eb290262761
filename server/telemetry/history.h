// History: what the server did in the last ten minutes, for the status page: figures of all models
// together and of each, every three seconds, made from the metrics. So the page shows an incident
// that was over when it was opened.
//
// Memory: 30 KB for each model, at most 8 MB. Thread-safe.
#ifndef SRU_SERVER_TELEMETRY_HISTORY_H_
#define SRU_SERVER_TELEMETRY_HISTORY_H_

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "prometheus/metric_family.h"

namespace sru::server::telemetry {

class History {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(3);
  static constexpr size_t kSamples = 200;
  static constexpr size_t kMostModels = 256;  // others have no history

  static constexpr size_t kNumFigures = 20;
  static const char* NameOf(size_t figure);         // status_json.h says what they are
  using Figures = std::array<float, kNumFigures>;   // NaN: nothing was observed
  using Key = std::pair<std::string, std::string>;  // model and version; of all, both are ""
  using Point = std::pair<absl::Time, Figures>;

  History() = default;
  ~History() { Stop(); }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // Adds what `sample` returns every kInterval, on a thread of its own, until Stop().
  using Sample = std::pair<absl::Time, std::vector<prometheus::MetricFamily>>;
  void Start(std::function<Sample()> sample);
  void Stop();

  // Rates and percentiles of a sample are those since the one before. A model that has no metrics
  // any more loses its history.
  void Add(const Sample& sample);

  // The oldest one first; empty for what it does not know.
  std::vector<Point> Of(const Key& key) const;
  // The newest figures.
  std::map<Key, Figures> Latest() const;

 private:
  // What a figure is made of, added up: values, or what was observed and its buckets.
  struct Sum {
    double value = 0;
    std::vector<double> bounds;
    std::vector<double> counts;  // cumulative
  };
  using Sums = std::array<Sum, kNumFigures>;

  static std::map<Key, Sums> SumUp(const std::vector<prometheus::MetricFamily>& families);

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_time_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of the last sample
  std::map<Key, Sums> last_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::deque<Point>> points_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_HISTORY_H_
