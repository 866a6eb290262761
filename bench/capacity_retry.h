// RetryRule: what gRPC does with a call that failed, by client/service_config.json: up to four attempts, the
// first retry after 0.1 s, each later one after twice as long, by up to a fifth more or less; and none while
// the client has lately had more failures than its bucket of tokens allows.
#ifndef SRU_BENCH_CAPACITY_RETRY_H_
#define SRU_BENCH_CAPACITY_RETRY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

namespace sru::bench {

// The values of client/service_config.json; a test compares them.
struct RetryOptions {
  int max_attempts = 4;
  double initial_backoff_s = 0.1;
  double max_backoff_s = 2;
  double backoff_multiplier = 2;
  double throttle_tokens = 1000;
  double throttle_ratio = 1;
};

// Of one client. Not thread-safe.
class RetryRule {
 public:
  explicit RetryRule(const RetryOptions& options)
      : options_(options), tokens_(options.throttle_tokens) {}

  void Succeeded() {
    tokens_ = std::min(options_.throttle_tokens, tokens_ + options_.throttle_ratio);
  }

  // An attempt, the `attempts`-th of its call, met UNAVAILABLE. The nanoseconds until the next one; none if
  // the call has failed.
  std::optional<int64_t> Failed(int attempts, std::mt19937_64& random) {
    tokens_ = std::max(0.0, tokens_ - 1);
    if (attempts >= options_.max_attempts || tokens_ <= options_.throttle_tokens / 2) {
      return std::nullopt;
    }
    double backoff_s = options_.initial_backoff_s;
    for (int i = 1; i < attempts; ++i) backoff_s *= options_.backoff_multiplier;
    backoff_s = std::min(backoff_s, options_.max_backoff_s);
    return static_cast<int64_t>(
        backoff_s * std::uniform_real_distribution<>(1 - kJitter, 1 + kJitter)(random) * 1e9);
  }

 private:
  static constexpr double kJitter = 0.2;  // gRPC's own

  const RetryOptions options_;
  double tokens_;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_RETRY_H_
