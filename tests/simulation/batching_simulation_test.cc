// The queues of batches, the schedulers of steps, the pool of workers and arenas of states, with
// their own code, on fibers and under a clock that moves on only while all sleep. A seed draws a
// history: arrivals, deadlines, cancellations, slow readers, interruptions, lost devices, errors,
// drains and reloads. Versions share the workers.
// Checked:
//   conservation  each accepted sequence ends exactly once, with a status that can be explained
//   bits          results are those of an undisturbed run
//   budgets       of batches, steps, queues, streams and arenas; all places are given back in the
//                 end
//   order         priority with ageing, then deadline, then arrival, of each caller
//   shares        a caller who asks for one thing at a time waits while others get no more than
//                 fair_order.h says
//   starvation    nothing waits for more than kMostWait, or is overtaken in more batches than
//                 stated
//   wake-ups      no worker sleeps while a batch or a step may start
//   workers       no more threads compute than there are workers
//   cancels       nothing of a call is started after its Cancel() or its deadline
// SRU_TEST_SEED=N runs the history of that seed alone, which replays exactly.
// SRU_SIMULATION_HISTORIES says how many are run.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/batching/batch_source.h"
#include "server/batching/step_source.h"
#include "server/batching/worker_pool.h"
#include "tests/simulation/fibers.h"
#include "tests/testing/puppet_sequence.h"

namespace sru::server::batching {
namespace {

using simulation::Fibers;
using simulation::Random;

constexpr int64_t kPresubmitHistories = 2000;
// A history's work takes much less.
constexpr absl::Duration kMostWait = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(100);

// Planted, for the test of the test.
struct Fault {
  int lost_signals = 0;         // one in so many
  bool keeps_places = false;    // an arena does not get a place back, now and then
  bool misses_cancels = false;  // Cancel() does nothing
  bool free_flood = false;      // the virtual time of the flood stands still
  bool nested_hangs = false;    // what interrupts other work does not return, now and then
};

class FiberClock : public Clock {
 public:
  explicit FiberClock(const Fibers* fibers) : fibers_(*fibers) {}
  absl::Time Now() const override { return fibers_.now(); }

 private:
  const Fibers& fibers_;
};

struct Arena {
  int used = 0;
  int capacity = 1;
  int64_t keep_one_in = 0;  // planted
};

// Holds a place of an arena from its first step to its end, or until it is rewound.
class ArenaSequence : public PuppetSequence {
 public:
  using PuppetSequence::PuppetSequence;
  bool Hold(Arena* arena) {
    if (arena_ != nullptr) return true;
    if (arena->used == arena->capacity) return false;
    ++arena->used;
    arena_ = arena;
    return true;
  }
  void Rewind() override {
    PuppetSequence::Rewind();
    if (arena_ == nullptr) return;
    const bool kept =
        arena_->keep_one_in > 0 && Fibers::Current()->random().OneIn(arena_->keep_one_in);
    if (!kept) --arena_->used;
    arena_ = nullptr;
  }

 private:
  Arena* arena_ = nullptr;
};

struct Version;

// What the history knows of everything that was submitted.
struct Record {
  Version* version = nullptr;
  int flow = 0;  // in History::flows_
  Priority priority = Priority::kNormal;
  absl::Time deadline;
  bool accepted = false;
  absl::Time arrival;
  absl::Time first_run = absl::InfiniteFuture();
  absl::Time cancelled = absl::InfiniteFuture();
  absl::Time ended = absl::InfiniteFuture();
};

struct Call;

struct CallTask : SequenceTask {
  Call* call = nullptr;
  size_t index = 0;
};

struct Call : Record {
  int64_t id = 0;
  std::vector<CallTask> tasks;
  RequestHandle handle;
  int ends = 0;
  absl::Status status;
  bool bad = false;  // a sequence of it is what the backend calls invalid
  std::vector<int> tokens;
  std::vector<uint64_t> outputs;
  std::vector<char> ran;
};

struct Text : Record {
  SequenceHandle handle;
  PuppetSequence::Plan plan;
  PuppetOutcome outcome;
  bool was_paused = false;
  bool was_rewound = false;
};

uint64_t Output(int64_t id, size_t index) { return Random(id * 1000 + index).Next(); }

// An engine without a model.
struct Version {
  bool disturbed() const { return any_lost || starves; }

