#include "server/batching/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/batching/work_source.h"

namespace sru::server::batching {
namespace {

// After so long a worker yields its core between two pieces of work: the threads that accept and
// refuse calls want it, too.
constexpr std::chrono::microseconds kTurn{200};

}  // namespace

WorkerPool::WorkerPool(WorkerPoolOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      free_(options_.workers.size()),
      devices_(options_.workers.size()) {
  const std::vector<int> cores = options_.pin_cores ? AllowedCores() : std::vector<int>();
  std::vector<int> pinned;
  for (int device = 0; device < num_devices(); ++device) {
    free_[device] = workers(device);
    for (int i = 0; i < workers(device); ++i) {
      Worker& worker = workers_.emplace_back(device);
      if (cores.empty()) continue;
      worker.core = cores[(workers_.size() - 1) % cores.size()];
      pinned.push_back(worker.core);
    }
  }
  if (!pinned.empty())
    LogInfo(absl::StrCat("workers pinned to cores ", absl::StrJoin(pinned, ", ")));
  for (Worker& worker : workers_) {
    {
      const MutexLock lock(&mutex_);
      ++live_;
    }
    try {
      if (options_.launch) {
        options_.launch([this, &worker] { Live(worker); });
      } else {
        worker.thread = std::thread([this, &worker] { Live(worker); });
      }
    } catch (...) {  // there is no thread
      {
        const MutexLock lock(&mutex_);
        --live_;
      }
      Stop();
      throw;
    }
  }
}

void WorkerPool::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    for (Device& device : devices_) device.work.SignalAll();
    while (live_ > 0) changed_.Wait(&mutex_);
  }
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

void WorkerPool::Live(const Worker& worker) {
  NameThisThread("sru_worker");
  if (worker.core >= 0) {
    if (absl::Status status = PinThisThread(worker.core); !status.ok()) {
      LogWarning(absl::StrCat("--pin_cores: ", status.message()));
    }
  }
  Job job(this, worker.device, /*outer=*/nullptr, options_.interrupts);
  kernels::Turn turn(kTurn);
  bool computes = false;
  mutex_.Lock();
  Device& device = devices_[worker.device];
  while (!stopping_) {
    WorkSource* source = nullptr;
    absl::Time until = absl::InfiniteFuture();
    if (computes || device.computing < workers(worker.device)) {
      source = Choose(worker.device, /*interrupted=*/nullptr, &job.run_, &until);
    }
    if ((source != nullptr) != computes) {
      computes = !computes;
      CountComputing(worker.device, computes ? 1 : -1);
    }
    if (source == nullptr) {
      device.shares.End(&job.run_, clock_.Now());
      ++device.sleeping;
      device.work.WaitFor(&mutex_, until - clock_.Now());
      --device.sleeping;
      if (device.woken > 0) --device.woken;
      continue;
    }
    // For what is left, and for when to look again.
    if (waiting_.size() > 1 || until < absl::InfiniteFuture()) WakeSome();
    ++source->users_;
    mutex_.Unlock();
    turn.Start();
    source->RunNext(&job);
    turn.MayEnd();
    mutex_.Lock();
    EndUse(source);
  }
  device.shares.End(&job.run_, clock_.Now());
  --live_;
  changed_.SignalAll();
  mutex_.Unlock();
}

WorkSource* WorkerPool::Choose(int device, const FairShare::Run* interrupted,
                               const FairShare::Run* goes_on, absl::Time* until) {
  const absl::Time now = clock_.Now();
  waiting_.clear();
  waiting_sources_.clear();
  for (size_t i = 0; i < active_.size();) {
    WorkSource* const source = active_[i];
    source->notified_ = false;
    const NextWork next = source->Next(device, now, /*nested=*/interrupted != nullptr);
    bool stays = next.at < absl::InfiniteFuture();
    if (next.at <= now) {
      waiting_.push_back({next.flow, source->model(), source->since_});
      waiting_sources_.push_back(source);
    } else {
      *until = std::min(*until, next.at);
    }
    for (int other = 0; other < num_devices() && !stays; ++other) {
      stays = source->Next(other, now, options_.interrupts).at < absl::InfiniteFuture();
    }
    if (stays) {
      ++i;
    } else {
      source->active_ = false;
      active_[i] = active_.back();
      active_.pop_back();
    }
  }
  num_active_ = active_.size();
  const int first = devices_[device].shares.First(waiting_, interrupted, goes_on, now);
  return first < 0 ? nullptr : waiting_sources_[first];
}

void WorkerPool::Activate(WorkSource* source) {
  if (!source->added_ || std::exchange(source->active_, true)) return;
  source->since_ = clock_.Now();
  active_.push_back(source);
  num_active_ = active_.size();
}

void WorkerPool::WakeOne(int index) {
  Device& device = devices_[index];
  // One that has been woken wakes the next one if there is more.
  if (device.sleeping == 0 || device.woken > 0 || device.computing >= workers(index)) return;
  ++device.woken;
  device.work.Signal();
}

void WorkerPool::WakeSome() {
  for (int device = 0; device < num_devices(); ++device) WakeOne(device);
}

void WorkerPool::EndUse(WorkSource* source) {
  --source->users_;
  Activate(source);
  if (source->awaited_.load() > 0) changed_.SignalAll();
}

void WorkerPool::Add(WorkSource* source) {
  const MutexLock lock(&mutex_);
  source->added_ = true;
  Activate(source);
  WakeSome();
}

void WorkerPool::Remove(WorkSource* source) {
  const MutexLock lock(&mutex_);
  source->added_ = false;
  source->awaited_.fetch_add(1);
  while (source->users_ > 0) changed_.Wait(&mutex_);
  source->awaited_.fetch_sub(1);
  if (std::exchange(source->active_, false)) {
    active_.erase(std::find(active_.begin(), active_.end(), source));
  }
  num_active_ = active_.size();
  for (Device& device : devices_) device.shares.Forget(source->model());
}

void WorkerPool::Notify(WorkSource* source) {
  if (source->notified_.exchange(true) && source->awaited_.load() == 0) return;
  const MutexLock lock(&mutex_);
  if (!source->added_) {
    source->notified_ = false;
    return;
  }
  Activate(source);
  WakeSome();
  if (source->awaited_.load() > 0) changed_.SignalAll();
}

bool WorkerPool::WaitUntilDone(WorkSource* source, absl::Time deadline) {
  source->awaited_.fetch_add(1);
  const MutexLock lock(&mutex_);
  bool done = source->users_ == 0 && source->IsDone();
  for (absl::Time now = clock_.Now(); !done && now < deadline; now = clock_.Now()) {
    changed_.WaitFor(&mutex_, deadline - now);
    done = source->users_ == 0 && source->IsDone();
  }
  source->awaited_.fetch_sub(1);
  return done;
}

bool WorkerPool::TryEnter(WorkSource* source, int index, bool interrupts) {
  const MutexLock lock(&mutex_);
  Device& device = devices_[index];
  if (!source->added_ || device.computing > workers(index)) return false;
  if ((device.computing == workers(index)) != interrupts) return false;
  if (interrupts) {
    Activate(source);
    const FairShare::Run* const furthest = device.shares.Furthest();
    absl::Time until = absl::InfiniteFuture();
    if (furthest == nullptr || !options_.interrupts ||
        Choose(index, furthest, /*goes_on=*/nullptr, &until) != source) {
      return false;
    }
  }
  CountComputing(index, 1);
  ++source->users_;
  return true;
}

void WorkerPool::Leave(WorkSource* source, Job* job) {
  const MutexLock lock(&mutex_);
  devices_[job->device()].shares.End(&job->run_, clock_.Now());
  CountComputing(job->device(), -1);
  --source->users_;
  if (source->awaited_.load() > 0) changed_.SignalAll();
  if (!active_.empty()) WakeOne(job->device());
}

void WorkerPool::RunNested(Job* outer) {
  mutex_.Lock();
  FairShare& shares = devices_[outer->device_].shares;
  absl::Time until = absl::InfiniteFuture();
  WorkSource* source = Choose(outer->device_, &outer->run_, /*goes_on=*/nullptr, &until);
  bool leaves_some = waiting_.size() > (source == nullptr ? 0 : 1);
  if (source != nullptr) {
    Job nested(this, outer->device_, outer, options_.interrupts);
    const absl::Time start = clock_.Now();
    const absl::Duration used = ThreadTime();
    shares.Interrupt(&outer->run_, start);
    while (source != nullptr) {
      ++source->users_;
      mutex_.Unlock();
      const bool ran = source->RunNext(&nested);
      mutex_.Lock();
      EndUse(source);
      if (!ran) break;
      source = Choose(outer->device_, &outer->run_, &nested.run_, &until);
      leaves_some = waiting_.size() > (source == nullptr ? 0 : 1);
    }
    const absl::Time now = clock_.Now();
    shares.End(&nested.run_, now);
    shares.GoOn(&outer->run_, now);
    outer->interrupted_ += now - start;
    outer->interrupted_thread_time_ += ThreadTime() - used;
  }
  // What the nested work has made ready may suit a worker that sleeps.
  if (leaves_some) WakeOne(outer->device_);
  mutex_.Unlock();
}

void WorkerPool::Job::Begin(absl::Span<const FlowPart> parts, const WorkSource* source) {
  interrupted_ = interrupted_thread_time_ = absl::ZeroDuration();
  const MutexLock lock(&pool_.mutex_);
  pool_.devices_[device_].shares.Begin(&run_, parts, source->model(), pool_.clock_.Now());
}

void WorkerPool::Job::OnTurnEnd() {
  if (may_be_interrupted_ && pool_.num_active_.load() > 0) pool_.RunNested(this);
  std::this_thread::yield();  // to a thread that does not compute
}

bool WorkerPool::Job::HasIdleCore() const { return pool_.has_idle_worker(device_); }

}  // namespace sru::server::batching
