#include "bench/capacity_run.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/arrivals.h"

namespace sru::bench {
namespace {

constexpr int64_t kSystemSliceNs = 3'000'000;

class Run;

// The load generator's thread: sends what is due and takes in answers, in the order in which they came.
class ClientThread : public Cores::Thread {
 public:
  explicit ClientThread(Run* run) : Thread(kSystemSliceNs), run_(run) {}
  void Add(SimulatedCall* call, bool answer) { inbox_.push_back({call, answer}); }
  int64_t Next() override;
  int64_t busy_ns() const { return busy_ns_; }

 private:
  struct Job {
    SimulatedCall* call;
    bool answer;
  };
  Run* const run_;
  std::deque<Job> inbox_;
  size_t turn_ = 0;
  std::optional<Job> job_;
  int64_t busy_ns_ = 0;
};

class Run : private EventQueue::Handler, private SimulatedServer::Observer {
 public:
  Run(const MachineSpeed& speed, const ServerRunOptions& options)
      : speed_(speed),
        options_(options),
        source_(&options_.mix, options.seed),
        arrivals_(std::max(options.rate, 1e-9), options.seed + 1),
        client_(this) {}

  absl::StatusOr<ServerRunResult> Go() {
    auto server = SimulatedServer::Create(options_.server, &speed_, &options_.mix,
                                          options_.seed + 2, &events_, this);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    // Two runs with different rates then see the same calls.
    if (options_.rate > 0) {
      events_.At(arrivals_.Next(), this);
    } else {
      for (int i = 0; i < options_.in_flight; ++i) Issue();
    }
    const int64_t total = options_.warmup + options_.calls;
    while (ended_ < total && events_.RunNext()) {
    }
    result_.simulated_s = static_cast<double>(events_.now() - begin_) * 1e-9;
    const auto busy = static_cast<double>(server_->cores().busy_ns() - busy_before_);
    result_.busy = busy * 1e-9 / std::max(1e-9, result_.simulated_s * server_->cores().count());
    const double calls = static_cast<double>(std::max<int64_t>(1, result_.calls));
    result_.client_us = static_cast<double>(client_.busy_ns() - client_before_) / 1000 / calls;
    result_.server_us = busy / 1000 / calls - result_.client_us;
    const SimulatedServer::Counts& counts = server_->counts();
    result_.batch_sequences = static_cast<double>(counts.batch_sequences) /
                              static_cast<double>(std::max<int64_t>(1, counts.batches));
    server_.reset();
    return std::move(result_);
  }

  // The client's thread has sent the call, or taken in its answer.
  void Sent(SimulatedCall* call) { server_->Arrive(call); }
  void Ended(SimulatedCall* call) { End(call); }
  const CallCost& client_cost() const { return speed_.client; }

 private:
  struct Entry : SimulatedCall {
    absl::StatusCode code = absl::StatusCode::kOk;
    int64_t number = 0;
  };

  void OnEvent(int64_t /*argument*/) override {
    Issue();
    if (issued_ < options_.warmup + options_.calls) events_.At(arrivals_.Next(), this);
  }

  void Issue() {
    if (issued_ == options_.warmup + options_.calls) return;
    Entry* entry = nullptr;
    if (free_.empty()) {
      entry = &entries_.emplace_back();
    } else {
      entry = free_.back();
      free_.pop_back();
    }
    static_cast<SimulatedCall&>(*entry) = source_.Draw(events_.now());
    entry->number = issued_++;
    entry->connection = static_cast<int>(entry->number % options_.server.connections);
    if (entry->number == options_.warmup) {
      begin_ = events_.now();
      busy_before_ = server_->cores().busy_ns();
      client_before_ = client_.busy_ns();
    }
    if (options_.client_on_machine) {
      client_.Add(entry, /*answer=*/false);
      server_->cores().Wake(&client_);
    } else {
      server_->Arrive(entry);
    }
  }

  void OnAnswer(SimulatedServer* /*server*/, SimulatedCall* call, absl::StatusCode code) override {
    static_cast<Entry*>(call)->code = code;
    if (options_.client_on_machine) {
      client_.Add(call, /*answer=*/true);
      server_->cores().Wake(&client_);
    } else {
      End(call);
    }
  }

  void End(SimulatedCall* call) {
    auto* const entry = static_cast<Entry*>(call);
    ++ended_;
    if (entry->number >= options_.warmup) {
      ++result_.calls;
      const int64_t now = events_.now();
      if (entry->code == absl::StatusCode::kOk) {
        ++result_.ok;
        if (entry->deadline_ns == 0 || now <= entry->deadline_ns) ++result_.good;
        result_.latency.Add(now - entry->due_ns);
        (entry->priority == server::Priority::kLow ? result_.low_latency : result_.normal_latency)
            .Add(now - entry->due_ns);
      } else {
        ++(entry->code == absl::StatusCode::kResourceExhausted ? result_.refused : result_.expired);
      }
    }
    free_.push_back(entry);
    if (options_.rate == 0) Issue();
  }

  const MachineSpeed& speed_;
  const ServerRunOptions& options_;
  EventQueue events_;
  CallSource source_;
  PoissonArrivals arrivals_;
  ClientThread client_;
  std::unique_ptr<SimulatedServer> server_;
  std::deque<Entry> entries_;
  std::vector<Entry*> free_;
  int64_t issued_ = 0;
  int64_t ended_ = 0;
  int64_t begin_ = 0;
  int64_t busy_before_ = 0;
  int64_t client_before_ = 0;
  ServerRunResult result_;
};

int64_t ClientThread::Next() {
  if (job_.has_value()) {
    const Job job = *job_;
    job_.reset();
    if (job.answer) {
      run_->Ended(job.call);
    } else {
      run_->Sent(job.call);
    }
  }
  double us = 0;
  if (turn_ == 0) {
    turn_ = inbox_.size();
    if (turn_ == 0) return 0;
    us += run_->client_cost().turn_us;
  }
  --turn_;
  job_ = inbox_.front();
  inbox_.pop_front();
  us += run_->client_cost().call_us / 2;
  const int64_t ns = std::max<int64_t>(1, static_cast<int64_t>(us * 1000));
  busy_ns_ += ns;
  return ns;
}

}  // namespace

absl::StatusOr<ServerRunResult> RunServer(const MachineSpeed& speed,
                                          const ServerRunOptions& options) {
  if (options.mix.lengths.empty() || options.mix.sequences < 1 || options.calls < 1 ||
      options.warmup < 0 || options.server.connections < 1 || options.server.instances < 0 ||
      (options.rate <= 0 && options.in_flight < 1)) {
    return absl::InvalidArgumentError(
        "a simulation needs lengths, and at least one sequence, call and connection");
  }
  return Run(speed, options).Go();
}

}  // namespace sru::bench
