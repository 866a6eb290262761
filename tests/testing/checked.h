// Checked(F()) is what F() returns, and fails the test if that is an error. Whoever then takes the
// value ends the process.
#ifndef SRU_TESTS_TESTING_CHECKED_H_
#define SRU_TESTS_TESTING_CHECKED_H_

#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace sru::testing {

template <typename T>
absl::StatusOr<T> Checked(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return value;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_CHECKED_H_
