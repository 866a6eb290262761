// Finds a Python that can run models/export_torch.py, and exports checkpoints with it.
#ifndef SRU_TESTS_INTEGRATION_PYTHON_WITH_TORCH_H_
#define SRU_TESTS_INTEGRATION_PYTHON_WITH_TORCH_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/subprocess.h"

namespace sru::testing {

// Its name, or "" if there is none. The python3 on the path may not be the distribution's, which
// has the package python3-torch.
inline std::string PythonWithTorch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    Subprocess import({python, "-c", "import torch"});
    if (import.Wait(absl::Minutes(2)) == 0) return python;
  }
  return "";
}

// Exports the checkpoint of this directory to the directory `out`; `flags` name its other files.
// Skips the test where there is no checkpoint or no Python.
inline void ExportCheckpoint(const std::filesystem::path& checkpoint,
                             const std::vector<std::string>& flags, const std::string& out) {
  if (!std::filesystem::exists(checkpoint)) {
    GTEST_SKIP() << checkpoint << " is absent; set SRU_SHARED_DIR to the directory that has it";
  }
  const std::string python = PythonWithTorch();
  if (python.empty()) GTEST_SKIP() << "no python3 can import torch (apt install python3-torch)";
  std::vector<std::string> command = {
      python,     "models/export_torch.py",   "--checkpoint", checkpoint / "checkpoint.pt",
      "--config", checkpoint / "config.json", "--out",        out};
  command.insert(command.end(), flags.begin(), flags.end());
  Subprocess exporter(command);
  ASSERT_EQ(exporter.Wait(absl::Minutes(3)), 0) << exporter.err();
}

}  // namespace sru::testing

#endif  // SRU_TESTS_INTEGRATION_PYTHON_WITH_TORCH_H_
