// Workers: the threads of one model. Each warms up, then takes work, runs it and hands it back
// until it leaves: because its source is closed and has nothing left, or because its device is
// lost. The queue of batches (batch_workers.h) and the scheduler of steps (step_workers.h) are such
// sources.
//
// A device that fails for good is taken out of service with all of its workers, and stays out.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_WORKERS_H_
#define SRU_SERVER_BATCHING_WORKERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/turn.h"
#include "server/base/clock.h"
#include "server/batching/core_seats.h"

namespace sru::server::batching {

struct WorkersOptions {
  std::string name = "engine";      // of the model, for the log
  std::string workers = "workers";  // what the log calls them
  const char* thread = "sru_worker";
  bool pin_cores = false;  // as EngineOptions has it, and the next one
  absl::Duration compute_turn = absl::Microseconds(200);
  CoreSeats* seats = nullptr;   // as EngineOptions has them
  const void* model = nullptr;  // tells models apart there
  // A worker computes on its own thread, whose processor time counts.
  bool times_threads = false;
  // Told by a worker whose device has failed, possibly several times; must call LoseDevice().
  // Empty: the worker calls it.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
  // Runs a worker's life somewhere. Empty: on a thread of its own. A simulation has no threads.
  std::function<void(std::function<void()> life)> launch;
};

class Workers {
 public:
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  virtual ~Workers() = default;

  // Starts the workers and returns once each has warmed up: what stopped one, or kUnavailable if
  // every device failed. Call it once; before it nothing may be submitted.
  absl::Status Start();

  // Workers whose devices have not failed.
  int in_service() const { return in_service_.load(); }

  // The device has failed. False if that was known, or no worker runs on it.
  bool LoseDevice(int device, const absl::Status& error);

  // Refuses new work from now on.
  virtual void Close() = 0;

  // Close(), then waits until all that was accepted has ended. What is left at `deadline`, or a
  // little before it, is cut off; false then. Once all that is left has waited for its readers for
  // a second, it is cut off as well: true then.
  bool Drain(absl::Time deadline);

 protected:
  // [worker]: its device. `clock` must outlive the workers. `cut_off_time` before the end of a
  // drain, or a tenth of its time if that is less, CutOff() is called.
  Workers(WorkersOptions options, const std::vector<int>& devices, absl::Duration cut_off_time,
          const Clock* clock);

  template <typename Runners>
  static std::vector<int> DevicesOf(const Runners& runners) {
    std::vector<int> devices;
    for (const auto& runner : runners) devices.push_back(runner->device());
    return devices;
  }

  // The following are called on a worker's thread.
  // Once, before its first work. kUnavailable: the device has failed.
  virtual absl::Status WarmUp(size_t worker) = 0;
  // Waits for work, runs it and hands it back. `seat` is the thread's, and is kept for the next
  // work if there is some at once. `turn` is to be started when the wait is over. False: the worker
  // leaves.
  virtual bool Work(size_t worker, CoreSeats::Seat* seat, kernels::Turn* turn) = 0;

  // A count that grows with all that runs, if nothing can run before a reader takes what it was
  // given.
  virtual std::optional<int64_t> WaitsForReadersAt() const { return std::nullopt; }
  // Ends what was accepted, as far as it is not running.
  virtual void CutOff() = 0;
  // LoseDevice() was called. The first is called with a lock held, in the order in which devices
  // are lost, if workers are left.
  virtual void OnWorkersLeft(int /*workers*/) {}
  virtual void OnDeviceLost(int device, const absl::Status& error) = 0;

  // Set before OnWorkersLeft() is called.
  const std::atomic<bool>& out_of_service(size_t worker) const {
    return workers_[worker].out_of_service;
  }
  void ReportLost(int device, const absl::Status& error);
  // Waits until every worker has left, which the caller has brought about, and gives the cores
  // back. To be called before a subclass is destroyed.
  void Join();

  const Clock& clock() const { return *clock_; }

  CoreSeats::Seat MakeSeat() const { return CoreSeats::Seat(options_.seats, options_.model); }
  // For the report of a crash.
  absl::string_view model_name() const { return absl::StripPrefix(options_.name, "model "); }
  // Whether a thread that must not wait may compute.
  bool times_threads() const { return options_.times_threads; }
  bool MayGo() const { return options_.seats == nullptr || options_.seats->MayGo(options_.model); }
  bool MayGoBeyond(const Flow* flow) const {
    return options_.seats == nullptr || options_.seats->MayGoBeyond(flow);
  }

 private:
  struct Worker {
    explicit Worker(int device) : device(device) {}
    const int device;
    std::atomic<bool> out_of_service{false};
    int core = -1;  // -1: not pinned
    std::thread thread;
  };

  void Live(size_t worker);
  // True when every worker has left.
  bool WaitUntilLeft(absl::Time deadline);

  const WorkersOptions options_;
  const absl::Duration cut_off_time_;
  const Clock* const clock_;
  std::deque<Worker> workers_;  // constant once started, but for out_of_service
  std::atomic<int> in_service_;

  Mutex mutex_;
  CondVar changed_;  // signalled when one of the two counts changes
  int cold_ ABSL_GUARDED_BY(mutex_) = 0;
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status warm_up_status_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_status_ ABSL_GUARDED_BY(mutex_);  // of devices that failed while warming up
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_WORKERS_H_
