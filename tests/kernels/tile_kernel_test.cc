// The tile kernels of this machine against the emulation of AMX, and the choice among them.
#include "kernels/cpu/tile_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_isa.h"

namespace sru::kernels::cpu {
namespace {

using ::testing::HasSubstr;

TEST(TileKernelTest, Avx512AgreesWithTheEmulation) {
  if (!HasAvx512Bf16()) GTEST_SKIP() << "this machine has no AVX512_BF16";
  EXPECT_TRUE(AgreesWithEmulation(Avx512TileKernel()));
}

TEST(TileKernelTest, AmxAgreesWithTheEmulation) {
  if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX";
  EXPECT_TRUE(AgreesWithEmulation(AmxTileKernel()));
}

// A kernel that gets one column wrong in one arrangement.
TEST(TileKernelTest, AWrongKernelIsFound) {
  TileKernel wrong = EmulatedTileKernel();
  EXPECT_TRUE(AgreesWithEmulation(wrong));
  wrong.product = [](const TileProductCall& call) {
    EmulatedTileKernel().product(call);
    if (call.two_blocks) call.y[call.y_stride - 1] += 0.5f;
  };
  EXPECT_FALSE(AgreesWithEmulation(wrong));
}

TEST(CpuIsaTest, AutoIsTheBestOfTheMachine) {
  CpuIsa isa;
  ASSERT_TRUE(ChooseCpuIsa("auto", &isa).ok());
  if (HasAmx()) {
    EXPECT_EQ(isa.name, "amx");
  } else if (HasAvx512Bf16()) {
    EXPECT_EQ(isa.name, "avx512_bf16");
    EXPECT_EQ(isa.tiles, &Avx512TileKernel());
  } else {
    EXPECT_EQ(isa.tiles, nullptr);
  }
#if defined(__x86_64__)
  EXPECT_FALSE(HasNeon());
#elif defined(__aarch64__)
  EXPECT_EQ(isa.name, "neon");
#endif
}

TEST(CpuIsaTest, NeonIsOfArm64) {
  CpuIsa isa;
  const Status status = ChooseCpuIsa("neon", &isa);
  if (HasNeon()) {
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(isa.name, "neon");
    EXPECT_EQ(isa.tiles, nullptr);
  } else {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("this machine has no 'neon'; it has"));
  }
}

TEST(CpuIsaTest, RefusesWhatIsUnknownOrAbsent) {
  std::unique_ptr<Backend> backend;
  BackendOptions options;
  options.cpu_isa = "sse";
  Status status = CreateBackend("cpu", options, &backend);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("expected auto, avx2, avx512, avx512_bf16, amx"));
  EXPECT_THAT(status.message(), HasSubstr("found 'sse'"));
  options.cpu_isa = "auto";
  options.cpu_threads = -1;
  status = CreateBackend("cpu", options, &backend);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("cpu_threads: expected 0 to"));
  if (HasAmx()) return;
  options = BackendOptions();
  options.cpu_isa = "amx";
  status = CreateBackend("cpu", options, &backend);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("this machine has no 'amx'; it has"));
}

}  // namespace
}  // namespace sru::kernels::cpu