  BatcherOptions batcher;
  SchedulerOptions scheduler;
  int64_t most_together = 0;  // sequences that the backend has memory for in a batch
  bool starves = false;       // an arena was full
  std::vector<int> places;    // [device]: batches, and steps, at a time
  std::vector<char> dead;     // [device]: does not compute any more
  std::vector<char> lost;     // [device]: and that is known
  std::vector<Arena> arenas;  // [device]
  std::vector<int> stepping;  // [device]: steps that run
  std::vector<int> batching;  // [device]: batches that run, on runners that are not for nested ones
  bool any_lost = false;
  bool cut_off = false;
  absl::Time start;
  std::unique_ptr<BatchSource> batches;
  std::unique_ptr<StepSource> steps;
};

class History {
 public:
  History(uint64_t seed, const Fault& fault)
      : fault_(fault), fibers_(seed), random_(seed ^ 0x5eed), clock_(&fibers_) {
    fibers_.lost_signals = fault.lost_signals;
    // The first is null: of callers whom nothing tells apart.
    flows_[1] = std::make_shared<Flow>("heavy", 3);
    flows_[kPolite] = std::make_shared<Flow>("polite");
    flows_[kFlood] = std::make_shared<Flow>("flood", fault.free_flood ? 1e18 : 1);
  }

  // What was violated first; "" if nothing.
  std::string Run() {
    fibers_.Spawn([this] {
      WorkerPoolOptions pool;
      pool.workers.resize(random_.From(1, 2));
      for (int& workers : pool.workers) workers = static_cast<int>(random_.From(1, 2));
      pool.interrupts = random_.OneIn(2);
      pool.launch = [this](std::function<void()> life) { fibers_.Spawn(std::move(life)); };
      computing_.resize(pool.workers.size());
      pool_.emplace(std::move(pool), &clock_);
      StartVersion();
      clients_ = static_cast<int>(random_.From(1, 3));
      for (int i = 0, clients = clients_; i < clients; ++i) fibers_.Spawn([this] { Client(); });
      if (random_.OneIn(4)) {
        const bool text = random_.OneIn(2);
        fibers_.Spawn([this, text] { Polite(text); });
        fibers_.Spawn([this, text] { Flood(text); });
      }
    });
    if (!fibers_.Run([this] { Probe(); })) {
      Violated("all sleep for ever");
      ended_ = false;
      return violation_;
    }
    CheckEnds();
    if (violation_.empty()) CheckOrder();
    return violation_;
  }
  // If not, its workers hang and it cannot be destroyed.
  bool ended() const { return ended_; }

 private:
  class SimulatedBatches;
  class SimulatedSteps;

  template <typename... Parts>
  void Violated(const Parts&... parts) {
    if (violation_.empty()) violation_ = absl::StrCat(parts...);
  }

  void StartVersion();
  void Client();
  void Close();
  // Sends a call or a text of a polite caller, or of a flood, one after the other until the clients
  // have ended.
  void Polite(bool text);
  void Flood(bool text);
  // `plain`: of one sequence, without a deadline.
  Call& SubmitCall(int flow, bool plain = false);
  Text& SubmitText(int flow, bool plain = false);
  void NoteServed(const Record& record, bool step, int rows) {
    served_.push_back({record.version, step, record.flow, record.priority, rows, fibers_.now()});
  }
  void CheckShares(const Record& record, bool step);
  void CancelOne();
  void Drain(Version* version, absl::Duration timeout);
  void LoseDevice(Version* version, int device) {
    version->dead[device] = version->lost[device] = 1;
    version->any_lost = true;
    const absl::Status error = absl::UnavailableError("the device is gone");
    version->batches->LoseDevice(device, error);
    version->steps->LoseDevice(device, error);
  }
  template <typename T>
  void NoteRun(T* record, const char* what) {
    const absl::Time now = fibers_.now();
    record->first_run = std::min(record->first_run, now);
    if (record->cancelled < now) Violated(what, " is started after its Cancel()");
    if (record->deadline <= now) Violated(what, " is started after its deadline");
    if (!record->accepted && record->ended < now) Violated(what, " is started after its end");
  }
  // What a batch or step does between its beginning and its end on a worker.
  void Compute();
  void Probe();
  void CheckEnds();
  void CheckRecord(const Record& record, const absl::Status& status, int ends, const char* what);
  void CheckOrder();
  template <typename Records>
  void CheckOrderOf(const Records& records, const char* what);
  static bool Undisturbed(const Call& call) { return call.tokens.size() == 1; }
  static bool Undisturbed(const Text& text) { return !text.was_paused && !text.was_rewound; }
  static bool OrderIsStrict(const Call& call) {
    return call.version->batcher.max_passes == 0 && !call.version->any_lost;
  }
  static bool OrderIsStrict(const Text& text) { return !text.version->disturbed(); }

