#include "bench/capacity_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sru::bench {
namespace {

// How long the system lets a thread run while others wait: the base slice of its scheduler on a few cores.
constexpr int64_t kSystemSliceNs = 3'000'000;
// While a batch waits to fill, a worker looks this many times per --max_queue_delay_us.
constexpr int kLooksPerDelay = 8;

int64_t Ns(double us) { return static_cast<int64_t>(us * 1000); }

absl::Time TimeAt(int64_t ns) {
  return ns == 0 ? absl::InfiniteFuture() : absl::UnixEpoch() + absl::Nanoseconds(ns);
}

}  // namespace

class SimulatedServer::Connection : public Cores::Thread, private EventQueue::Handler {
 public:
  explicit Connection(SimulatedServer* server) : Thread(kSystemSliceNs), server_(server) {}

  void Arrive(SimulatedCall* call) {
    if (open_ >= server_->options_.max_concurrent_streams) {
      kept_back_.push_back(call);
      return;
    }
    Open(call);
  }

  // One of its calls was answered.
  void Ended() {
    --open_;
    --server_->open_;
    while (!kept_back_.empty() && open_ < server_->options_.max_concurrent_streams) {
      SimulatedCall* const next = kept_back_.front();
      kept_back_.pop_front();
      if (next->deadline_ns != 0 && next->deadline_ns <= server_->events_->now()) {
        server_->EndUnsent(next, absl::StatusCode::kDeadlineExceeded);
      } else {
        Open(next);
      }
    }
  }

  int64_t Next() override {
    if (call_ != nullptr) {
      SimulatedCall* const call = std::exchange(call_, nullptr);
      if (code_ == absl::StatusCode::kOk) code_ = server_->Submit(call);
      if (code_ != absl::StatusCode::kOk) {
        server_->Answer(call, code_);
        refused_ = true;
      }
    }
    const CallCost& cost = server_->speed_->call;
    double us = 0;
    if (turn_ == 0) {
      if (std::exchange(refused_, false) && server_->options_.read_pause_us > 0) {
        paused_ = true;
        server_->events_->At(server_->events_->now() + Ns(server_->options_.read_pause_us), this);
        return 0;
      }
      turn_ = inbox_.size();
      if (turn_ == 0) return 0;
      us += cost.turn_us;
    }
    --turn_;
    call_ = inbox_.front();
    inbox_.pop_front();
    code_ = server_->CheckAdmission(*call_);
    us += code_ == absl::StatusCode::kOk
              ? (cost.CallUs(server_->open_) + cost.sequence_us * server_->mix_->sequences) / 2
              : cost.CallUs(server_->open_);
    return std::max<int64_t>(1, Ns(us));
  }

  // Takes out all that has not been submitted.
  std::deque<SimulatedCall*> TakeAll() {
    std::deque<SimulatedCall*> calls = std::exchange(inbox_, {});
    // None is sent any more when others end.
    for (SimulatedCall* call : std::exchange(kept_back_, {})) calls.push_back(call);
    if (call_ != nullptr) calls.push_back(std::exchange(call_, nullptr));
    return calls;
  }

 private:
  void Open(SimulatedCall* call) {
    ++open_;
    ++server_->open_;
    inbox_.push_back(call);
    if (!paused_) server_->cores_.Wake(this);
  }

  void OnEvent(int64_t /*argument*/) override {
    paused_ = false;
    if (!server_->dead_ && !inbox_.empty()) server_->cores_.Wake(this);
  }

  SimulatedServer* const server_;
  std::deque<SimulatedCall*> inbox_;
  size_t turn_ = 0;                // calls of this turn that are still to be read
  SimulatedCall* call_ = nullptr;  // the one that is being read
  absl::StatusCode code_ = absl::StatusCode::kOk;
  bool refused_ = false;
  bool paused_ = false;
  int64_t open_ = 0;                      // calls that were sent and have no answer
  std::deque<SimulatedCall*> kept_back_;  // by the client
};

class SimulatedServer::Worker : public Cores::Thread, private EventQueue::Handler {
 public:
  explicit Worker(SimulatedServer* server)
      : Thread(server->options_.compute_turn_us > 0 ? Ns(server->options_.compute_turn_us)
                                                    : kSystemSliceNs),
        server_(server) {}

  void Wake() {
    ++server_->woken_;
    woken_ = true;
    server_->cores_.Wake(this);
  }

  int64_t Next() override {
    if (std::exchange(woken_, false)) --server_->woken_;
    if (batch_ != nullptr) Finish(absl::OkStatus());
    if (server_->dead_) return 0;
    batch_ = server_->batcher_->TryTakeBatch();
    if (batch_ == nullptr) {
      server_->idle_.push_back(this);
      LookAgain();
      return 0;
    }
    int64_t longest = 0;
    for (const server::SequenceTask* task : batch_->sequences()) {
      longest = std::max<int64_t>(longest, task->num_tokens);
    }
    const auto sequences = static_cast<int64_t>(batch_->sequences().size());
    ++server_->counts_.batches;
    server_->counts_.batch_sequences += sequences;
    server_->counts_.batch_tokens += batch_->num_tokens();
    server_->WakeWorker();  // for what is left
    const double compute_us = server_->speed_->batch.Us(batch_->num_tokens(), sequences, longest);
    const CallCost& cost = server_->speed_->call;
    const double answer_us =
        static_cast<double>(sequences) *
        (cost.CallUs(server_->open_) / server_->mix_->sequences + cost.sequence_us) / 2;
    compute_ = absl::Nanoseconds(Ns(compute_us));
    return std::max<int64_t>(1, Ns(cost.turn_us + compute_us + answer_us));
  }

