#include "bench/capacity_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sru::bench {
namespace {

constexpr int kBisections = 8;
constexpr double kAboutAsGood = 0.97;
constexpr double kLightest = 0.01;
constexpr int64_t kLightCalls = 5000;
constexpr int kManyInFlight = 512;

class Planner {
 public:
  Planner(const MachineSpeed& speed, const PlanOptions& options)
      : speed_(speed), options_(options) {}

  absl::StatusOr<Plan> Make() {
    for (int instances : options_.instances) {
      for (int tokens : options_.max_batch_tokens) {
        for (int delay : options_.max_queue_delay_us) {
          PlanChoice choice{instances, tokens, delay, 0, 0};
          if (options_.on_progress) {
            options_.on_progress(absl::StrCat("--instances=", instances, " --max_batch_tokens=",
                                              tokens, " --max_queue_delay_us=", delay));
          }
          if (absl::Status status = FindRate(&choice); !status.ok()) return status;
          plan_.choices.push_back(choice);
        }
      }
    }
    Choose();
    const PlanChoice& best = plan_.choices[plan_.best];
    auto lightest = Run(best, kLightest * best.saturation, kLightCalls, 0);
    if (!lightest.ok()) return lightest.status();
    plan_.lightest = *std::move(lightest);
    plan_.possible = best.rate > 0;
    if (!plan_.possible) return std::move(plan_);
    if (absl::Status status = CountServers(best); !status.ok()) return status;
    return std::move(plan_);
  }

 private:
  // `rate` 0: as many calls in flight as keep the server busy.
  absl::StatusOr<ServerRunResult> Run(const PlanChoice& choice, double rate, int64_t calls,
                                      int64_t max_queue_tokens) {
    ServerRunOptions run;
    run.server = options_.server;
    run.server.instances = choice.instances;
    run.server.batcher.max_batch_tokens = choice.max_batch_tokens;
    run.server.batcher.max_queue_delay = absl::Microseconds(choice.max_queue_delay_us);
    if (max_queue_tokens > 0) run.server.batcher.max_queue_tokens = max_queue_tokens;
    run.server.batcher.max_queue_tokens =
        std::max<int64_t>(run.server.batcher.max_queue_tokens, choice.max_batch_tokens);
    run.mix = options_.mix;
    run.rate = rate;
    if (rate == 0) {
      run.in_flight = std::max(8, kManyInFlight / options_.mix.sequences);
      run.mix.deadline_ns = 0;
      run.server.batcher.max_queue_tokens = int64_t{1} << 40;
      run.server.batcher.max_queue_sequences = int64_t{1} << 40;
    }
    run.calls = calls;
    run.warmup = std::max<int64_t>(200, calls / 20);
    run.seed = options_.seed;
    return RunServer(speed_, run);
  }

  bool Keeps(const ServerRunResult& result) const {
    const auto p99_us = static_cast<double>(Counted(result).Percentile(99)) / 1000;
    return p99_us <= options_.p99_us && result.refused_share() <= options_.refused_share;
  }
  // Calls of low priority have no objective; without others they do.
  const Histogram& Counted(const ServerRunResult& result) const {
    return result.normal_latency.count() > 0 ? result.normal_latency : result.latency;
  }

  absl::Status FindRate(PlanChoice* choice) {
    auto closed = Run(*choice, 0, options_.calls / 2, 0);
    if (!closed.ok()) return closed.status();
    choice->saturation = closed->throughput();
    double low = 0;
    double high = choice->saturation;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      auto result = Run(*choice, middle, options_.calls, 0);
      if (!result.ok()) return result.status();
      (Keeps(*result) ? low : high) = middle;
    }
    choice->rate = low;
    return absl::OkStatus();
  }

  // How much of the defaults it changes.
  int Changes(const PlanChoice& choice) const {
    const server::BatcherOptions defaults;
    return (choice.instances != speed_.cores) + (choice.max_queue_delay_us != 0) +
           (choice.max_batch_tokens != defaults.max_batch_tokens);
  }

  void Choose() {
    double most = 0;
    for (const PlanChoice& choice : plan_.choices) most = std::max(most, choice.rate);
    bool found = false;
    for (size_t i = 0; i < plan_.choices.size(); ++i) {
      const PlanChoice& choice = plan_.choices[i];
      if (choice.rate < kAboutAsGood * most) continue;
      const PlanChoice& best = plan_.choices[plan_.best];
      const auto rank = [this](const PlanChoice& c) { return std::make_pair(Changes(c), -c.rate); };
      if (!found || rank(choice) < rank(best)) plan_.best = i;
      found = true;
    }
  }

  absl::Status CountServers(const PlanChoice& best) {
    // Most tokens that may wait: what one server computes in the time of the objective.
    const double tokens = best.saturation * options_.mix.mean_tokens() * options_.p99_us * 1e-6;
    plan_.max_queue_tokens = std::max<int64_t>(
        best.max_batch_tokens, static_cast<int64_t>(std::ceil(tokens / 1024)) * 1024);
    const int64_t calls = 4 * options_.calls;
    // The search is short and its result lies on the edge.
    for (int servers = std::max(1, static_cast<int>(std::ceil(options_.rate / best.rate)));;
         ++servers) {
      auto result = Run(best, options_.rate / servers, calls, plan_.max_queue_tokens);
      if (!result.ok()) return result.status();
      if (!Keeps(*result)) {
        if (options_.rate / servers > kLightest * best.saturation) continue;
        // More calls show what the search did not see: the pauses alone are too long.
        plan_.possible = false;
        return absl::OkStatus();
      }
      plan_.servers = servers + options_.spare;
      if (options_.spare > 0) {
        const double rate = options_.rate / plan_.servers;
        auto all = Run(best, rate, calls, plan_.max_queue_tokens);
        if (!all.ok()) return all.status();
        plan_.rows.push_back({"all servers", plan_.servers, rate, *std::move(all)});
      }
      plan_.rows.push_back(
          {options_.spare > 0 ? absl::StrCat(options_.spare, " lost") : "all servers", servers,
           options_.rate / servers, *std::move(result)});
      break;
    }
    const double rate = 2 * best.saturation;
    auto flood = Run(best, rate, calls, plan_.max_queue_tokens);
    if (!flood.ok()) return flood.status();
    plan_.rows.push_back({"twice of what they can do", plan_.servers, rate, *std::move(flood)});
    return absl::OkStatus();
  }

  const MachineSpeed& speed_;
  const PlanOptions& options_;
  Plan plan_;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const MachineSpeed& speed, const PlanOptions& options) {
  if (!(options.rate > 0) || !(options.p99_us > 0) || options.spare < 0 || options.calls < 1000 ||
      options.instances.empty() || options.max_batch_tokens.empty() ||
      options.max_queue_delay_us.empty()) {
    return absl::InvalidArgumentError(
        "a plan needs a rate, an objective, choices of flags and at least 1000 calls a simulation");
  }
  return Planner(speed, options).Make();
}

}  // namespace sru::bench
