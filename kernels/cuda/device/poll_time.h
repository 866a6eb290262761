// How long a thread that waits for a recorded graph asks whether it is done, from how long its runs
// have taken.
#ifndef SRU_KERNELS_CUDA_DEVICE_POLL_TIME_H_
#define SRU_KERNELS_CUDA_DEVICE_POLL_TIME_H_

#include <chrono>

namespace sru::kernels::cuda {

class PollTime {
 public:
  using Duration = std::chrono::nanoseconds;

  // Runs that usually take longer are not polled for: of them the device's interrupt is a small
  // part.
  static constexpr Duration kMostUsual = std::chrono::milliseconds(2);

  // From the launch on. `least` is the time that is polled for anything, and the margin for a run
  // that takes longer than usual; 0 = never poll.
  Duration After(Duration least) const {
    if (least.count() == 0 || usual_ > kMostUsual) return least;
    return usual_ + least;
  }

  // A run has taken this long, to the end of the wait.
  void Add(Duration took) { usual_ = usual_.count() == 0 ? took : usual_ + (took - usual_) / 8; }

 private:
  Duration usual_{0};  // a mean in which new runs count more
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_POLL_TIME_H_
