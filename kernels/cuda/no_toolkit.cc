// For builds without the CUDA toolkit.
#include "kernels/cuda/open_devices.h"

namespace sru::kernels::cuda {

Driver* SystemDriver() { return nullptr; }

}  // namespace sru::kernels::cuda
