// The parts of which the CPU backend makes a program's operations, where program_test does not
// reach: against plain versions in float64, and equal bits however the work is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/programs/program_attend.h"
#include "kernels/cpu/programs/program_rows.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels::cpu {
namespace {

using ::sru::testing::RandomValues;

constexpr float kUnwritten = -12345.0f;

// Widths around those of vectors.
const int kWidths[] = {1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 33, 64, 70, 130};

TEST(ProgramRowsTest, EveryWidthMatchesPlainLoops) {
  for (const int n : kWidths) {
    SCOPED_TRACE(n);
    const std::vector<float> a = RandomValues(n + 1, 1);
    const std::vector<float> b = RandomValues(n + 1, 2);
    std::vector<float> y(n + 1, kUnwritten);
    AddRows(a.data() + 1, b.data(), n, y.data());
    for (int i = 0; i < n; ++i) EXPECT_EQ(y[i], a[i + 1] + b[i]);
    AddBias(a.data() + 1, n, b.data(), 1, n, /*rectifies=*/true, y.data(), n);
    for (int i = 0; i < n; ++i) EXPECT_EQ(y[i], std::max(0.0f, a[i + 1] + b[i]));
    ScaleRow(3.0f, a.data() + 1, n, y.data());
    for (int i = 0; i < n; ++i) EXPECT_EQ(y[i], 3.0f * a[i + 1]);
    ScaleAndAddRow(3.0f, a.data() + 1, b.data(), n, y.data());
    for (int i = 0; i < n; ++i) EXPECT_NEAR(y[i], 3.0f * a[i + 1] + b[i], 1e-6);
    y = b;
    MaxRow(a.data(), n, y.data());
    for (int i = 0; i < n; ++i) EXPECT_EQ(y[i], std::max(a[i], b[i]));
    double dot = 0;
    for (int i = 0; i < n; ++i) dot += static_cast<double>(a[i]) * b[i];
    EXPECT_NEAR(DotRows(a.data(), b.data(), n), dot, 1e-6 * n);
    EXPECT_EQ(y[n], b[n]) << "a value past the row was written";
  }
}

// Rows apart from each other, what is between them being left alone.
TEST(ProgramRowsTest, AddsABiasToEveryRow) {
  constexpr int kRows = 3;
  for (const int n : kWidths) {
    for (const bool rectifies : {false, true}) {
      SCOPED_TRACE(std::to_string(n) + (rectifies ? " rectified" : ""));
      const std::vector<float> z = RandomValues(kRows * (n + 5), 1);
      const std::vector<float> bias = RandomValues(n, 2);
      std::vector<float> y(kRows * (n + 3), kUnwritten);
      AddBias(z.data(), n + 5, bias.data(), kRows, n, rectifies, y.data(), n + 3);
      for (int row = 0; row < kRows; ++row) {
        for (int i = 0; i < n; ++i) {
          const float sum = z[row * (n + 5) + i] + bias[i];
          EXPECT_EQ(y[row * (n + 3) + i], rectifies ? std::max(0.0f, sum) : sum);
        }
        for (int i = n; i < n + 3; ++i) EXPECT_EQ(y[row * (n + 3) + i], kUnwritten);
      }
    }
  }
}

TEST(ProgramRowsTest, NormalizesHugeValuesToo) {
  for (const float scale : {1.0f, 1e-3f, 1e18f, 1e30f}) {
    for (const int n : kWidths) {
      SCOPED_TRACE(std::to_string(n) + " values of " + std::to_string(scale));
      std::vector<float> x = RandomValues(n, 3);
      for (float& value : x) value *= scale;
      const std::vector<float> weight = RandomValues(n, 4);
      const std::vector<float> bias = RandomValues(n, 5);
      double mean = 0;
      double squares = 0;
      for (const float value : x) mean += static_cast<double>(value) / n;
      for (const float value : x) squares += (value - mean) * (value - mean) / n;
      std::vector<float> y(n + 1, kUnwritten);
      NormalizeValues(x.data(), weight.data(), bias.data(), n, 1e-6f, y.data());
      for (int i = 0; i < n; ++i) {
        EXPECT_NEAR(y[i], (x[i] - mean) / std::sqrt(squares + 1e-6) * weight[i] + bias[i], 2e-5);
      }
      EXPECT_EQ(y[n], kUnwritten);
    }
  }
}

// Keys and values of one sequence, as adjacent rows and as pages that have nothing past their rows.
struct Cache {
  Cache(int num_keys, int width, unsigned seed) : rows(RandomValues(num_keys * width, seed)) {
    for (int first = 0; first < num_keys; first += kStatePageRows) {
      const int count = std::min(kStatePageRows, num_keys - first);
      pages.emplace_back(rows.begin() + first * width, rows.begin() + (first + count) * width);
    }
    for (const std::vector<float>& page : pages) pointers.push_back(page.data());
  }
  PagedRows Adjacent(int width) const {
    return {rows.data(), nullptr, 0, static_cast<size_t>(width)};
  }
  PagedRows Paged(int width) const {
    return {nullptr, pointers.data(), 0, static_cast<size_t>(width)};
  }

