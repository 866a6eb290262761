// What the backends share (kernels/common/).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/backend.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/row_layout.h"
#include "kernels/stack_spec.h"

namespace sru::kernels {
namespace {

TEST(BFloat16Test, RoundsToTheNearestTiesToEven) {
  EXPECT_EQ(BFloat16Bits(1.0f), 0x3f80);
  EXPECT_EQ(BFloat16Bits(-2.0f), 0xc000);
  EXPECT_EQ(BFloat16Bits(1.0f + 0x1p-8f), 0x3f80) << "a tie goes to the even value below";
  EXPECT_EQ(BFloat16Bits(1.0f + 3 * 0x1p-8f), 0x3f82) << "a tie goes to the even value above";
  EXPECT_EQ(BFloat16Bits(1.0f + 0x1.02p-8f), 0x3f81) << "just above a tie";
  EXPECT_EQ(BFloat16Bits(std::numeric_limits<float>::max()), 0x7f80) << "rounds to infinity";
  EXPECT_EQ(BFloat16Bits(-0.0f), 0x8000);
  EXPECT_EQ(BFloat16Bits(0x1p-149f), 0) << "the smallest float32";
  // A NaN whose payload is only in the lower half would become infinity.
  const uint32_t bits = 0x7f800001u;
  float nan;
  std::memcpy(&nan, &bits, sizeof(nan));
  EXPECT_TRUE(std::isnan(FloatOfBFloat16Bits(BFloat16Bits(nan))));
}

TEST(BFloat16Test, EveryBFloat16IsItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FloatOfBFloat16Bits(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(BFloat16Bits(value), bits);
  }
}

TEST(PaddedRowTest, PositionsAndValuesAreInverse) {
  for (int segments : {1, 2}) {
    for (int size : {1, 7, 8, 9, 16, 17}) {
      const PaddedRow<8> row{segments, size};
      EXPECT_EQ(row.padded() % 8, 0);
      EXPECT_LT(row.padded() - size, 8);
      EXPECT_EQ(row.is_dense(), size % 8 == 0);
      int values = 0;
      for (int position = 0; position < row.stride(); ++position) {
        const int value = row.ValueAt(position);
        if (value < 0) continue;
        EXPECT_EQ(value, values++);
        EXPECT_EQ(row.Position(value), position);
      }
      EXPECT_EQ(values, row.width());

      std::vector<float> dense(row.width());
      for (int i = 0; i < row.width(); ++i) dense[i] = static_cast<float>(i + 1);
      std::vector<float> padded(row.stride(), -1.0f);
      row.Pack(dense.data(), padded.data());
      for (int position = 0; position < row.stride(); ++position) {
        const int value = row.ValueAt(position);
        EXPECT_EQ(padded[position], value < 0 ? -1.0f : dense[value]);
      }
      std::vector<float> again(row.width());
      row.Unpack(padded.data(), again.data());
      EXPECT_EQ(again, dense);
    }
  }
}

TEST(HighwayTest, IsWhatTheLayerSays) {
  LayerSpec layer;
  EXPECT_EQ(HighwayOf(layer), Highway::kInput);
  layer.num_matrices = 4;
  EXPECT_EQ(HighwayOf(layer), Highway::kMatrix);
  layer.has_skip_term = false;
  EXPECT_EQ(HighwayOf(layer), Highway::kNone);
}

TEST(PoolingOfTest, IsTheModelsForLabelsAndNoneWhereNothingIsPooled) {
  StackSpec spec;
  spec.pooling = Pooling::kMax;
  float value = 0;
  SequenceOutput out;
  out.pooling = Pooling::kMean;
  EXPECT_EQ(PoolingOf(spec, out), Pooling::kNone);
  out.pooled = &value;
  EXPECT_EQ(PoolingOf(spec, out), Pooling::kMean);
  out.probabilities = &value;
  EXPECT_EQ(PoolingOf(spec, out), Pooling::kMax);
}

}  // namespace
}  // namespace sru::kernels
