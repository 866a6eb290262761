// Which backend a test program tests, from the environment, so that each has a CTest entry of its
// own (sru_backend_tests): SRU_BACKEND names it, SRU_DTYPE the data type, SRU_CPU_ISA the
// instruction set.
#ifndef SRU_TESTS_TESTING_TESTED_BACKEND_H_
#define SRU_TESTS_TESTING_TESTED_BACKEND_H_

#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace sru::testing {

struct TestedBackend {
  std::string name = "cpu";
  std::string cpu_isa = "auto";
  kernels::DataType dtype = kernels::DataType::kFloat32;

  static TestedBackend FromEnvironment() {
    const auto value = [](const char* variable, const char* fallback) {
      const char* text = std::getenv(variable);
      return std::string(text != nullptr ? text : fallback);
    };
    TestedBackend tested;
    tested.name = value("SRU_BACKEND", "cpu");
    tested.cpu_isa = value("SRU_CPU_ISA", "auto");
    if (value("SRU_DTYPE", "float32") == "bfloat16") tested.dtype = kernels::DataType::kBFloat16;
    return tested;
  }

  // Whether this build and machine have it. `reason` says what is missing.
  bool Exists(std::string* reason) const {
    kernels::BackendOptions options;
    options.cpu_isa = cpu_isa;
    std::unique_ptr<kernels::Backend> backend;
    const kernels::Status status = kernels::CreateBackend(name, options, &backend);
    *reason = status.message();
    return status.code() != kernels::StatusCode::kUnavailable;
  }
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_TESTED_BACKEND_H_
