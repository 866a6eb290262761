// Every kernel of the CUDA backend is launched by a check of gpu_check (tests/gpu/checks.h), on
// GPUs of any size, so that a GPU on which all checks pass has run every kernel. The checks run on
// a simulated runtime (cuda_runtime/), where no kernel runs: their results say nothing here.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda/kernels/fused_shape.h"
#include "kernels/data_type.h"
#include "tests/gpu/checks.h"
#include "tests/kernels/cuda_runtime/simulated_runtime.h"

namespace sru::testing {
namespace {

// The kernels that this program was compiled with, and their names: functions of
// kernels/cuda/kernels, whose names end in Kernel. They are static functions here, which only the
// symbol table of the file names.
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
  kernels.launched_threads.clear();
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
  std::set<std::pair<std::string, unsigned>> threads;
  for (const auto& [kernel, name] : CompiledKernels()) {
    compiled.insert(name);
    if (kernels.loaded.count(kernel) > 0) loaded.insert(name);
    if (kernels.launched.count(kernel) > 0) launched.insert(name);
    for (const auto& [function, count] : kernels.launched_threads) {
      if (function == kernel) threads.emplace(name.substr(0, name.find('(')), count);
    }
  }
  EXPECT_EQ(compiled.size(), 96u) << "cuda_ptxas_test.py finds as many in the machine code";
  EXPECT_EQ(loaded, compiled) << "not loaded at the start";
  std::string left_out;
  for (const std::string& name : compiled) left_out += launched.count(name) > 0 ? "" : name;
  EXPECT_EQ(left_out, "") << "launched by no check";
  EXPECT_EQ(kernels.loaded, kernels.launched);
  if (GetParam() != 132) return;
  // One slice for few sequences and two for many are instructions of their own in a fused kernel.
  for (const int input : {64, 128}) {
    for (const int matrices : {3, 4}) {
      const std::string name = "sru::kernels::cuda::FusedKernel<" + std::to_string(input) + ", " +
                               std::to_string(matrices) + ">";
      for (const int slices : {1, 2}) {
        const int count = kernels::cuda::FusedThreads(matrices, slices);
        EXPECT_EQ(threads.count({name, count}), 1u) << name << " of " << slices << " slices";
      }
    }
  }
}

// As many blocks as fit 132 multiprocessors by their shared memory go from group to group in a
// large batch.
TEST(CudaLargeBatchTest, BlocksOfFusedLayersHaveSeveralGroups) {
  constexpr int kMultiprocessors = 132;
  constexpr size_t kSharedBytes = 228 << 10;  // of a multiprocessor
  for (const auto& [input, hidden] : {std::pair(64, 128), std::pair(64, 32), std::pair(128, 64)}) {
    for (const int matrices : {3, 4}) {
      kernels::cuda::FusedArgs args = {};
      args.k = input;
      args.scan.num_sequences = kLargeBatch;
      args.scan.directions = 2;
      args.scan.padded = hidden;
      args.scan.matrices = matrices;
      const int slices = kernels::cuda::FusedSlices(args, kMultiprocessors);
      EXPECT_EQ(slices, kernels::cuda::kFusedMaxSlices);
      const size_t shared = kernels::cuda::FusedSharedBytes(input, matrices, slices);
      const int resident = static_cast<int>(kSharedBytes / (shared + 1024));
      EXPECT_LT(
          kernels::cuda::FusedBlocks(args, slices, kMultiprocessors, resident),
          kernels::cuda::FusedGroups(args.scan) * kernels::cuda::FusedParts(args.scan, slices))
          << input << " to 2 x " << hidden << ", " << matrices << " matrices";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Multiprocessors, CudaLaunchesTest, ::testing::Values(46, 84, 108, 132));

}  // namespace
}  // namespace sru::testing
