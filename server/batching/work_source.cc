#include "server/batching/work_source.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace sru::server::batching {
namespace {

// Readers may keep a drain waiting for this long; it looks so often.
constexpr absl::Duration kReaderTime = absl::Seconds(1);
constexpr absl::Duration kReaderLook = absl::Milliseconds(100);

}  // namespace

size_t RunnerClaims::Find(int device, size_t begin, size_t end) const {
  const auto is_free = [device](const Use& use) {
    return use.device == device && !use.busy && use.waiting_again == 0;
  };
  const auto found = std::find_if(uses_.begin() + begin, uses_.begin() + end, is_free);
  return static_cast<size_t>(found - uses_.begin());
}

size_t RunnerClaims::Claim(int device, size_t begin, size_t end) {
  const MutexLock lock(&mutex_);
  const size_t runner = Find(device, begin, end);
  if (runner < end) uses_[runner].busy = true;
  return runner;
}

bool RunnerClaims::CanClaim(int device, size_t end) {
  const MutexLock lock(&mutex_);
  const bool can = Find(device, 0, end) < end;
  was_short_ |= !can;
  return can;
}

void RunnerClaims::ClaimAgain(size_t runner) {
  const MutexLock lock(&mutex_);
  Use& use = uses_[runner];
  ++use.waiting_again;
  while (use.busy) freed_.Wait(&mutex_);
  --use.waiting_again;
  use.busy = true;
}

bool RunnerClaims::Free(size_t runner) {
  const MutexLock lock(&mutex_);
  uses_[runner].busy = false;
  if (uses_[runner].waiting_again > 0) freed_.SignalAll();
  return std::exchange(was_short_, false);
}

std::vector<int> RunnerClaims::Loads() {
  const MutexLock lock(&mutex_);
  std::vector<int> loads;
  for (const Use& use : uses_) loads.push_back(use.waiting_again + (use.busy ? 1 : 0));
  return loads;
}

WorkSource::WorkSource(WorkSourceOptions options, WorkerPool* pool, std::vector<int> places,
                       absl::Duration cut_off_time, const Clock* clock)
    : options_(std::move(options)),
      pool_(*pool),
      cut_off_time_(cut_off_time),
      clock_(clock),
      places_(std::move(places)),
      lost_(places_.size()),
      in_service_(std::accumulate(places_.begin(), places_.end(), 0)) {}

void WorkSource::ReportLost(int device, const absl::Status& error) {
  if (options_.on_device_lost) return options_.on_device_lost(device, error);
  LoseDevice(device, error);
}

bool WorkSource::LoseDevice(int device, const absl::Status& error) {
  {
    const MutexLock lock(&lost_mutex_);
    if (places_[device] == 0 || lost_[device].exchange(true)) return false;
    const int left = in_service_.load() - places_[device];
    in_service_ = left;
    if (left > 0) OnPlacesLeft(left);
  }
  OnDeviceLost(device, error);  // may answer callers, hence without the lock
  Notify();
  return true;
}

bool WorkSource::Drain(absl::Time deadline) {
  Close();
  absl::Time now = clock_->Now();
  const absl::Duration left = std::max(deadline - now, absl::ZeroDuration());
  const absl::Time cut_off = deadline - std::min(left / 10, cut_off_time_);
  absl::Time waits_since = now;
  std::optional<int64_t> waits_at;
  if (pool_.WaitUntilDone(this, now)) return true;
  while (now < cut_off && now - waits_since < kReaderTime) {
    if (pool_.WaitUntilDone(this, std::min(now + kReaderLook, cut_off))) return true;
    now = clock_->Now();
    const std::optional<int64_t> at = WaitsForReadersAt();
    if (!at.has_value() || at != waits_at) waits_since = now;
    waits_at = at;
  }
  CutOff();
  return pool_.WaitUntilDone(this, deadline) && now < cut_off;
}

void WorkSource::Leave() {
  pool_.WaitUntilDone(this, absl::InfiniteFuture());
  pool_.Remove(this);
}

}  // namespace sru::server::batching
