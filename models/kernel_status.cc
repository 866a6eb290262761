#include "models/kernel_status.h"

namespace sru::models {

absl::Status ToAbslStatus(const kernels::Status& status) {
  switch (status.code()) {
    case kernels::StatusCode::kOk:
      return absl::OkStatus();
    case kernels::StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case kernels::StatusCode::kUnsupported:
      return absl::UnimplementedError(status.message());
    case kernels::StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(status.message());
    case kernels::StatusCode::kUnavailable:
    case kernels::StatusCode::kDeviceLost:
      return absl::UnavailableError(status.message());
    case kernels::StatusCode::kInternal:
      return absl::InternalError(status.message());
  }
  return absl::InternalError(status.message());
}

}  // namespace sru::models