  const Fault fault_;
  Fibers fibers_;
  Random random_;
  const FiberClock clock_;
  std::string violation_;
  bool ended_ = true;
  struct Served {
    const Version* version;
    bool step;
    int flow;
    Priority priority;
    int rows;
    absl::Time when;
  };
  static constexpr int kFlows = 4;  // the first two are clients
  static constexpr int kPolite = 2;
  static constexpr int kFlood = 3;
  FlowHandle flows_[kFlows];
  std::vector<Served> served_;
  int clients_ = 0;
  Version* serving_ = nullptr;
  std::deque<Call> calls_;
  std::deque<Text> texts_;
  std::vector<int> computing_;  // [device]: jobs that run and are not interrupted
  std::optional<WorkerPool> pool_;
  std::deque<Version> versions_;  // last: they use what is above
};

class History::SimulatedBatches : public BatchRunner {
 public:
  // `most`: of a batch, in tokens.
  SimulatedBatches(History* history, Version* version, int device, int most, bool is_for_nested)
      : history_(*history),
        version_(*version),
        device_(device),
        most_(most),
        is_for_nested_(is_for_nested) {}
  int device() const override { return device_; }
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    int tokens = 0;
    bool bad = false;
    for (const SequenceTask* sequence : sequences) {
      const auto& task = static_cast<const CallTask&>(*sequence);
      Call& call = *task.call;
      // A batch that is run again may have waited.
      char& ran = call.ran[task.index];
      if (ran == 0 && !version_.any_lost && version_.most_together == 1000) {
        history_.NoteRun(&call, "a call");
      }
      if (ran == 0) history_.NoteServed(call, false, sequence->num_tokens);
      ran = 1;
      call.first_run = std::min(call.first_run, history_.fibers_.now());
      tokens += sequence->num_tokens;
      bad |= call.bad;
    }
    if (tokens > most_ ||
        static_cast<int>(sequences.size()) > version_.batcher.max_batch_sequences) {
      history_.Violated("a batch of ", sequences.size(), " sequences with ", tokens, " tokens");
    }
    version_.batching[device_] += is_for_nested_ ? 0 : 1;
    history_.Compute();
    version_.batching[device_] -= is_for_nested_ ? 0 : 1;
    if (version_.dead[device_] != 0) return absl::UnavailableError("the device is gone");
    if (static_cast<int64_t>(sequences.size()) > version_.most_together) {
      return absl::ResourceExhaustedError("too many");
    }
    if (bad) return absl::InvalidArgumentError("bad");
    for (const SequenceTask* sequence : sequences) {
      const auto& task = static_cast<const CallTask&>(*sequence);
      task.call->outputs[task.index] = Output(task.call->id, task.index);
    }
    return absl::OkStatus();
  }

 private:
  History& history_;
  Version& version_;
  const int device_;
  const int most_;
  const bool is_for_nested_;
};

class History::SimulatedSteps : public StepRunner {
 public:
  SimulatedSteps(History* history, Version* version, int device)
      : history_(*history), version_(*version), device_(device) {}
  int device() const override { return device_; }
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(std::vector<StepShare>& shares) override {
    int rows = 0;
    for (const StepShare& share : shares) {
      const auto& sequence = static_cast<const ArenaSequence&>(*share.sequence);
      Text& text = history_.texts_[sequence.plan().name];
      history_.NoteRun(&text, "a text");
      history_.NoteServed(text, true, share.rows);
      text.was_rewound |= sequence.rewinds() > 0;
      rows += share.rows;
    }
    if (shares.empty() || (shares.size() > 1 && rows > version_.scheduler.max_step_tokens)) {
      history_.Violated("a step of ", shares.size(), " sequences with ", rows, " rows");
    }
    ++version_.stepping[device_];
    history_.Compute();
    --version_.stepping[device_];
    if (version_.dead[device_] != 0) return absl::UnavailableError("the device is gone");
    for (StepShare& share : shares) {
      auto& sequence = static_cast<ArenaSequence&>(*share.sequence);
      if (sequence.Hold(&version_.arenas[device_])) {
        sequence.Advance(share.rows);
      } else {
        version_.starves = true;
        share.status = absl::ResourceExhaustedError("no place");
      }
    }
    return absl::OkStatus();
  }

