// Whether a GPU answers rightly, found out before it serves: code that does nothing on it, such as
// that of another architecture, would else answer with what its memory held before.
#ifndef SRU_KERNELS_CUDA_DEVICE_SELF_CHECK_H_
#define SRU_KERNELS_CUDA_DEVICE_SELF_CHECK_H_

#include "kernels/cuda/device/device.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

// Has the device predict over known numbers, by a cluster where it has clusters, and compares with
// the host. kUnavailable, with the device's name and what it found, if that differs. `stream` is
// idle before and after.
Status CheckAnswers(Device& device, Stream& stream);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_SELF_CHECK_H_
