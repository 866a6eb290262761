// Matchers of kernels::Status, for tests of kernels.
#ifndef SRU_TESTS_KERNELS_STATUS_MATCHERS_H_
#define SRU_TESTS_KERNELS_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <ostream>
#include <stdexcept>

#include "kernels/status.h"

namespace sru::kernels {

// GoogleTest prints a status with this.
inline void PrintTo(const Status& status, std::ostream* os) {
  *os << "code " << static_cast<int>(status.code()) << " \"" << status.message() << '"';
}

MATCHER(IsOk, "is OK") { return arg.ok(); }

// `message` is a text or a matcher of one.
MATCHER_P2(IsError, code, message, "has that code and message") {
  return arg.code() == code &&
         ::testing::ExplainMatchResult(message, arg.message(), result_listener);
}
template <typename Message>
auto IsInvalid(const Message& message) {
  return IsError(StatusCode::kInvalidArgument, message);
}
template <typename Message>
auto IsExhausted(const Message& message) {
  return IsError(StatusCode::kResourceExhausted, message);
}

// For fixtures: fails the test, and ends it, if the status is not OK.
inline void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

}  // namespace sru::kernels

#endif  // SRU_TESTS_KERNELS_STATUS_MATCHERS_H_
