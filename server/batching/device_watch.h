// DeviceWatch: collects reports of failed devices from the workers that noticed, and tells the
// server once per device, on a thread of its own: the consequences (for other models and for
// health) must not run on a worker that still has a batch to answer. Thread-safe.
#ifndef SRU_SERVER_BATCHING_DEVICE_WATCH_H_
#define SRU_SERVER_BATCHING_DEVICE_WATCH_H_

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/base/side_threads.h"

namespace sru::server::batching {

class DeviceWatch {
 public:
  // `on_lost` is called once per device, from the watch's thread.
  using OnLost = std::function<void(int device, const absl::Status& error)>;
  explicit DeviceWatch(OnLost on_lost) : on_lost_(std::move(on_lost)) {}
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Starts telling, beginning with earlier reports. Call it once.
  void Start() {
    MutexLock lock(&mutex_);
    for (const auto& [device, error] : lost_) Tell(device, error);
    started_ = true;
  }
  // When it returns, every report has been told; later ones are only recorded.
  void Stop() { thread_.Stop(); }

  // Never waits for `on_lost`. Each model on a device reports it; only the first report counts.
  void Report(int device, const absl::Status& error) {
    MutexLock lock(&mutex_);
    if (lost_.emplace(device, error).second && started_) Tell(device, error);
  }

  // The devices that were reported.
  std::set<int> lost() const {
    std::set<int> devices;
    MutexLock lock(&mutex_);
    for (const auto& [device, error] : lost_) devices.insert(device);
    return devices;
  }

 private:
  void Tell(int device, const absl::Status& error) {
    thread_.Post([this, device, error] { on_lost_(device, error); });
  }

  const OnLost on_lost_;
  mutable Mutex mutex_;
  std::map<int, absl::Status> lost_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  SideThreads thread_{1};
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_DEVICE_WATCH_H_
