#include "server/telemetry/history.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>

#include "absl/strings/string_view.h"
#include "server/base/clock.h"
#include "server/calls/method_info.h"

namespace sru::server::telemetry {
namespace {

using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The increase per second; the sum of gauges; the mean and a quantile of what was observed.
enum class How { kRate, kLevel, kMean, kQuantile };

struct Row {
  const char* name;
  const char* metric;
  How how;
  double quantile = 0;
  bool only_errors = false;
};

constexpr Row kRows[] = {
    {"calls", "sru_requests_total", How::kRate},
    {"errors", "sru_requests_total", How::kRate, 0, true},
    {"refused", "sru_rejections_total", How::kRate},
    {"p50", "sru_request_duration_seconds", How::kQuantile, 0.5},
    {"p90", "sru_request_duration_seconds", How::kQuantile, 0.9},
    {"p99", "sru_request_duration_seconds", How::kQuantile, 0.99},
    {"tokenize", "sru_tokenize_duration_seconds", How::kMean},
    {"queue", "sru_queue_duration_seconds", How::kMean},
    {"compute", "sru_compute_duration_seconds", How::kMean},
    {"fill", "sru_batch_fill_ratio", How::kMean},
    {"batch", "sru_batch_sequences", How::kMean},
    {"waiting", "sru_queue_tokens", How::kLevel},
    {"running", "sru_running_batches", How::kLevel},
    {"in_flight", "sru_requests_in_flight", How::kLevel},
    {"generated", "sru_generated_tokens_total", How::kRate},
    {"first_p50", "sru_time_to_first_token_seconds", How::kQuantile, 0.5},
    {"first_p99", "sru_time_to_first_token_seconds", How::kQuantile, 0.99},
    {"next_p50", "sru_inter_token_seconds", How::kQuantile, 0.5},
    {"next_p99", "sru_inter_token_seconds", How::kQuantile, 0.99},
    {"loop_lag", "sru_door_loop_lag_seconds", How::kQuantile, 0.99},
};
static_assert(std::size(kRows) == History::kNumFigures);

bool IsStream(absl::string_view method) {
  for (size_t i = 0; i < calls::kNumMethods; ++i) {
    const calls::MethodInfo info = calls::Describe(static_cast<calls::MethodId>(i));
    if (method == info.name) return info.is_stream();
  }
  return false;
}

// Counters of a model that was unloaded are missing from the sum of all.
double Increase(double now, double before) { return std::max(0.0, now - before); }

// As histogram_quantile of Prometheus: linear within a bucket, and the last bound for what is
// above.
double Quantile(const std::vector<double>& bounds, const std::vector<double>& counts, double q) {
  const double rank = q * counts.back();
  size_t at = 0;
  while (counts[at] < rank) ++at;
  if (at + 1 == bounds.size()) return bounds[at - 1];  // the last one is infinite
  const double low = at == 0 ? 0 : bounds[at - 1];
  const double below = at == 0 ? 0 : counts[at - 1];
  const double inside = counts[at] - below;
  return inside <= 0 ? bounds[at] : low + (bounds[at] - low) * (rank - below) / inside;
}

}  // namespace

const char* History::NameOf(size_t figure) { return kRows[figure].name; }

std::map<History::Key, History::Sums> History::SumUp(const std::vector<MetricFamily>& families) {
  std::map<Key, Sums> all;
  const auto add = [](const MetricFamily& family, const ClientMetric& metric, Sum* sum) {
    sum->value += family.type == MetricType::Counter     ? metric.counter.value
                  : family.type == MetricType::Histogram ? metric.histogram.sample_sum
                                                         : metric.gauge.value;
    sum->bounds.resize(metric.histogram.bucket.size());
    sum->counts.resize(metric.histogram.bucket.size());
    for (size_t b = 0; b < sum->bounds.size(); ++b) {
      sum->bounds[b] = metric.histogram.bucket[b].upper_bound;
      sum->counts[b] += static_cast<double>(metric.histogram.bucket[b].cumulative_count);
    }
  };
  for (const MetricFamily& family : families) {
    for (size_t i = 0; i < kNumFigures; ++i) {
      if (family.name != kRows[i].metric) continue;
      for (const ClientMetric& metric : family.metric) {
        Key key;
        bool counts = true;
        for (const ClientMetric::Label& label : metric.label) {
          if (label.name == "model") key.first = label.value;
          if (label.name == "version") key.second = label.value;
          if (label.name == "code" && kRows[i].only_errors) counts = label.value != "OK";
          // Texts last as long as callers want, which says nothing of the server.
          if (label.name == "method" && kRows[i].how == How::kQuantile) {
            counts = !IsStream(label.value);
          }
        }
        if (!counts) continue;
        add(family, metric, &all[Key()][i]);
        if (!key.first.empty()) add(family, metric, &all[key][i]);
      }
    }
  }
  return all;
}

void History::Add(const Sample& sample) {
  std::map<Key, Sums> now = SumUp(sample.second);
  while (now.size() > kMostModels + 1) now.erase(std::prev(now.end()));
  const MutexLock lock(&mutex_);
  const double seconds = absl::ToDoubleSeconds(sample.first - last_time_);
  const auto figure = [seconds](const Row& row, const Sum& sum, const Sum& before) {
    if (row.how == How::kLevel) return sum.value;
    if (seconds <= 0) return kNothing;
    const double increase = Increase(sum.value, before.value);
    if (row.how == How::kRate) return increase / seconds;
    std::vector<double> counts = sum.counts;
    for (size_t b = 0; b < std::min(counts.size(), before.counts.size()); ++b) {
      counts[b] = Increase(counts[b], before.counts[b]);
    }
    if (counts.empty() || counts.back() == 0) return kNothing;
    return row.how == How::kMean ? increase / counts.back()
                                 : Quantile(sum.bounds, counts, row.quantile);
  };
  std::map<Key, std::deque<Point>> points;
  for (const auto& [key, sums] : now) {
    std::deque<Point>& series = points[key] = std::move(points_[key]);
    const Sums& before = last_[key];
    Figures& added = series.emplace_back(sample.first, Figures()).second;
    for (size_t i = 0; i < kNumFigures; ++i) {
      added[i] = static_cast<float>(figure(kRows[i], sums[i], before[i]));
    }
    if (series.size() > kSamples) series.pop_front();
  }
  points_ = std::move(points);
  last_ = std::move(now);
  last_time_ = sample.first;
}

std::vector<History::Point> History::Of(const Key& key) const {
  const MutexLock lock(&mutex_);
  const auto found = points_.find(key);
  if (found == points_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::map<History::Key, History::Figures> History::Latest() const {
  const MutexLock lock(&mutex_);
  std::map<Key, Figures> latest;
  for (const auto& [key, series] : points_) latest[key] = series.back().second;
  return latest;
}

void History::Start(std::function<Sample()> sample) {
  thread_ = std::thread([this, sample = std::move(sample)] {
    for (bool stopping = false; !stopping;) {
      try {
        Add(sample());
      } catch (const std::bad_alloc&) {  // a gap
      }
      const absl::Time next = SteadyNow() + kInterval;
      const MutexLock lock(&mutex_);
      while (!stopping_ && SteadyNow() < next) changed_.WaitFor(&mutex_, next - SteadyNow());
      stopping = stopping_;
    }
  });
}

void History::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

}  // namespace sru::server::telemetry
