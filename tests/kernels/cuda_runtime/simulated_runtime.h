// A CUDA runtime without a GPU, beneath kernels/cuda/device/cuda_device.cc and the launches of the
// .cu files: devices that fail, each host thread's current device and last error, captures. Copies
// are made at once; a launch is counted and no kernel runs (cuda_host/ runs them), except on a
// device's first stream, where it checks itself: these run at once and are not counted.
//
// The last error is as CUDA has it: any failed call on any device sets that of its host thread, and
// it stays until cudaGetLastError(), also through calls that succeed. Thread-safe, except that a
// test must not change a device while others use it.
#ifndef SRU_TESTS_KERNELS_CUDA_RUNTIME_SIMULATED_RUNTIME_H_
#define SRU_TESTS_KERNELS_CUDA_RUNTIME_SIMULATED_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace sru::testing {

struct SimulatedDevice {
  int compute_capability = 9;  // its major number
  int ptx_version = 90;        // of the newest code of the build
  bool computes = true;        // else the kernels of its first stream do nothing
  int multiprocessors = 132;
  // Every call on the device fails with this.
  cudaError_t failed = cudaSuccess;
  // The call of this name, such as "cudaGraphLaunch", fails with `error`, as long as it is set.
  std::string failing_call;
  cudaError_t error = cudaSuccess;

  // After this many further calls one fails with `error`; negative = never.
  std::atomic<int64_t> calls_until_failure{-1};

  // After this many further queries of an event its work is done. Every wait ends at once.
  std::atomic<int64_t> queries_until_done{0};

  std::atomic<int64_t> waits{0};               // for events
  std::atomic<int64_t> launches{0};            // of kernels, also recorded ones
  std::atomic<int64_t> clustered_launches{0};  // of blocks in clusters
  int active_clusters = 33;  // that the device says it can run; none: it refuses clusters
  std::atomic<int64_t> graph_launches{0};
  std::atomic<int64_t> products{0};  // of the library
  std::atomic<bool> is_new{false};   // without a stream
  std::atomic<int64_t> streams_alive{0};
  std::atomic<int64_t> streams_capturing{0};
  std::atomic<int64_t> streams_busy{0};  // with work that nobody has seen the end of
  std::atomic<int64_t> recordings_alive{0};
  std::atomic<int64_t> graphs_alive{0};
  std::atomic<int64_t> allocations_alive{0};
};

inline constexpr int kSimulatedDevices = 2;

// The kernels that the process has loaded, and those that it has launched or recorded, on any
// device.
struct KernelsSeen {
  std::mutex mutex;
  std::set<const void*> loaded;
  std::set<const void*> launched;
  std::set<std::pair<const void*, unsigned>> launched_threads;  // with the threads of a block
  std::map<const void*, size_t> max_shared_bytes;               // that a launch may ask for
};
KernelsSeen& SimulatedKernels();

// Of the process; tests reset what they change.
SimulatedDevice& SimulatedDeviceAt(int ordinal);

// The newest CUDA version that the driver says it supports; that of the header at first.
std::atomic<int>& SimulatedDriverVersion();

// Whether products fail with the library's own error.
std::atomic<bool>& ProductsFail();

}  // namespace sru::testing

#endif  // SRU_TESTS_KERNELS_CUDA_RUNTIME_SIMULATED_RUNTIME_H_
