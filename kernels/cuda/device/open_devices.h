// Opening the machine's GPUs: which of them can be used and, if none can, why. Plain C++ over the
// few questions that Driver asks, so that tests answer them.
#ifndef SRU_KERNELS_CUDA_DEVICE_OPEN_DEVICES_H_
#define SRU_KERNELS_CUDA_DEVICE_OPEN_DEVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

inline constexpr int kMinComputeCapability = 8;  // its major number

// What is asked of the driver before a GPU is open. Thread-safe. Versions are numbered as CUDA
// does: 12040 is 12.4.
class Driver {
 public:
  virtual ~Driver() = default;

  // The newest CUDA version that the driver supports; 0 = no driver is installed.
  virtual int driver_version() = 0;
  // The CUDA version that the program was built with.
  virtual int runtime_version() = 0;
  // How many GPUs there are. An error has the driver's own words.
  virtual Status Count(int* count) = 0;
  // The major number of the GPU's compute capability; 0 if the driver does not say.
  virtual int ComputeCapability(int ordinal) = 0;
  // The libraries that every GPU needs; kUnavailable, with the complete message, without them.
  virtual Status LoadLibraries() = 0;
  virtual Status Open(int ordinal, std::unique_ptr<Device>* device) = 0;
};

// The machine's. Only in a build with the toolkit.
Driver* SystemDriver();

// `ordinals` as in BackendOptions::cuda_devices. Without any, a GPU that cannot be opened is left
// out and `warnings` says why. kUnavailable when there is none, when a named one or all of them
// cannot be opened, or when a library is missing; the message has the driver's version, the one of
// the build and the least driver that it needs. kInvalidArgument when one is named twice or is not
// there.
Status OpenDevices(Driver* driver, const std::vector<int>& ordinals,
                   std::vector<std::unique_ptr<Device>>* devices,
                   std::vector<std::string>* warnings);

// How many OpenDevices() may be able to open; 0 also when a library is missing.
int CountDevices(Driver* driver);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_OPEN_DEVICES_H_