 private:
  History& history_;
  Version& version_;
  const int device_;
};

void History::Compute() {
  auto* const job = static_cast<WorkerPool::Job*>(kernels::TurnEnd::OfThisThread());
  const int device = job->device();
  if (++computing_[device] > pool_->workers(device))
    Violated("more compute than there are workers");
  if (job->is_nested() && fault_.nested_hangs && random_.OneIn(20)) {
    fibers_.Wait(nullptr, absl::InfiniteFuture());
  }
  for (int64_t turns = random_.From(1, 6); turns > 0; --turns) {
    fibers_.Sleep(absl::Microseconds(random_.From(100, 500)));
    --computing_[device];
    job->OnTurnEnd();
    ++computing_[device];
  }
  --computing_[device];
}

void History::StartVersion() {
  Version& v = versions_.emplace_back();
  const int devices = pool_->num_devices();
  v.batcher.max_batch_tokens = static_cast<int>(random_.From(8, 40));
  v.batcher.max_batch_sequences = static_cast<int>(random_.From(1, 8));
  v.batcher.max_queue_tokens = v.batcher.max_batch_tokens + random_.From(0, 200);
  v.batcher.max_queue_sequences = random_.From(4, 40);
  v.batcher.max_queue_delay = absl::Milliseconds(random_.OneIn(2) ? 0 : random_.From(1, 4));
  v.batcher.max_passes = static_cast<int>(random_.From(0, 3));
  v.batcher.ageing_interval = absl::Milliseconds(random_.From(1, 20));
  v.batcher.admission_by_deadline = random_.OneIn(2);
  v.scheduler.max_step_tokens = static_cast<int>(random_.From(4, 40));
  v.scheduler.max_step_sequences = static_cast<int>(random_.From(1, 8));
  v.scheduler.rows_per_step = static_cast<int>(random_.From(1, 8));
  v.scheduler.max_streams = static_cast<int>(random_.From(2, 20));
  v.scheduler.max_waiting_rows = random_.From(40, 200);
  if (random_.OneIn(3)) v.scheduler.max_begun_branches = random_.From(1, 8);
  v.scheduler.result_at_end = random_.OneIn(4);
  v.scheduler.ageing_interval = v.batcher.ageing_interval;
  v.scheduler.admission_by_deadline = v.batcher.admission_by_deadline;
  v.most_together = random_.OneIn(4) ? random_.From(1, 4) : 1000;
  v.start = fibers_.now();
  v.dead.resize(devices);
  v.lost.resize(devices);
  v.stepping.resize(devices);
  v.batching.resize(devices);
  v.arenas.resize(devices);
  std::vector<std::unique_ptr<BatchRunner>> batch_runners;
  std::vector<std::unique_ptr<StepRunner>> step_runners;
  for (int device = 0; device < devices; ++device) {
    v.arenas[device].capacity = static_cast<int>(random_.OneIn(2) ? 100 : random_.From(1, 4));
    v.arenas[device].keep_one_in = fault_.keeps_places ? 20 : 0;
    v.places.push_back(static_cast<int>(random_.From(1, pool_->workers(device))));
    for (int i = 0; i < v.places[device]; ++i) {
      batch_runners.push_back(std::make_unique<SimulatedBatches>(
          this, &v, device, v.batcher.max_batch_tokens, /*is_for_nested=*/false));
      step_runners.push_back(std::make_unique<SimulatedSteps>(this, &v, device));
    }
  }
  WorkSourceOptions options;
  options.model = &v;
  options.on_device_lost = [this, &v](int device, const absl::Status&) { LoseDevice(&v, device); };
  BatchSource::NestedRunner nested;
  if (pool_->interrupts() && random_.OneIn(2)) {
    nested.most = {random_.From(1, v.batcher.max_batch_tokens), v.batcher.max_batch_sequences};
    nested.runner = std::make_unique<SimulatedBatches>(
        this, &v, 0, static_cast<int>(nested.most.tokens), /*is_for_nested=*/true);
  }
  auto batcher = Batcher::Create(v.batcher, &clock_);
  v.scheduler.workers = PlacesOf(step_runners, pool_->num_devices());
  auto scheduler = SequenceScheduler::Create(v.scheduler, &clock_);
  if (!batcher.ok() || !scheduler.ok()) {
    std::abort();  // the options above are always right
  }
  v.batches = std::make_unique<BatchSource>(std::move(batch_runners), *std::move(batcher), options,
                                            &*pool_, &clock_, nullptr, std::move(nested));
  v.steps = std::make_unique<StepSource>(std::move(step_runners), *std::move(scheduler),
                                         absl::UnavailableError("the server is shutting down"),
                                         options, &*pool_, &clock_, nullptr);
  v.batches->Start();
  v.steps->Start();
  serving_ = &v;
}

void History::Polite(bool text) {
  for (int left = 60; left > 0 && clients_ > 0; --left) {
    const Record& record = text ? static_cast<Record&>(SubmitText(kPolite, true))
                                : static_cast<Record&>(SubmitCall(kPolite, true));
    for (int looks = 500; looks > 0 && record.accepted && record.ended == absl::InfiniteFuture();
         --looks) {
      fibers_.Sleep(absl::Microseconds(200));
    }
    fibers_.Sleep(absl::Microseconds(random_.From(1, 5000)));
  }
}

void History::Flood(bool text) {
  for (int left = 300; left > 0 && clients_ > 0; --left) {
    const Record& record = text ? static_cast<Record&>(SubmitText(kFlood, true))
                                : static_cast<Record&>(SubmitCall(kFlood, true));
    if (!record.accepted || random_.OneIn(8)) fibers_.Sleep(absl::Microseconds(500));
  }
}

Call& History::SubmitCall(int flow, bool plain) {
  Version& v = *serving_;
  Call& call = calls_.emplace_back();
  call.id = static_cast<int64_t>(calls_.size()) - 1;
  call.version = &v;
  call.priority = static_cast<Priority>(random_.From(0, 2));
  call.flow = flow;
  if (plain) call.priority = Priority::kNormal;
  call.bad = !plain && random_.OneIn(16);
  BatchRequest request;
  request.flow = flows_[flow];
  request.priority = call.priority;
  if (!plain && random_.OneIn(3))
    request.deadline = fibers_.now() + absl::Microseconds(random_.From(0, 20000));
  call.deadline = request.deadline;
  const int64_t count = !plain && random_.OneIn(3) ? random_.From(2, 5) : 1;
  call.outputs.resize(count);
  call.ran.resize(count);
  call.tasks.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    CallTask& task = call.tasks[i];
    task.call = &call;
    task.index = static_cast<size_t>(i);
    task.num_tokens = static_cast<int>(random_.From(1, v.batcher.max_batch_tokens));
    call.tokens.push_back(task.num_tokens);
    request.sequences.push_back(&task);
  }
  request.done = [this, &call](const absl::Status& status, const RequestTimes&) {
    ++call.ends;
    call.status = status;
    call.ended = fibers_.now();
  };
  call.arrival = fibers_.now();
  auto handle = v.batches->batcher().Submit(std::move(request));
  call.accepted = handle.ok();
  if (handle.ok()) call.handle = *std::move(handle);
  const BatcherStats stats = v.batches->batcher().stats();
  if (2 * stats.queued_tokens > 3 * v.batcher.max_queue_tokens ||
      2 * stats.queued_sequences > 3 * v.batcher.max_queue_sequences) {
    Violated("the queue holds ", stats.queued_tokens, " tokens");
  }
  return call;
}

