// The seam between the kernels folder, which builds without Abseil, and the rest.
#ifndef SRU_MODELS_KERNEL_STATUS_H_
#define SRU_MODELS_KERNEL_STATUS_H_

#include "absl/status/status.h"
#include "kernels/status.h"

namespace sru::models {

// The same meaning and message; kUnsupported becomes kUnimplemented, kDeviceLost kUnavailable.
absl::Status ToAbslStatus(const kernels::Status& status);

}  // namespace sru::models

#endif  // SRU_MODELS_KERNEL_STATUS_H_
