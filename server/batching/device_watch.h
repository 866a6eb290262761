// DeviceWatch: collects reports of failed devices from the workers that noticed, and tells the
// server once per device, on a thread of its own: the consequences (for other models and for
// health) must not run on a worker that still has a batch to answer. Thread-safe.
#ifndef SRU_SERVER_BATCHING_DEVICE_WATCH_H_
#define SRU_SERVER_BATCHING_DEVICE_WATCH_H_

#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace sru::server::batching {

class DeviceWatch {
 public:
  // `on_lost` is called once per device, from the watch's thread.
  using OnLost = std::function<void(int device, const absl::Status& error)>;
  explicit DeviceWatch(OnLost on_lost) : on_lost_(std::move(on_lost)) {}
  ~DeviceWatch() { Stop(); }
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Starts telling, beginning with earlier reports. Call it once.
  void Start() {
    thread_ = std::thread([this] { Watch(); });
  }

  // When it returns, every report has been told; later ones are only recorded.
  void Stop() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    changed_.SignalAll();
    if (thread_.joinable()) thread_.join();
  }

  // Never waits for `on_lost`. Each model on a device reports it; only the first report counts.
  void Report(int device, const absl::Status& error) {
    {
      MutexLock lock(&mutex_);
      if (!lost_.insert(device).second) return;
      untold_.emplace_back(device, error);
    }
    changed_.SignalAll();
  }

  // The devices that were reported.
  std::set<int> lost() const {
    MutexLock lock(&mutex_);
    return lost_;
  }

 private:
  void Watch() {
    while (true) {
      std::pair<int, absl::Status> next;
      {
        MutexLock lock(&mutex_);
        while (untold_.empty() && !stopping_) changed_.Wait(&mutex_);
        if (untold_.empty()) return;
        next = std::move(untold_.front());
        untold_.pop_front();
      }
      on_lost_(next.first, next.second);
    }
  }

  const OnLost on_lost_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::set<int> lost_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<int, absl::Status>> untold_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // of whoever starts and stops it
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_DEVICE_WATCH_H_