Text& History::SubmitText(int flow, bool plain) {
  Version& v = *serving_;
  Text& text = texts_.emplace_back();
  text.version = &v;
  text.priority = static_cast<Priority>(random_.From(0, 2));
  text.flow = flow;
  if (plain) text.priority = Priority::kNormal;
  text.plan.name = texts_.size() - 1;
  text.plan.prompt = random_.OneIn(4) ? random_.From(1, 60) : random_.From(1, 6);
  text.plan.tokens = static_cast<int>(random_.From(1, 8));
  text.plan.branches = static_cast<int>(random_.From(1, 3));
  text.plan.whole =
      text.plan.prompt + text.plan.tokens <= v.scheduler.max_step_tokens && random_.OneIn(4);
  std::vector<SequenceRequest> requests(1);
  SequenceRequest& request = requests[0];
  request.sequence = std::make_unique<ArenaSequence>(text.plan, &text.outcome);
  request.flow = flows_[flow];
  request.priority = text.priority;
  request.branches = text.plan.branches;
  request.least_steps = v.scheduler.result_at_end ? text.plan.tokens : 1;
  if (!plain && random_.OneIn(3))
    request.deadline = fibers_.now() + absl::Microseconds(random_.From(0, 40000));
  text.deadline = request.deadline;
  text.outcome.on_end = [this, &text] { text.ended = fibers_.now(); };
  text.arrival = fibers_.now();
  auto handle = v.steps->scheduler().Submit(std::move(requests));
  text.accepted = handle.ok();
  if (handle.ok()) text.handle = handle->front();
  const StepStats stats = v.steps->scheduler().stats();
  if (2 * (stats.running + stats.waiting + stats.paused) > 3 * v.scheduler.max_streams ||
      stats.waiting_rows < 0) {
    Violated("the scheduler holds ", stats.running + stats.waiting + stats.paused, " texts");
  }
  return text;
}

