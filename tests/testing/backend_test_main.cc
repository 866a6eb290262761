// main() of test programs that sru_backend_tests() runs once per backend: says that the machine
// lacks what the entry is for, instead of passing or failing.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tests/testing/tested_backend.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in cmake/SruTargets.cmake
  ::testing::InitGoogleTest(&argc, argv);
  std::string reason;
  if (!sru::testing::TestedBackend::FromEnvironment().Exists(&reason)) {
    std::cout << "skipped: " << reason << "\n";
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
