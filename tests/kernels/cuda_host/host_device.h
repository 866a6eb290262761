// A Device of the CUDA backend that is the host: the same kernels, compiled as C++ and run under
// launch_shim.h, a plain loop for the products, and those parts of a GPU's behavior behind which
// mistakes of the backend could hide:
//   * Work on a stream happens when the stream is waited for, not before.
//   * Recorded work is replayed with the arguments that it was recorded with.
//   * Fresh memory is filled with NaN, and stays so when it is initialized. AddressSanitizer sees
//     accesses outside of a buffer, and between the arrays of one.
//   * The library's products offer algorithms whose bits depend on the number of rows or on a row's
//     place, others that sum in another order, and others that refuse.
//   * It fails for good, or now and then, when a test tells it to.
#ifndef SRU_TESTS_KERNELS_CUDA_HOST_HOST_DEVICE_H_
#define SRU_TESTS_KERNELS_CUDA_HOST_HOST_DEVICE_H_

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace sru::testing {

// The order in which a product adds up its k terms, with fused multiply-adds.
enum class SumOrder : uint8_t {
  kInOrder,
  kBackward,
  kGroupsOf8,   // sums of 8 terms, which are then added
  kGroupsOf16,  // as of a tensor core
  kHalves,
};

// An algorithm of the simulated library.
struct HostAlgorithm {
  enum class Other : uint8_t {
    kNever,
    kAbove64Rows,    // `other` at more than 64 rows
    kEveryNinthRow,  // `other` for these
    kRefuses,        // computes nothing
  };

  SumOrder order = SumOrder::kInOrder;
  SumOrder other = SumOrder::kInOrder;
  Other when = Other::kNever;
  int microseconds = 0;     // that TimeProduct() says it takes
  float above = HUGE_VALF;  // rows whose first value is above this have one wrong value

  kernels::cuda::ProductAlgorithm ToProductAlgorithm() const;
  static HostAlgorithm From(const kernels::cuda::ProductAlgorithm& algorithm);
};

// Counters and switches: what a test sees of a device, and what it does to it. Thread-safe.
struct HostDeviceControl {
  // After this many further operations (copies, launches, waits) every one fails with kDeviceLost.
  // Negative = never.
  std::atomic<int64_t> operations_until_lost{-1};
  // After this many further operations other than waits one fails, and the next ones succeed: with
  // kInternal, or by throwing std::bad_alloc. Negative = never.
  std::atomic<int64_t> operations_until_failure{-1};
  std::atomic<bool> failure_throws{false};
  // Called when a stream with work on it is waited for, before the work is done. May be empty.
  std::function<void()> on_wait;
  // Called when that work is done. May be empty.
  std::function<void()> on_waited;
  // This many further waits fail with kInternal, and what they wait for is not done.
  std::atomic<int64_t> failing_waits{0};
  // Whether probes succeed on a device that is not lost.
  std::atomic<bool> answers{true};
  // Row counts at which no algorithm gives the bits of the others; 0 = none.
  std::atomic<int> unstable_rows{32};

  // What a recording comes to, after its work has been recorded, if it is not kOk.
  std::atomic<kernels::StatusCode> recording{kernels::StatusCode::kOk};

  std::atomic<int64_t> graphs_recorded{0};
  std::atomic<int64_t> graphs_alive{0};
  std::atomic<int64_t> graph_launches{0};
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> copies_to_host{0};       // recorded or put on a stream
  std::atomic<int64_t> fused_layers{0};         // recorded or run
  std::atomic<int64_t> kernels{0};              // the same
  std::atomic<int64_t> clusters{0};             // of a kernel's blocks, run
  std::atomic<int64_t> products{0};             // the same, by the library
  std::atomic<int64_t> normalized_products{0};  // recorded or run, with the norm before them
  std::atomic<int64_t> products_timed{0};
  std::atomic<int64_t> probes{0};
  std::atomic<int64_t> allocations{0};
  std::atomic<int64_t> allocations_alive{0};  // of the device
  std::atomic<int64_t> pinned_alive{0};
  std::atomic<int64_t> bytes_in_use{0};
  std::atomic<int64_t> bytes_to_host{0};
  std::atomic<int64_t> bytes_initialized{0};
};

struct HostDeviceOptions {
  int ordinal = 0;
  std::string name = "host";
  size_t product_workspace_bytes = kernels::cuda::kProductWorkspaceBytes;
  size_t total_memory = size_t{4} << 30;
  size_t max_shared_bytes = size_t{227} << 10;  // of a block
  // There are few, so that both of the scan's widths (scan_shape.h) occur within a test.
  int num_multiprocessors = 6;
  // What the library offers at 512 rows, where the reference is chosen, and at any other number;
  // empty = some of each kind.
  std::vector<HostAlgorithm> reference_algorithms;
  std::vector<HostAlgorithm> bucket_algorithms;
  // What TimeProduct() says of our own product; negative = the device has none.
  int own_product_microseconds = -1;
};

// `control` must outlive the device.
std::unique_ptr<kernels::cuda::Device> MakeHostDevice(const HostDeviceOptions& options,
                                                      HostDeviceControl* control);

}  // namespace sru::testing

#endif  // SRU_TESTS_KERNELS_CUDA_HOST_HOST_DEVICE_H_