  std::vector<float> rows;
  std::vector<std::vector<float>> pages;
  std::vector<const float*> pointers;
};

TEST(ProgramAttendTest, PagesHaveTheSameBits) {
  struct Case {
    int heads, key_size, value_size, rows, keys;
    bool causal;
    float deviation;
  };
  for (const Case& c : std::vector<Case>{{1, 1, 1, 1, 1, false, 1},
                                         {1, 16, 16, 3, 5, false, 1},
                                         {2, 5, 7, 9, 9, true, 1},
                                         {3, 24, 20, 4, 40, true, 1},
                                         {8, 64, 64, 17, 17, true, 1},
                                         {1, 70, 130, 2, 300, false, 1},
                                         {2, 12, 12, 600, 600, true, 3},
                                         {2, 33, 31, 5, 3, true, 1},  // rows that see nothing
                                         {1, 8, 8, 2, 0, false, 1},
                                         {1, 16, 16, 2, 520, false, 30}}) {
    SCOPED_TRACE(std::to_string(c.heads) + " heads of " + std::to_string(c.key_size) + ", " +
                 std::to_string(c.rows) + " rows, " + std::to_string(c.keys) + " keys");
    const int width = c.heads * c.key_size;
    const int value_width = c.heads * c.value_size;
    const std::vector<float> q = RandomValues(c.rows * width, 7, c.deviation);
    const Cache keys(c.keys, width, 8);
    const Cache values(c.keys, value_width, 9);
    std::vector<float> y(c.rows * value_width, kUnwritten);
    AttendCall call;
    call.q = q.data();
    call.rows = c.rows;
    call.keys = keys.Adjacent(width);
    call.values = values.Adjacent(value_width);
    call.num_keys = c.keys;
    call.heads = c.heads;
    call.scale = 0.7f;
    call.causal = c.causal;
    call.y = y.data();
    AttendRows(call, 0, c.rows);

    // From pages, row by row; and, where later keys are hidden, with no more keys than a row sees.
    call.keys = keys.Paged(width);
    call.values = values.Paged(value_width);
    std::vector<float> single(y.size(), kUnwritten);
    for (int row = 0; row < c.rows; ++row) {
      AttendCall one = call;
      one.q = q.data() + row * width;
      one.rows = 1;
      if (c.causal) one.num_keys = std::max(0, c.keys - (c.rows - 1 - row));
      one.y = single.data() + row * value_width;
      AttendRows(one, 0, 1);
    }
    EXPECT_EQ(0, std::memcmp(y.data(), single.data(), y.size() * sizeof(float)));
  }
}

TEST(CpuProgramTest, AWorkspaceHoldsNoLogitsAndReusesMemory) {
  constexpr int kRows = 1000;
  constexpr int kWidth = 64;
  testing::RandomProgram random(17);
  const AxisId rows = random.program.AddAxis("rows");
  ValueId x = random.Features("x", rows, kWidth);
  for (int i = 0; i < 20; ++i) x = random.Normalize(x);
  random.Predict("next", x, rows, 5000, 1);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ProgramExecutable> executable;
  std::unique_ptr<ProgramWorkspace> workspace;
  BackendOptions hardware;
  hardware.cpu_threads = 1;
  ASSERT_TRUE(CreateBackend("cpu", hardware, &backend).ok());
  ASSERT_TRUE(backend->Compile(random.program, CompileOptions(), &executable).ok());
  ProgramLimits limits;
  limits.axes = {{kRows, 1}};
  ASSERT_TRUE(executable->CreateWorkspace(limits, &workspace).ok());
  // Two values at a time, and what a thread needs: rows for a group of products and one piece of
  // logits. All logits would be 20 MB, all values 5.4 MB.
  EXPECT_LT(workspace->bytes(), 2 * kRows * kWidth * sizeof(float) + 700'000);
  EXPECT_GT(workspace->bytes(), 2 * kRows * kWidth * sizeof(float));
}

}  // namespace
}  // namespace sru::kernels::cpu