void History::CancelOne() {
  if (random_.OneIn(2) && !calls_.empty()) {
    Call& call = calls_[random_.From(0, static_cast<int64_t>(calls_.size()) - 1)];
    if (call.handle == nullptr) return;
    if (!fault_.misses_cancels) call.version->batches->batcher().Cancel(call.handle);
    call.cancelled = std::min(call.cancelled, fibers_.now());
  } else if (!texts_.empty()) {
    Text& text = texts_[random_.From(0, static_cast<int64_t>(texts_.size()) - 1)];
    if (text.handle == nullptr) return;
    if (!fault_.misses_cancels) text.version->steps->scheduler().Cancel(text.handle);
    text.cancelled = std::min(text.cancelled, fibers_.now());
  }
}

void History::Client() {
  for (int64_t left = random_.From(5, 25); left > 0; --left) {
    if (random_.OneIn(3)) fibers_.Sleep(absl::Microseconds(random_.From(1, 5000)));
    const int64_t dice = random_.From(0, 99);
    if (dice < 40) {
      SubmitCall(static_cast<int>(random_.From(0, 1)));
    } else if (dice < 75) {
      SubmitText(static_cast<int>(random_.From(0, 1)));
    } else if (dice < 83) {
      CancelOne();
    } else if (dice < 94) {
      if (texts_.empty()) continue;
      Text& text = texts_[random_.From(0, static_cast<int64_t>(texts_.size()) - 1)];
      if (text.handle == nullptr) continue;
      SequenceScheduler& scheduler = text.version->steps->scheduler();
      if (random_.OneIn(2)) {
        text.was_paused = true;
        scheduler.Pause(text.handle);
      } else {
        scheduler.Resume(text.handle);
      }
    } else if (dice < 96) {
      Version& v = *serving_;
      const int device = static_cast<int>(random_.From(0, static_cast<int64_t>(v.dead.size()) - 1));
      if (random_.OneIn(2)) {
        LoseDevice(&v, device);
      } else {  // a worker finds out
        v.dead[device] = 1;
        v.any_lost = true;
      }
    } else if (dice < 98 && versions_.size() < 3) {
      Version* const old = serving_;
      StartVersion();
      fibers_.Spawn([this, old] {
        Drain(old, random_.OneIn(2) ? kPatience : absl::Microseconds(random_.From(0, 30000)));
      });
    }
  }
  if (--clients_ == 0) Close();
}

void History::Drain(Version* version, absl::Duration timeout) {
  const absl::Time deadline = fibers_.now() + timeout;
  if (timeout < kPatience) version->cut_off = true;
  const bool steps = version->steps->Drain(deadline);
  const bool batches = version->batches->Drain(deadline);
  if (timeout == kPatience && !(steps && batches)) Violated("a drain takes too long");
}

void History::Close() {
  for (Text& text : texts_) {
    if (text.handle != nullptr) text.version->steps->scheduler().Resume(text.handle);
  }
  for (Version& version : versions_) {
    Drain(&version, kPatience);
    version.steps->Stop();
    version.batches->Stop();
  }
  pool_->Stop();
}

