#include "bench/capacity_autoscaler.h"

#include <algorithm>
#include <cmath>

namespace sru::bench {

int Autoscaler::Wanted(double sum, double target, const FleetMetrics& metrics) const {
  const int current = metrics.ready + metrics.starting;
  if (metrics.ready == 0 || target <= 0) return current;
  const double ratio = sum / metrics.ready / target;
  if (std::abs(ratio - 1) <= options_.tolerance) return current;
  if (ratio < 1 || metrics.starting == 0) {
    return static_cast<int>(std::ceil(ratio * metrics.ready - 1e-9));
  }
  const double with_starting = sum / current / target;
  if (with_starting <= 1 + options_.tolerance) return current;
  return std::max(current, static_cast<int>(std::ceil(with_starting * current - 1e-9)));
}

int Autoscaler::ChangedSince(double since_s, bool up) const {
  int sum = 0;
  for (const auto& [time_s, change] : changes_) {
    if (time_s > since_s && (change > 0) == up) sum += std::abs(change);
  }
  return sum;
}

int Autoscaler::Decide(double now_s, const FleetMetrics& metrics) {
  const int current = metrics.ready + metrics.starting;
  int wish = Wanted(metrics.queue_tokens, options_.queue_tokens, metrics);
  if (options_.busy > 0) wish = std::max(wish, Wanted(metrics.busy, options_.busy, metrics));
  wishes_.emplace_back(now_s, wish);
  while (wishes_.front().first < now_s - options_.down_window_s) wishes_.pop_front();

  int result = wish;
  if (wish < current) {
    for (const auto& [time_s, earlier] : wishes_) result = std::max(result, earlier);
    result = std::min(result, current);
    const int begun_with = current + ChangedSince(now_s - options_.down_period_s, /*up=*/false);
    result = std::max(result, begun_with - options_.down_servers);
  } else if (wish > current) {
    const int begun_with = current - ChangedSince(now_s - options_.up_period_s, /*up=*/true);
    const double most = begun_with * (1 + options_.up_percent / 100);
    result = std::min(result, static_cast<int>(std::ceil(most)));
    result = std::max(result, current);
  }
  result = std::clamp(result, options_.min_servers, options_.max_servers);
  if (result != current) changes_.emplace_back(now_s, result - current);
  while (!changes_.empty() &&
         changes_.front().first <= now_s - std::max(options_.up_period_s, options_.down_period_s)) {
    changes_.pop_front();
  }
  return result;
}

}  // namespace sru::bench
