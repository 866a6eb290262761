// The tile kernels of this machine and the emulation of AMX, and the choice among them.
#include "kernels/cpu/tiles/tile_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/stacks/tile_run.h"
#include "kernels/cpu/stacks/tile_stack.h"
#include "kernels/testing/random_stack.h"
#include "tests/kernels/status_matchers.h"
#include "tests/testing/emulated_tiles.h"

namespace sru::kernels::cpu {
namespace {

using ::testing::HasSubstr;

TEST(TileKernelTest, Avx512MultipliesRight) {
  if (!HasAvx512Bf16()) GTEST_SKIP() << "this machine has no AVX512_BF16";
  EXPECT_TRUE(MultipliesRight(Avx512TileKernel()));
}

TEST(TileKernelTest, AmxMultipliesRight) {
  if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX";
  EXPECT_TRUE(MultipliesRight(AmxTileKernel()));
}

// A kernel that gets one column wrong in one arrangement.
TEST(TileKernelTest, AWrongKernelIsFound) {
  TileKernel wrong = EmulatedTileKernel();
  EXPECT_TRUE(MultipliesRight(wrong));
  wrong.product = [](const TileProductCall& call) {
    EmulatedTileKernel().product(call);
    if (call.two_blocks) call.y[call.y_stride - 1] += 0.5f;
  };
  EXPECT_FALSE(MultipliesRight(wrong));
}

// Everything that makes sense.
std::vector<TileArrangement> AllArrangements(TileUnit unit) {
  std::vector<TileArrangement> all;
  for (int rows = 16; rows <= kMostPieceRows; rows *= 2) {
    for (int blocks = 1; blocks <= 4 && rows * blocks <= kMostPieceRows; blocks *= 2) {
      for (int places : {0, 1, kMostPlaces}) {
        if (places > 0 && unit == TileUnit::kAvx512) continue;
        all.push_back({rows, blocks, places});
      }
    }
  }
  return all;
}

std::string NameOf(const TileArrangement& a) {
  return "rows " + std::to_string(a.rows) + ", blocks " + std::to_string(a.blocks) + ", places " +
         std::to_string(a.places);
}

// The vectors, pools and states of a ragged batch, after one another.
std::vector<float> RunArranged(const testing::RandomStack& stack, const TileKernel& kernel,
                               const TileArrangement* arrangement,
                               const std::vector<int>& lengths) {
  const StackSpec& spec = stack.spec();
  const testing::RandomBatch random(spec, lengths, /*initial_state=*/true, 2);
  const RaggedBatch batch = random.view();
  TileStack tiles(spec, kernel);
  tiles.arrangement = arrangement;
  ParallelRunner parallel(1, 1);
  TileWorkspace workspace(tiles, {batch.num_tokens(), batch.num_sequences}, 1,
                          std::make_shared<RunMemory>(1));
  testing::OutputArrays found(spec, batch, Pooling::kMax);
  RunTileBatch(tiles, batch, found.outputs.data(), workspace, parallel);
  std::vector<float> all = found.token_vectors;
  all.insert(all.end(), found.pooled.begin(), found.pooled.end());
  all.insert(all.end(), found.final_state.begin(), found.final_state.end());
  return all;
}

// Every arrangement computes the bits of the chosen one.
void ExpectSameBits(const TileKernel& kernel) {
  struct Case {
    int input;
    int hidden;
    int vocabulary;
    std::vector<int> lengths;
  };
  // Seven blocks: four, two and one. An input that is not as wide as the output gives four
  // matrices; rows of 1,024 columns give chunks of 128 rows.
  for (const Case& c : {Case{218, 109, 0, {37}}, Case{218, 109, 0, {40, 1, 17}},
                        Case{218, 109, 0, {8, 8, 8, 8, 8, 8, 8, 8, 8}}, Case{218, 109, 50, {37}},
                        Case{1024, 24, 0, {70}}, Case{1024, 24, 0, {9, 150, 9, 9}}}) {
    testing::StackOptions options;
    options.input_size = c.input;
    options.hidden_size = c.hidden;
    options.vocabulary_size = c.vocabulary;
    options.num_layers = 1;
    options.num_labels = 0;
    const testing::RandomStack stack(options, 1);
    const std::vector<float> expected = RunArranged(stack, kernel, nullptr, c.lengths);
    for (const TileArrangement& arrangement : AllArrangements(kernel.unit)) {
      const std::vector<float> found = RunArranged(stack, kernel, &arrangement, c.lengths);
      ASSERT_EQ(expected.size(), found.size());
      EXPECT_EQ(std::memcmp(expected.data(), found.data(), found.size() * sizeof(float)), 0)
          << NameOf(arrangement) << ", input " << c.input << ", vocabulary " << c.vocabulary << ", "
          << c.lengths.size() << " sequences";
    }
  }
}

TEST(TileArrangementTest, EmulatedAmxHasTheSameBits) { ExpectSameBits(EmulatedTileKernel()); }

TEST(TileArrangementTest, AmxHasTheSameBits) {
  if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX";
  ExpectSameBits(AmxTileKernel());
}

TEST(TileArrangementTest, Avx512HasTheSameBits) {
  if (!HasAvx512Bf16()) GTEST_SKIP() << "this machine has no AVX512_BF16";
  ExpectSameBits(Avx512TileKernel());
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
  EXPECT_THAT(status, IsInvalid(HasSubstr("expected auto, avx2, avx512, avx512_bf16, amx")));
  EXPECT_THAT(status.message(), HasSubstr("found 'sse'"));
  options.cpu_isa = "amx_emulated";
  status = CreateBackend("cpu", options, &backend);
  EXPECT_THAT(status, IsInvalid(HasSubstr("found 'amx_emulated'")));
  options.cpu_isa = "auto";
  options.cpu_threads = -1;
  status = CreateBackend("cpu", options, &backend);
  EXPECT_THAT(status, IsInvalid(HasSubstr("cpu_threads: expected 0 to")));
  if (HasAmx()) return;
  options = BackendOptions();
  options.cpu_isa = "amx";
  status = CreateBackend("cpu", options, &backend);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("this machine has no 'amx'; it has"));
}

}  // namespace
}  // namespace sru::kernels::cpu