// All sleep. A worker that sleeps without work must have none.
void History::Probe() {
  for (Version& v : versions_) {
    if (v.steps == nullptr) continue;
    for (int device = 0; device < static_cast<int>(v.dead.size()); ++device) {
      if (!pool_->has_idle_worker(device) || v.lost[device] != 0) continue;
      Batcher& batcher = v.batches->batcher();
      if (v.batching[device] < v.places[device]) {
        if (auto batch = batcher.TryTakeBatch(); batch != nullptr) {
          Violated("a worker sleeps while a batch may start");
          batcher.Finish(std::move(batch), absl::InternalError("probed"), absl::ZeroDuration());
        }
      }
      if (v.stepping[device] >= v.places[device]) continue;
      // Whoever runs a step meanwhile ends the expired and tries the starved again after it.
      const bool due =
          v.starves || std::any_of(texts_.begin(), texts_.end(), [&](const Text& text) {
            return text.deadline <= fibers_.now() && text.ended > fibers_.now();
          });
      if (due && std::accumulate(v.stepping.begin(), v.stepping.end(), 0) > 0) continue;
      auto step = v.steps->scheduler().TryTakeStep(device);
      if (step == nullptr) continue;
      Violated("a worker sleeps while a step may start");
      v.steps->scheduler().FinishStep(std::move(step), absl::InternalError("probed"),
                                      absl::ZeroDuration());
    }
  }
}

void History::CheckRecord(const Record& record, const absl::Status& status, int ends,
                          const char* what) {
  if (ends != (record.accepted ? 1 : 0)) Violated(what, " has ended ", ends, " times");
  if (ends == 0) return;
  const Version& v = *record.version;
  bool explained = status.ok();
  if (absl::IsCancelled(status)) explained = record.cancelled <= record.ended;
  if (absl::IsDeadlineExceeded(status)) explained = record.deadline <= record.ended;
  if (absl::IsUnavailable(status)) explained = v.any_lost || v.cut_off;
  if (!explained) Violated(what, " ends with ", status.ToString());
}

void History::CheckEnds() {
  for (size_t id = 0; id < calls_.size(); ++id) {
    const Call& call = calls_[id];
    const bool blamed = absl::IsInvalidArgument(call.status) && call.bad;
    CheckRecord(call, blamed ? absl::OkStatus() : call.status, call.ends, "a call");
    if (call.ends == 0) continue;
    if (call.ended - call.arrival > kMostWait) Violated("a call has starved");
    for (size_t i = 0; i < call.outputs.size() && call.status.ok(); ++i) {
      if (call.outputs[i] != Output(static_cast<int64_t>(id), i)) Violated("a call has other bits");
    }
  }
  for (const Text& text : texts_) {
    CheckRecord(text, text.outcome.status(), text.outcome.ends(), "a text");
    if (text.outcome.ends() == 0) continue;
    if (!text.was_paused && text.ended - text.arrival > kMostWait) Violated("a text has starved");
    std::vector<uint64_t> expected = PuppetSequence::Expected(text.plan);
    const std::vector<uint64_t> tokens = text.outcome.tokens();
    if (!text.outcome.status().ok() && tokens.size() < expected.size()) {
      expected.resize(tokens.size());
    }
    if (tokens != expected) Violated("a text has other bits");
  }
  for (const Version& v : versions_) {
    for (const Arena& arena : v.arenas) {
      if (arena.used != 0) Violated(arena.used, " places of an arena are not given back");
    }
    const StepStats steps = v.steps->scheduler().stats();
    const BatcherStats batches = v.batches->batcher().stats();
    if (steps.running + steps.waiting + steps.paused + steps.waiting_rows + steps.running_steps +
            batches.queued_tokens + batches.queued_sequences + batches.running_batches !=
        0) {
      Violated("something is left in the end");
    }
  }
}

// While a thing of the polite caller waits for its first run, nobody else gets more, by weight,
// than he does and than these allow: what is chosen at a time and was chosen already, and what goes
// first because it is overdue.
void History::CheckShares(const Record& record, bool step) {
  const Version& v = *record.version;
  const bool waits = record.accepted && record.flow == kPolite && record.cancelled >= record.ended;
  if (!waits || v.any_lost || v.cut_off || v.most_together < 1000 || v.starves) return;
  const absl::Time until = std::min(record.first_run, record.ended);
  const double weights[kFlows] = {1, 3, 1, 1};
  double got[kFlows] = {};
  double most[kFlows] = {};
  for (const Served& served : served_) {
    if (served.version != &v || served.step != step) continue;
    const double rows = served.rows / weights[served.flow];
    most[served.flow] = std::max(most[served.flow], rows);
    if (served.when < record.arrival || served.when >= until) continue;
    if (served.priority <= record.priority) got[served.flow] += rows;
  }
  const int workers = std::accumulate(v.places.begin(), v.places.end(), 0);
  const double batch = step ? v.scheduler.max_step_tokens : v.batcher.max_batch_tokens;
  const double overdue = (until - record.arrival) / (kOverdueIntervals * v.batcher.ageing_interval);
  for (int flow = 0; flow < kFlows; ++flow) {
    // A call of a client has up to five sequences.
    const double slack = (2 + workers) * batch + (1 + overdue) * 5 * most[flow];
    if (flow == kPolite || got[flow] <= got[kPolite] + slack) continue;
    Violated(step ? "a text" : "a call", " of a polite caller waits while flow ", flow, " gets ",
             got[flow], " of ", slack);
  }
}

