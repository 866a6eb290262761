#include "bench/capacity_cores.h"

#include <algorithm>
#include <limits>

namespace sru::bench {
namespace {

// Of the kernel: a distribution's usual 250 Hz.
constexpr int64_t kTickNs = 4'000'000;

}  // namespace

Cores::Cores(int count, double wake_us, const Pauses* pauses, uint64_t seed, EventQueue* events)
    : wake_ns_(static_cast<int64_t>(wake_us * 1000)),
      pauses_(pauses),
      events_(events),
      random_(seed),
      cores_(count) {
  for (Core& core : cores_) {
    core.pause_end = events_->now();
    DrawPause(core);
  }
}

void Cores::DrawPause(Core& core) {
  if (pauses_->per_s <= 0 || pauses_->us.empty()) {
    core.pause_begin = core.pause_end = std::numeric_limits<int64_t>::max();
    return;
  }
  const double gap_s = std::exponential_distribution<double>(pauses_->per_s)(random_);
  const size_t which = std::uniform_int_distribution<size_t>(0, pauses_->us.size() - 1)(random_);
  core.pause_begin = core.pause_end + static_cast<int64_t>(gap_s * 1e9);
  core.pause_end = core.pause_begin + static_cast<int64_t>(pauses_->us[which] * 1000);
}

void Cores::Schedule(Core& core, int64_t from, int64_t work_ns) {
  while (core.pause_end <= from) DrawPause(core);
  int64_t end = std::max(from, core.pause_begin <= from ? core.pause_end : from) + work_ns;
  if (core.pause_begin <= from) DrawPause(core);
  while (core.pause_begin < end) {
    end += core.pause_end - core.pause_begin;
    DrawPause(core);
  }
  core.part_ns = work_ns;
  events_->At(end, this, &core - cores_.data());
}

void Cores::Wake(Thread* thread) {
  if (stopped_ || thread->awake_) return;
  thread->awake_ = true;
  Core& last = cores_[thread->core_];
  if (last.thread == nullptr) {
    Run(last, thread);
    return;
  }
  for (Core& core : cores_) {
    if (core.thread != nullptr) continue;
    Run(core, thread);
    return;
  }
  Wait(last, thread);
}

void Cores::Run(Core& core, Thread* thread) {
  thread->core_ = static_cast<size_t>(&core - cores_.data());
  core.thread = thread;
  core.used_ns = 0;
  Schedule(core, events_->now() + wake_ns_, 0);
}

void Cores::Wait(Core& core, Thread* thread) {
  core.waiting.push_back(thread);
  if (!core.ticks && cores_.size() > 1) SetTick(core);
}

void Cores::SetTick(Core& core) {
  core.ticks = true;
  events_->At((events_->now() / kTickNs + 1) * kTickNs, this,
              static_cast<int64_t>(cores_.size()) + (&core - cores_.data()));
}

void Cores::Tick(Core& core) {
  core.ticks = false;
  for (Core& other : cores_) {
    if (core.waiting.empty()) return;
    if (other.thread != nullptr) continue;
    Thread* const thread = core.waiting.front();
    core.waiting.pop_front();
    Run(other, thread);
  }
  if (!core.waiting.empty()) SetTick(core);
}

void Cores::OnEvent(int64_t argument) {
  if (stopped_) return;
  const auto index = static_cast<size_t>(argument);
  if (index >= cores_.size()) {
    Tick(cores_[index - cores_.size()]);
    return;
  }
  Core& core = cores_[index];
  busy_ns_ += core.part_ns;
  core.used_ns += core.part_ns;
  core.thread->left_ns_ -= core.part_ns;
  while (core.thread != nullptr) {
    if (core.used_ns >= core.thread->quantum_ns_) {
      core.used_ns = 0;
      if (!core.waiting.empty()) {
        core.waiting.push_back(core.thread);
        core.thread = core.waiting.front();
        core.waiting.pop_front();
      }
    }
    Thread* const thread = core.thread;
    if (thread->left_ns_ == 0) thread->left_ns_ = thread->Next();
    if (stopped_) return;
    if (thread->left_ns_ > 0) {
      Schedule(core, events_->now(),
               std::min(thread->left_ns_, thread->quantum_ns_ - core.used_ns));
      return;
    }
    thread->awake_ = false;
    core.thread = nullptr;
    core.used_ns = 0;
    if (core.waiting.empty()) return;
    core.thread = core.waiting.front();
    core.waiting.pop_front();
  }
}

}  // namespace sru::bench
