// The small status type of the kernels folder, which builds without Abseil.
// models/ converts it to absl::Status at the seam (models/kernel_status.h).
#ifndef SRU_KERNELS_STATUS_H_
#define SRU_KERNELS_STATUS_H_

#include <string>
#include <utility>

namespace sru::kernels {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the specification or the batch contradicts itself
  kUnsupported,        // valid, but this backend or build cannot do it
  kResourceExhausted,  // host or device memory does not suffice
  kUnavailable,        // the build or the machine lacks what is asked for
  kDeviceLost,         // a device has failed for good; another one may do the work
  kInternal,           // a library call failed for no fault of the caller's
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}
inline Status Unsupported(std::string message) {
  return Status(StatusCode::kUnsupported, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}

}  // namespace sru::kernels

// Leaves the function with the Status of the expression unless it is OK.
#define SRU_RETURN_IF_ERROR(expression)                             \
  do {                                                              \
    if (::sru::kernels::Status s = (expression); !s.ok()) return s; \
  } while (false)

#endif  // SRU_KERNELS_STATUS_H_
