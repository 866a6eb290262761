#include "server/batching/workers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/batching/core_pool.h"

namespace sru::server::batching {
namespace {

// Readers may keep a drain waiting for this long; it looks so often.
constexpr absl::Duration kReaderTime = absl::Seconds(1);
constexpr absl::Duration kReaderLook = absl::Milliseconds(100);

}  // namespace

Workers::Workers(WorkersOptions options, const std::vector<int>& devices,
                 absl::Duration cut_off_time, const Clock* clock)
    : options_(std::move(options)),
      cut_off_time_(cut_off_time),
      clock_(clock),
      workers_(devices.begin(), devices.end()),
      in_service_(static_cast<int>(devices.size())) {}

absl::Status Workers::Start() {
  {
    const MutexLock lock(&mutex_);
    cold_ = live_ = static_cast<int>(workers_.size());
  }
  std::vector<int> cores;
  for (Worker& worker : workers_) {
    if (options_.pin_cores) worker.core = ProcessCorePool().Acquire();
    if (worker.core >= 0) cores.push_back(worker.core);
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    try {
      if (options_.launch) {
        options_.launch([this, i] { Live(i); });
      } else {
        workers_[i].thread = std::thread([this, i] { Live(i); });
      }
    } catch (...) {  // there is no thread: Join() does not wait for this one and the rest
      const MutexLock lock(&mutex_);
      const int missing = static_cast<int>(workers_.size() - i);
      cold_ -= missing;
      live_ -= missing;
      throw;
    }
  }
  if (!cores.empty()) {
    LogInfo(absl::StrCat(options_.name, ": ", options_.workers, " pinned to cores ",
                         absl::StrJoin(cores, ", ")));
  }
  const MutexLock lock(&mutex_);
  while (cold_ > 0) changed_.Wait(&mutex_);
  return in_service() == 0 ? lost_status_ : warm_up_status_;
}

void Workers::Live(size_t index) {
  NameThisThread(options_.thread);
  Worker& worker = workers_[index];
  // Before the worker warms up, so that memory which it touches first is near its core.
  if (worker.core >= 0) {
    if (absl::Status status = PinThisThread(worker.core); !status.ok()) {
      LogWarning(absl::StrCat(options_.name, ": --pin_cores: ", status.message()));
    }
  }
  const absl::Status status = WarmUp(index);
  const bool lost = absl::IsUnavailable(status);
  if (lost) ReportLost(worker.device, status);
  {
    const MutexLock lock(&mutex_);
    (lost ? lost_status_ : warm_up_status_).Update(status);
    --cold_;
    changed_.SignalAll();
  }
  kernels::Turn turn(absl::ToChronoMicroseconds(options_.compute_turn));
  CoreSeats::Seat seat = MakeSeat();
  while (Work(index, &seat, &turn)) turn.MayEnd();
  seat.Release();
  const MutexLock lock(&mutex_);
  --live_;
  changed_.SignalAll();
}

void Workers::ReportLost(int device, const absl::Status& error) {
  if (options_.on_device_lost) {
    options_.on_device_lost(device, error);
  } else {
    LoseDevice(device, error);
  }
}

bool Workers::LoseDevice(int device, const absl::Status& error) {
  {
    const MutexLock lock(&mutex_);
    int left = 0;
    bool found = false;
    for (Worker& worker : workers_) {
      if (worker.device == device && !worker.out_of_service.exchange(true)) found = true;
      if (!worker.out_of_service.load()) ++left;
    }
    if (!found) return false;
    in_service_ = left;
    if (left > 0) OnWorkersLeft(left);
  }
  OnDeviceLost(device, error);  // may answer callers, hence without the lock
  return true;
}

bool Workers::WaitUntilLeft(absl::Time deadline) {
  const MutexLock lock(&mutex_);
  for (absl::Time now = clock_->Now(); live_ > 0 && now < deadline; now = clock_->Now()) {
    changed_.WaitFor(&mutex_, deadline - now);
  }
  return live_ == 0;
}

bool Workers::Drain(absl::Time deadline) {
  Close();
  absl::Time now = clock_->Now();
  const absl::Duration left = std::max(deadline - now, absl::ZeroDuration());
  const absl::Time cut_off = deadline - std::min(left / 10, cut_off_time_);
  absl::Time waits_since = now;
  std::optional<int64_t> waits_at;
  if (WaitUntilLeft(now)) return true;
  while (now < cut_off && now - waits_since < kReaderTime) {
    if (WaitUntilLeft(std::min(now + kReaderLook, cut_off))) return true;
    now = clock_->Now();
    const std::optional<int64_t> at = WaitsForReadersAt();
    if (!at.has_value() || at != waits_at) waits_since = now;
    waits_at = at;
  }
  CutOff();
  return WaitUntilLeft(deadline) && now < cut_off;
}

void Workers::Join() {
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
    if (worker.core >= 0) ProcessCorePool().Release(std::exchange(worker.core, -1));
  }
  WaitUntilLeft(absl::InfiniteFuture());
}

}  // namespace sru::server::batching