void History::CheckOrder() {
  for (const Call& call : calls_) CheckShares(call, false);
  for (const Text& text : texts_) {
    // A text that may not begin yet waits for the others that have begun.
    const SchedulerOptions& options = text.version->scheduler;
    if (!text.was_paused && options.max_begun_branches > 1000) CheckShares(text, true);
  }
  CheckOrderOf(calls_, "a call");
  CheckOrderOf(texts_, "a text");
}

// Of two that waited at a time, the one that goes first by the rules has begun first.
template <typename Records>
void History::CheckOrderOf(const Records& records, const char* what) {
  const auto key = [](const Record& record) {
    const Version& v = *record.version;
    const auto tick = absl::ToInt64Microseconds(record.arrival - v.start) /
                      absl::ToInt64Microseconds(v.batcher.ageing_interval);
    return std::make_tuple(tick - static_cast<int>(record.priority), record.deadline,
                           record.arrival);
  };
  for (const auto& first : records) {
    if (!first.accepted || !Undisturbed(first) || first.cancelled < first.ended) continue;
    int passes = 0;
    int rivals = 0;
    for (const auto& second : records) {
      if (second.version != first.version || second.flow != first.flow) continue;
      if (!second.accepted || !Undisturbed(second)) continue;
      if (second.arrival <= first.first_run) ++rivals;
      const bool overtaken = key(first) < key(second) && first.arrival < second.first_run &&
                             second.first_run < std::min(first.first_run, first.ended);
      if (!overtaken) continue;
      ++passes;
      if (OrderIsStrict(first)) Violated(what, " is overtaken");
    }
    if (passes >
        first.version->batcher.max_passes * first.version->batcher.max_batch_sequences + rivals) {
      Violated(what, " is overtaken ", passes, " times");
    }
  }
}

std::string RunHistory(uint64_t seed, const Fault& fault) {
  // Those that hang cannot be destroyed.
  static auto* const hanging = new std::vector<std::unique_ptr<History>>;
  auto history = std::make_unique<History>(seed, fault);
  const std::string violation = history->Run();
  if (!history->ended()) hanging->push_back(std::move(history));
  return violation;
}

// The first seed whose history violates something, or -1.
int64_t FirstViolation(int64_t histories, const Fault& fault, std::string* violation) {
  for (int64_t seed = 0; seed < histories; ++seed) {
    *violation = RunHistory(seed, fault);
    if (!violation->empty()) return seed;
  }
  return -1;
}

TEST(BatchingSimulationTest, HistoriesKeepTheirPromises) {
  if (const char* seed = std::getenv("SRU_TEST_SEED"); seed != nullptr) {
    EXPECT_EQ(RunHistory(std::strtoull(seed, nullptr, 10), Fault()), "");
    return;
  }
  const char* const histories = std::getenv("SRU_SIMULATION_HISTORIES");
  std::string violation;
  const int64_t seed = FirstViolation(
      histories == nullptr ? kPresubmitHistories : std::atoll(histories), Fault(), &violation);
  EXPECT_EQ(seed, -1) << violation << "; SRU_TEST_SEED=" << seed << " replays it";
}

TEST(BatchingSimulationTest, ASeedReplaysExactly) {
  const Fault fault{/*lost_signals=*/20};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(RunHistory(seed, fault), RunHistory(seed, fault)) << seed;
  }
}

TEST(BatchingSimulationTest, PlantedFaultsAreFound) {
  Fault faults[5];
  faults[0].lost_signals = 100;
  faults[1].keeps_places = true;
  faults[2].misses_cancels = true;
  faults[3].free_flood = true;
  faults[4].nested_hangs = true;
  for (const Fault& fault : faults) {
    std::string violation;
    EXPECT_NE(FirstViolation(10000, fault, &violation), -1);
    RecordProperty("found", violation);
  }
}

}  // namespace
}  // namespace sru::server::batching
