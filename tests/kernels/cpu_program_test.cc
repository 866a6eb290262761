// The parts of which the CPU backend makes a program's operations, where program_test does not reach:
// against plain versions in float64, and equal bits however the work is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/programs/program_attend.h"
#include "kernels/cpu/programs/program_embed.h"
#include "kernels/cpu/programs/program_predict.h"
#include "kernels/cpu/programs/program_product.h"
#include "kernels/cpu/programs/program_rows.h"
#include "kernels/testing/random_program.h"

namespace sru::kernels::cpu {
namespace {

constexpr float kUnwritten = -12345.0f;

std::vector<float> Random(size_t size, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// Widths around those of vectors.
const int kWidths[] = {1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 33, 64, 70, 130};

TEST(ProgramRowsTest, EveryWidthMatchesPlainLoops) {
  for (const int n : kWidths) {
    SCOPED_TRACE(n);
    const std::vector<float> a = Random(n + 1, 1);
    const std::vector<float> b = Random(n + 1, 2);
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
      const std::vector<float> z = Random(kRows * (n + 5), 1);
      const std::vector<float> bias = Random(n, 2);
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
      std::vector<float> x = Random(n, 3);
      for (float& value : x) value *= scale;
      const std::vector<float> weight = Random(n, 4);
      const std::vector<float> bias = Random(n, 5);
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

TEST(ProgramEmbedTest, SinusoidsGoOnPastTheirTable) {
  for (const int width : {1, 6, 64, 75, 130}) {
    const std::vector<float> table = Random(5 * width, 6);
    ops::Embed op;
    op.vocabulary_size = 5;
    op.width = width;
    op.table = {table.data(), table.size()};
    op.scale = 2.5f;
    op.positions = ops::Positions::kInterleaved;
    const EmbedTable embed(op,
                           std::make_shared<RowTable>(op.table, width, /*rounds=*/false, nullptr));
    for (const int64_t position : {0, 1, 1023, 1024, 1025, 70000}) {
      SCOPED_TRACE(std::to_string(width) + " values, position " + std::to_string(position));
      std::vector<float> y(width + 1, kUnwritten);
      embed.Row(3, position, y.data());
      for (int j = 0; j < width; ++j) {
        const double angle = position / std::pow(10000.0, (j - j % 2) / static_cast<double>(width));
        const double sinusoid = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
        EXPECT_NEAR(y[j], 2.5 * table[3 * width + j] + sinusoid, 1e-6);
      }
      EXPECT_EQ(y[width], kUnwritten);
    }
  }
}

// Keys and values of one sequence, as adjacent rows and as pages that have nothing past their rows.
struct Cache {
  Cache(int num_keys, int width, unsigned seed) : rows(Random(num_keys * width, seed)) {
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

TEST(ProgramAttendTest, MatchesPlainLoopsAndPagesHaveTheSameBits) {
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
    const std::vector<float> q = Random(c.rows * width, 7, c.deviation);
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

    for (int row = 0; row < c.rows; ++row) {
      const int seen = c.causal ? c.keys - (c.rows - 1 - row) : c.keys;
      for (int head = 0; head < c.heads; ++head) {
        std::vector<double> scores;
        for (int s = 0; s < seen; ++s) {
          double dot = 0;
          for (int j = 0; j < c.key_size; ++j) {
            const int column = head * c.key_size + j;
            dot += static_cast<double>(q[row * width + column]) * keys.rows[s * width + column];
          }
          scores.push_back(0.7 * dot);
        }
        const double most = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - most);
        for (int j = 0; j < c.value_size; ++j) {
          const int column = head * c.value_size + j;
          double expected = 0;
          for (size_t s = 0; s < scores.size(); ++s) {
            expected += scores[s] / sum * values.rows[s * value_width + column];
          }
          EXPECT_NEAR(y[row * value_width + column], expected, 1e-5 * c.deviation);
        }
      }
    }

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

struct Predicted {
  std::vector<float> log_prob;
  std::vector<Candidate> candidates;
};

// Predicts the rows with a target or a count, `step` rows at a time.
Predicted Predict(const Prediction& prediction, const std::vector<float>& x,
                  const std::vector<int32_t>& targets, const std::vector<int32_t>& counts,
                  int max_candidates, int step) {
  const int rows = static_cast<int>(targets.size());
  Predicted result;
  result.log_prob.assign(rows, kUnwritten);
  result.candidates.assign(rows * max_candidates, {-7, kUnwritten});
  PredictThread::Call call;
  call.x = x.data();
  call.targets = targets.data();
  call.log_prob = result.log_prob.data();
  call.counts = counts.data();
  call.candidates = result.candidates.data();
  call.max_candidates = max_candidates;
  std::vector<int32_t> which;
  for (int t = 0; t < rows; ++t) {
    if (targets[t] >= 0 || counts[t] > 0) which.push_back(t);
  }
  ProductThread products;
  PredictThread predict;
  products.Add(*prediction.product);
  predict.Add(prediction, 0);
  const int all = static_cast<int>(which.size());
  int pieces = 0;
  for (int first = 0; first < all; first += step) {
    predict.Run(prediction, call, {}, which.data() + first, std::min(step, all - first), products,
                [&] { ++pieces; });
  }
  EXPECT_GT(pieces, 0);
  return result;
}

class ProgramPredictTest : public ::testing::TestWithParam<int> {};

TEST_P(ProgramPredictTest, MatchesPlainLoopsHoweverRowsAreCut) {
  const int vocabulary = GetParam();
  constexpr int kWidth = 21;
  constexpr int kRows = 90;
  std::vector<float> weight = Random(vocabulary * kWidth, 10, 0.5f);
  std::vector<float> bias = Random(vocabulary, 11);
  // Equal symbols, some in different blocks: the smallest id comes first.
  for (const int copy : {vocabulary / 2, vocabulary - 1}) {
    std::copy_n(weight.begin(), kWidth, weight.begin() + copy * kWidth);
    bias[copy] = bias[0] = 6.0f;
  }
  const std::vector<float> x = Random((kRows + 600) * kWidth, 12);
  const int most = std::min(vocabulary, 7);
  std::mt19937 random(13);
  std::vector<int32_t> targets(kRows);
  std::vector<int32_t> counts(kRows);
  for (int t = 0; t < kRows; ++t) {
    targets[t] = static_cast<int32_t>(random() % (vocabulary + 1)) - 1;
    counts[t] = static_cast<int32_t>(random() % (most + 1));
    if (t % 10 == 4) targets[t] = -1;
    if (t % 10 == 4 || t % 7 == 0) counts[t] = 0;
  }
  ops::Predict op;
  op.vocabulary_size = vocabulary;
  op.weight = {weight.data(), weight.size()};
  op.bias = {bias.data(), bias.size()};
  ProductShapes shapes;
  const Prediction prediction(op, kWidth, Arithmetic(), shapes, nullptr, nullptr);
  const Predicted found = Predict(prediction, x, targets, counts, most, kRows);

  for (int t = 0; t < kRows; ++t) {
    SCOPED_TRACE("row " + std::to_string(t));
    std::vector<double> z(vocabulary);
    for (int v = 0; v < vocabulary; ++v) {
      z[v] = bias[v];
      for (int j = 0; j < kWidth; ++j) {
        z[v] += static_cast<double>(weight[v * kWidth + j]) * x[t * kWidth + j];
      }
    }
    const double largest = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (const double value : z) sum += std::exp(value - largest);
    const double log_sum = largest + std::log(sum);
    if (targets[t] >= 0) {
      EXPECT_NEAR(found.log_prob[t], z[targets[t]] - log_sum, 5e-6);
    } else {
      EXPECT_EQ(found.log_prob[t], kUnwritten);
    }
    for (int c = 0; c < most; ++c) {
      const Candidate& candidate = found.candidates[t * most + c];
      if (c >= counts[t]) {
        EXPECT_EQ(candidate.id, -7);
        continue;
      }
      ASSERT_GE(candidate.id, 0);
      ASSERT_LT(candidate.id, vocabulary);
      EXPECT_NEAR(candidate.log_prob, z[candidate.id] - log_sum, 5e-6);
      const auto better = std::count_if(
          z.begin(), z.end(), [&](double value) { return value > z[candidate.id] + 1e-5; });
      EXPECT_LE(better, c);
      if (c == 0) continue;
      const Candidate& before = found.candidates[t * most + c - 1];
      EXPECT_TRUE(before.log_prob > candidate.log_prob ||
                  (before.log_prob == candidate.log_prob && before.id < candidate.id));
    }
  }
  for (const int step : {1, 3, 37}) {
    SCOPED_TRACE(step);
    const Predicted cut = Predict(prediction, x, targets, counts, most, step);
    EXPECT_EQ(0, std::memcmp(cut.log_prob.data(), found.log_prob.data(), kRows * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(cut.candidates.data(), found.candidates.data(),
                             found.candidates.size() * sizeof(Candidate)));
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ProgramPredictTest,
                         ::testing::Values(3, 16, 205, 512, 513, 1700),
                         ::testing::PrintToStringParamName());

TEST(ProgramPredictTest, EqualSymbolsComeInTheOrderOfTheirIds) {
  constexpr int kVocabulary = 1200;
  const std::vector<float> weight(kVocabulary, 1.0f);
  ops::Predict op;
  op.vocabulary_size = kVocabulary;
  op.weight = {weight.data(), weight.size()};
  ProductShapes shapes;
  const Prediction prediction(op, 1, Arithmetic(), shapes, nullptr, nullptr);
  const std::vector<float> x(600, 0.25f);
  const Predicted found = Predict(prediction, x, {3}, {kVocabulary}, kVocabulary, 1);
  for (int i = 0; i < kVocabulary; ++i) {
    EXPECT_EQ(found.candidates[i].id, i);
    EXPECT_NEAR(found.candidates[i].log_prob, -std::log(1200.0), 1e-6);
  }
}

TEST(BlockedProductTest, BlocksCoverEveryColumnAndCutRowsAlike) {
  for (const bool rounds : {false, true}) {
    for (const auto& size :
         std::vector<std::pair<int, int>>{{1, 1}, {20, 16}, {33, 530}, {8, 1100}}) {
      const int k = size.first;
      const int n = size.second;
      SCOPED_TRACE(std::to_string(k) + " by " + std::to_string(n));
      constexpr int kRows = 300;
      const std::vector<float> weight = Random(static_cast<size_t>(k) * n, 14);
      const std::vector<float> x = Random(static_cast<size_t>(kRows + 600) * k, 15);
      std::vector<Arithmetic> arithmetics = {
          {rounds ? Rounding::kBFloat16 : Rounding::kNone, rounds, ProductType::kFloat32}};
      if (rounds && HasAvx512Bf16())
        arithmetics.push_back({Rounding::kBFloat16, true, ProductType::kBFloat16});
      if (!rounds) arithmetics.push_back({Rounding::kNone, true, ProductType::kInt8});
      for (const Arithmetic& arithmetic : arithmetics) {
        ProductShapes shapes(arithmetic.products);
        const BlockedProduct product(shapes, arithmetic, nullptr, {weight.data(), weight.size()}, k,
                                     n);
        const auto multiply = [&](int step) {
          ProductThread thread;
          thread.Add(product);
          std::vector<float> y(kRows * n, kUnwritten);
          for (int first = 0; first < kRows; first += step) {
            const int rows = std::min(step, kRows - first);
            thread.Multiply(product, x.data() + first * k, nullptr, rows,
                            [&](const ProductPiece& piece) {
                              for (int row = 0; row < piece.rows; ++row) {
                                std::copy_n(piece.z + row * piece.stride, piece.columns,
                                            y.data() + (first + piece.row + row) * n + piece.first);
                              }
                            });
          }
          return y;
        };
        const std::vector<float> y = multiply(product.group_rows());
        for (int row = 0; row < kRows; row += 37) {
          for (int column = 0; column < n; ++column) {
            // int8 rounds a column of the product to multiples of its scale, and x to 16 bits (int8_product.h).
            const bool int8 = arithmetic.products == ProductType::kInt8;
            float scale = 0;
            float largest = 0;
            for (int j = 0; j < k; ++j) {
              scale = std::max(scale, std::abs(weight[column * k + j]) / 127);
              largest = std::max(largest, std::abs(x[row * k + j]));
            }
            double expected = 0;
            double tolerance = 2e-5;
            for (int j = 0; j < k; ++j) {
              const float a = x[row * k + j];
              const float given = weight[column * k + j];
              const float b = int8 ? std::nearbyint(given / scale) * scale : given;
              if (int8) tolerance += std::abs(b) * largest / 65024;
              expected += rounds ? static_cast<double>(RoundedToBFloat16(a)) * RoundedToBFloat16(b)
                                 : static_cast<double>(a) * b;
            }
            EXPECT_NEAR(y[row * n + column], expected, tolerance);
          }
        }
        for (const int step : {1, 7}) {
          EXPECT_EQ(0, std::memcmp(y.data(), multiply(step).data(), y.size() * sizeof(float)));
        }
      }
    }
  }
}

// Every output of one batch, large enough that operations are split.
struct SplitResults {
  std::vector<float> rows;
  std::vector<float> log_prob;
  std::vector<Candidate> candidates;
};

SplitResults RunSplit(const Program& program, DataType dtype, int threads) {
  constexpr int kWidth = 256;
  constexpr int kCandidates = 3;
  const testing::ProgramData data = testing::RandomData(program, {{700, 0, 1, 350}}, 20);
  const std::vector<int32_t> offsets = data.Offsets(program, 0);
  const int rows = offsets.back();
  BackendOptions hardware;
  hardware.cpu_threads = threads;
  CompileOptions options;
  options.dtype = dtype;
  ProgramLimits limits;
  limits.axes = {{rows, 4}};
  limits.turn = std::chrono::microseconds(1);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ProgramExecutable> executable;
  std::unique_ptr<ProgramWorkspace> workspace;
  EXPECT_TRUE(CreateBackend("cpu", hardware, &backend).ok());
  EXPECT_TRUE(backend->Compile(program, options, &executable).ok());
  EXPECT_TRUE(executable->CreateWorkspace(limits, &workspace).ok());
  AxisBatch axis;
  axis.num_sequences = 4;
  axis.offsets = offsets.data();
  std::vector<InputBatch> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    inputs.push_back({data.ids[i].data(), data.features[i].data()});
  }
  ProgramBatch batch;
  batch.axes = &axis;
  batch.inputs = inputs.data();
  SplitResults results;
  results.rows.assign(rows * kWidth, kUnwritten);
  results.log_prob.assign(rows, kUnwritten);
  results.candidates.assign(rows * kCandidates, {-7, kUnwritten});
  std::vector<OutputBatch> outputs(3);
  outputs[0].values = results.rows.data();
  outputs[1].values = results.log_prob.data();
  outputs[2].candidates = results.candidates.data();
  EXPECT_TRUE(executable->Run(batch, outputs.data(), *workspace).ok());
  return results;
}

TEST(CpuProgramTest, SplitOperationsHaveTheSameBits) {
  testing::RandomProgram random(16);
  const AxisId rows = random.program.AddAxis("rows");
  ops::Attend attend;
  attend.q = attend.keys = attend.values =
      random.Linear(random.Features("x", rows, 256), 256, /*bias=*/true, /*relu=*/true);
  attend.heads = 4;
  attend.causal = true;
  const ValueId y = random.Attend(attend, 256);
  random.Output(y, "y");
  random.Predict("next", y, rows, 600, 3);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    SCOPED_TRACE(DataTypeName(dtype));
    const SplitResults whole = RunSplit(random.program, dtype, 1);
    for (const int threads : {2, 3, 16}) {
      SCOPED_TRACE(threads);
      const SplitResults split = RunSplit(random.program, dtype, threads);
      EXPECT_EQ(whole.rows, split.rows);
      EXPECT_EQ(whole.log_prob, split.log_prob);
      EXPECT_EQ(0, std::memcmp(whole.candidates.data(), split.candidates.data(),
                               whole.candidates.size() * sizeof(Candidate)));
    }
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
