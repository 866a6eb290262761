// The small status type of the kernels folder, which builds without Abseil.
// models/ converts it to absl::Status at the seam (models/kernel_status.h).
#ifndef SRU_KERNELS_STATUS_H_
#define SRU_KERNELS_STATUS_H_

#include <new>
#include <string>
#include <type_traits>

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
  // The message is the parts one after the other: texts, and numbers as std::to_string() has them.
  template <typename Part, typename... Parts>
  Status(StatusCode code, const Part& first, const Parts&... parts) : code_(code) {
    Append(first);
    (Append(parts), ...);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  template <typename Part>
  void Append(const Part& part) {
    if constexpr (std::is_arithmetic_v<Part>) {
      message_ += std::to_string(part);
    } else {
      message_ += part;
    }
  }

  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, parts...);
}
template <typename... Parts>
Status Unsupported(const Parts&... parts) {
  return Status(StatusCode::kUnsupported, parts...);
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Status(StatusCode::kInternal, parts...);
}

// The status that `body` returns, or kResourceExhausted if it throws std::bad_alloc. Around the
// bodies of calls through the backends' interfaces.
template <typename Body>
Status CatchBadAlloc(const char* action, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, action, ": out of memory");
  }
}

}  // namespace sru::kernels

// Leaves the function with the Status of the expression unless it is OK.
#define SRU_RETURN_IF_ERROR(expression)                             \
  do {                                                              \
    if (::sru::kernels::Status s = (expression); !s.ok()) return s; \
  } while (false)

#endif  // SRU_KERNELS_STATUS_H_
