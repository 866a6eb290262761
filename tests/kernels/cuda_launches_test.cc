// Every kernel of the CUDA backend is launched by a check of gpu_check (tests/gpu/checks.h), on GPUs of any
// size, so that a GPU on which all checks pass has run every kernel. The checks run on a simulated runtime
// (cuda_runtime/), where no kernel runs: their results say nothing here.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "kernels/data_type.h"
#include "tests/gpu/checks.h"
#include "tests/kernels/cuda_runtime/simulated_runtime.h"

namespace sru::testing {
namespace {

// The kernels that this program was compiled with, and their names: functions of kernels/cuda/kernels, whose names end in Kernel. They are static
// functions here, which only the symbol table of the file names.
std::map<const void*, std::string> CompiledKernels() {
  std::map<const void*, std::string> kernels;
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&CompiledKernels), &info) == 0) return kernels;
  const std::string command = std::string("nm -C ") + info.dli_fname;
  const auto has = [](const std::string& line, const char* part) {
    return line.find(part) != std::string::npos;
  };
  FILE* const lines = popen(command.c_str(), "r");
  char buffer[4000];
  while (lines != nullptr && std::fgets(buffer, sizeof(buffer), lines) != nullptr) {
    const std::string line(buffer);
    static const std::string kRoom = "sru::kernels::cuda::";
    const size_t name = line.find(kRoom);
    if (!has(line, " void sru::kernels::cuda::") && !has(line, " t sru::kernels::cuda::")) continue;
    const size_t end = line.find_first_of("<(", name + kRoom.size());  // of the function's own name
    if (end == std::string::npos || line.compare(end - 6, 6, "Kernel") != 0) continue;
    if (has(line, "[clone") || has(line, "::{lambda")) continue;
    kernels[static_cast<char*>(info.dli_fbase) + std::strtoull(buffer, nullptr, 16)] =
        line.substr(name);
  }
  if (lines != nullptr) pclose(lines);
  return kernels;
}

class CudaLaunchesTest : public ::testing::TestWithParam<int> {};

TEST_P(CudaLaunchesTest, EveryKernelIsLaunchedByACheck) {
  KernelsSeen& kernels = SimulatedKernels();
  kernels.launched.clear();
  for (int i = 0; i < kSimulatedDevices; ++i) SimulatedDeviceAt(i).multiprocessors = GetParam();
  CheckOptions options;
  options.reference = "cuda";  // the real one takes its time
  options.only = {CheckGroup::kGoldens, CheckGroup::kBits, CheckGroup::kLarge,
                  CheckGroup::kPrograms};
  ::testing::internal::CaptureStdout();
  for (const auto dtype : {kernels::DataType::kFloat32, kernels::DataType::kBFloat16}) {
    options.dtype = dtype;
    EXPECT_NE(RunChecks(options), 77);
  }
  options.fuse_layers = true;
  EXPECT_NE(RunChecks(options), 77);
  ::testing::internal::GetCapturedStdout();
  // Some are compiled twice, here for the simulated runtime and there to run on the host.
  std::set<std::string> compiled;
  std::set<std::string> loaded;
  std::set<std::string> launched;
  for (const auto& [kernel, name] : CompiledKernels()) {
    compiled.insert(name);
    if (kernels.loaded.count(kernel) > 0) loaded.insert(name);
    if (kernels.launched.count(kernel) > 0) launched.insert(name);
  }
  EXPECT_EQ(compiled.size(), 86u) << "cuda_ptxas_test.py finds as many in the machine code";
  EXPECT_EQ(loaded, compiled) << "not loaded at the start";
  EXPECT_EQ(launched, compiled) << "launched by no check";
  EXPECT_EQ(kernels.loaded, kernels.launched);
}

INSTANTIATE_TEST_SUITE_P(Multiprocessors, CudaLaunchesTest, ::testing::Values(46, 84, 108, 132));

}  // namespace
}  // namespace sru::testing