  void Finish(const absl::Status& status) {
    if (batch_ != nullptr) server_->batcher_->Finish(std::move(batch_), status, compute_);
  }

 private:
  // While a batch waits to fill, nothing wakes a worker but the time.
  void LookAgain() {
    const absl::Duration delay = server_->options_.batcher.max_queue_delay;
    if (delay == absl::ZeroDuration() || server_->batcher_->stats().queued_sequences == 0) return;
    server_->events_->At(
        server_->events_->now() + absl::ToInt64Nanoseconds(delay) / kLooksPerDelay + 1, this);
  }
  void OnEvent(int64_t /*argument*/) override {
    if (!server_->dead_) server_->WakeWorker();
  }

  SimulatedServer* const server_;
  std::unique_ptr<server::Batch> batch_;
  absl::Duration compute_;
  bool woken_ = false;
};

absl::StatusOr<std::unique_ptr<SimulatedServer>> SimulatedServer::Create(
    const SimulatedServerOptions& options, const MachineSpeed* speed, const CallMix* mix,
    uint64_t seed, EventQueue* events, Observer* observer) {
  SimulatedServerOptions complete = options;
  if (complete.instances == 0) complete.instances = speed->cores;
  complete.batcher.num_workers = complete.instances;
  auto clock = std::make_unique<SimulatedClock>(events);
  auto batcher = server::Batcher::Create(complete.batcher, clock.get());
  if (!batcher.ok()) return batcher.status();
  return std::unique_ptr<SimulatedServer>(new SimulatedServer(
      complete, speed, mix, seed, events, observer, *std::move(batcher), std::move(clock)));
}

SimulatedServer::SimulatedServer(const SimulatedServerOptions& options, const MachineSpeed* speed,
                                 const CallMix* mix, uint64_t seed, EventQueue* events,
                                 Observer* observer, std::unique_ptr<server::Batcher> batcher,
                                 std::unique_ptr<SimulatedClock> clock)
    : options_(options),
      speed_(speed),
      mix_(mix),
      events_(events),
      observer_(observer),
      clock_(std::move(clock)),
      batcher_(std::move(batcher)),
      cores_(speed->cores, speed->call.wake_us, &speed->pauses, seed, events) {
  for (int i = 0; i < options_.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>(this));
  }
  for (int i = 0; i < options_.instances; ++i) {
    workers_.push_back(std::make_unique<Worker>(this));
    idle_.push_back(workers_.back().get());
  }
}

SimulatedServer::~SimulatedServer() {
  // A simulation may end with calls on their way, which then nobody waits for.
  dead_ = true;
  batcher_->Close();
  const absl::Status over = absl::CancelledError("the simulation is over");
  for (const auto& worker : workers_) worker->Finish(over);
  batcher_->Abort(over);
}

void SimulatedServer::Arrive(SimulatedCall* call) {
  ++in_flight_;
  if (dead_) {
    EndUnsent(call, absl::StatusCode::kUnavailable);
    return;
  }
  ConnectionOf(*call).Arrive(call);
}

absl::StatusCode SimulatedServer::CheckAdmission(const SimulatedCall& call) {
  return batcher_->CheckAdmission(mix_->sequences, call.priority, TimeAt(call.deadline_ns)).code();
}

absl::StatusCode SimulatedServer::Submit(SimulatedCall* call) {
  server::BatchRequest request;
  request.sequences = SequencesOf(*mix_, *call);
  request.priority = call->priority;
  request.deadline = TimeAt(call->deadline_ns);
  request.done = [this, call](const absl::Status& status, const server::RequestTimes& /*times*/) {
    Answer(call, status.code());
  };
  const auto submitted = batcher_->Submit(std::move(request));
  if (!submitted.ok()) return submitted.status().code();
  WakeWorker();
  return absl::StatusCode::kOk;
}

void SimulatedServer::WakeWorker() {
  if (idle_.empty()) return;
  const server::BatcherStats stats = batcher_->stats();
  if (stats.queued_sequences == 0) return;
  // The workers that are about to run may take it all.
  const int64_t batches = std::max(stats.queued_tokens / options_.batcher.max_batch_tokens,
                                   stats.queued_sequences / options_.batcher.max_batch_sequences) +
                          1;
  if (batches <= woken_) return;
  Worker* const worker = idle_.back();
  idle_.pop_back();
  worker->Wake();
}

SimulatedServer::Connection& SimulatedServer::ConnectionOf(const SimulatedCall& call) {
  return *connections_[call.connection % connections_.size()];
}

void SimulatedServer::EndUnsent(SimulatedCall* call, absl::StatusCode code) {
  --in_flight_;
  observer_->OnAnswer(this, call, code);
}

void SimulatedServer::Answer(SimulatedCall* call, absl::StatusCode code) {
  --in_flight_;
  if (!dead_) ConnectionOf(*call).Ended();
  // What the destructor cancels concerns nobody.
  if (!dead_ || code != absl::StatusCode::kCancelled) observer_->OnAnswer(this, call, code);
}

void SimulatedServer::Kill() {
  dead_ = true;
  cores_.Stop();
  batcher_->Close();
  for (const auto& connection : connections_) {
    for (SimulatedCall* call : connection->TakeAll()) {
      Answer(call, absl::StatusCode::kUnavailable);
    }
  }
  const absl::Status gone = absl::UnavailableError("the process is gone");
  for (const auto& worker : workers_) worker->Finish(gone);
  batcher_->Abort(gone);
}

void SimulatedServer::Close() { batcher_->Close(); }

}  // namespace sru::bench
