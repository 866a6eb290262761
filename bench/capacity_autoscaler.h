// Autoscaler: Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) with the rules of
// deploy/kubernetes/base/horizontalpodautoscaler.yaml, whose values are the defaults: it wants as many servers
// as bring the mean of a metric to its target, at once upwards, at most doubled in 30 s; downwards it takes
// the highest wish of the last five minutes, and one server a minute.
//
// The algorithm is that of the controller: a deviation of up to a tenth is none; servers that are not ready
// count as if they had nothing to do, so that those which are starting are not asked for twice. Not
// thread-safe.
#ifndef SRU_BENCH_CAPACITY_AUTOSCALER_H_
#define SRU_BENCH_CAPACITY_AUTOSCALER_H_

#include <deque>
#include <utility>

namespace sru::bench {

struct AutoscalerOptions {
  int min_servers = 2;
  int max_servers = 10;
  double period_s = 15;  // the controller's
  double tolerance = 0.1;
  double queue_tokens = 4096;  // waiting in each server, in the mean of the last `metric_s`
  double busy = 0;  // share of the processors' time, likewise of `period_s`; 0 = does not count
  double scrape_s = 15;  // how often the queue is looked at
  double metric_s = 60;
  double up_percent = 100;
  double up_period_s = 30;
  double down_window_s = 300;
  int down_servers = 1;
  double down_period_s = 60;
};

// What the controller sees of the servers, the draining ones left out.
struct FleetMetrics {
  int ready = 0;
  int starting = 0;
  double queue_tokens = 0;  // of all that are ready
  double busy = 0;          // likewise, the sum of their shares
};

class Autoscaler {
 public:
  explicit Autoscaler(const AutoscalerOptions& options) : options_(options) {}

  // How many servers there should be from now on. Called every `period_s`.
  int Decide(double now_s, const FleetMetrics& metrics);

 private:
  // By one metric, before windows and limits.
  int Wanted(double sum, double target, const FleetMetrics& metrics) const;
  // By how much the number of servers has changed up (or down) since then.
  int ChangedSince(double since_s, bool up) const;

  const AutoscalerOptions options_;
  std::deque<std::pair<double, int>> wishes_;   // of the last down_window_s
  std::deque<std::pair<double, int>> changes_;  // by how much
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_AUTOSCALER_H_
