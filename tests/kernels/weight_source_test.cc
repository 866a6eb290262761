#include "kernels/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/program.h"
#include "kernels/testing/random_stack.h"
#include "tests/testing/strict_weight_source.h"

namespace sru::kernels {
namespace {

using ::sru::testing::RandomStack;
using ::sru::testing::StackOptions;
using ::sru::testing::StrictWeightSource;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr float kValues[] = {1, 2, 3, 4, 5, 6};

TEST(ReadRowsTest, VisitsEveryRowOnceInPartsOfAboutAMebibyte) {
  constexpr size_t kWidth = 1000;
  std::vector<float> values(1000 * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  StackSpec spec;
  spec.embedding = {values.data(), values.size()};
  StrictWeightSource source;
  const StackSpec strict = source.Take(spec);
  std::vector<float> read;
  size_t parts = 0;
  ReadRows(&source, strict.embedding, kWidth, [&](size_t first, size_t rows, const float* from) {
    EXPECT_EQ(first * kWidth, read.size());
    EXPECT_LE(rows * kWidth * sizeof(float), size_t{1} << 20);
    read.insert(read.end(), from, from + rows * kWidth);
    ++parts;
  });
  EXPECT_EQ(parts, 4u);
  EXPECT_EQ(read, values);
  EXPECT_EQ(source.Error(), "");
}

TEST(ReadRowsTest, TakesRowsThatAreWiderThanAPartAndTensorsWithoutRows) {
  const std::vector<float> values(3 << 19, 1.0f);
  std::vector<std::pair<size_t, size_t>> parts;
  const auto add = [&](size_t first, size_t rows, const float*) {
    parts.emplace_back(first, rows);
  };
  ReadRows(nullptr, {values.data(), values.size()}, 3 << 18, add);
  EXPECT_THAT(parts, ElementsAre(Pair(0, 1), Pair(1, 1)));
  parts.clear();
  ReadRows(nullptr, FloatView(), 5, add);
  ReadRows(nullptr, FloatView(), 0, add);
  EXPECT_THAT(parts, ElementsAre());
}

TEST(WeightCopiesTest, OutlivesTheSourceAndCopiesTiedWeightsOnce) {
  Program program;
  const AxisId axis = program.AddAxis("tokens");
  ops::Embed embed;
  embed.ids = program.AddIds("ids", axis, 0, 3);
  embed.table = {kValues, 6};
  embed.width = 2;
  embed.vocabulary_size = 3;
  const ValueId x = program.Apply(embed);
  ops::Predict predict;
  predict.x = x;
  predict.vocabulary_size = 3;
  predict.weight = {kValues, 6};
  program.Apply(predict);

  WeightCopies copies;
  {
    StrictWeightSource source;
    program = source.Take(program);
    copies.Take(&source, &program);
    EXPECT_EQ(source.Error(), "");
  }
  EXPECT_EQ(copies.bytes(), sizeof(kValues));
  const auto& copied = std::get<ops::Embed>(program.operations[0]);
  EXPECT_TRUE(std::equal(kValues, kValues + 6, copied.table.data));
  const auto& tied = std::get<ops::Predict>(program.operations[1]);
  EXPECT_EQ(tied.weight.data, copied.table.data);
  EXPECT_TRUE(tied.bias.empty());
}

TEST(WithoutWeightsTest, KeepsSizesOnly) {
  StackOptions options;
  options.projection_size = 3;
  options.layer_norm = LayerNorm::kAfter;
  options.input_to_hidden = true;
  const RandomStack stack(options, 1);
  Program program;
  ops::Stack op;
  op.spec = stack.spec();
  program.Apply(op);
  program.Apply(ops::Linear());
  program.Apply(ops::Normalize());
  int views = 0;
  size_t values = 0;
  ForEachWeight(&program, [&](FloatView* view) {
    ++views;
    values += view->size;
  });
  // 4 of the stack, 6 of each of its layers, 2 of each other operation
  EXPECT_EQ(views, 4 + 2 * 6 + 2 * 2);
  program = WithoutWeights(program);
  ForEachWeight(&program, [&](FloatView* view) {
    EXPECT_EQ(view->data, nullptr);
    values -= view->size;
  });
  EXPECT_EQ(values, 0u);
  EXPECT_FALSE(std::get<ops::Stack>(program.operations[0]).spec.layers[0].weight.empty());
}

}  // namespace
}  // namespace sru::kernels
