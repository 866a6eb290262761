// Finds a Python that can run models/export_torch.py.
#ifndef SRU_TESTS_TESTING_PYTHON_WITH_TORCH_H_
#define SRU_TESTS_TESTING_PYTHON_WITH_TORCH_H_

#include <string>

#include "absl/time/time.h"
#include "tests/testing/subprocess.h"

namespace sru::testing {

// Its name, or "" if there is none. The python3 on the path may not be the distribution's, which has
// the package python3-torch.
inline std::string PythonWithTorch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    Subprocess import({python, "-c", "import torch"});
    if (import.Wait(absl::Minutes(2)) == 0) return python;
  }
  return "";
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_PYTHON_WITH_TORCH_H_
