// Every kernel of the CUDA backend is launched by a check of gpu_check (tests/gpu/checks.h), on GPUs of any
// size, so that a GPU on which all checks pass has run every kernel. The checks run on a simulated runtime
// (cuda_runtime/), where no kernel runs: their results say nothing here.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "kernels/data_type.h"
#include "tests/gpu/checks.h"
#include "tests/kernels/cuda_runtime/simulated_runtime.h"

namespace sru::testing {
namespace {

std::string NameOf(const void* kernel) {
  Dl_info info = {};
  if (dladdr(kernel, &info) == 0) return "not in any file";
  // Kernels are static functions here, which only the symbol table of the file names.
  std::ostringstream command;
  command << "nm -C " << info.dli_fname << " | grep -i '^0*" << std::hex
          << static_cast<const char*>(kernel) - static_cast<const char*>(info.dli_fbase) << " '";
  FILE* const names = popen(command.str().c_str(), "r");
  char name[500] = "";
  if (names == nullptr || std::fgets(name, sizeof(name), names) == nullptr) return command.str();
  pclose(names);
  return name;
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
  EXPECT_GT(kernels.loaded.size(), 50u);
  for (const void* kernel : kernels.loaded) {
    EXPECT_EQ(kernels.launched.count(kernel), 1u) << "launched by no check: " << NameOf(kernel);
  }
  for (const void* kernel : kernels.launched) {
    EXPECT_EQ(kernels.loaded.count(kernel), 1u) << "not loaded at the start: " << NameOf(kernel);
  }
}

INSTANTIATE_TEST_SUITE_P(Multiprocessors, CudaLaunchesTest, ::testing::Values(46, 84, 108, 132));

}  // namespace
}  // namespace sru::testing
