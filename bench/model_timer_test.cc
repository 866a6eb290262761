#include "bench/model_timer.h"

#include <memory>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/random_stack.h"

namespace sru::bench {
namespace {

using ::testing::Each;
using ::testing::Not;
using ::testing::SizeIs;

class ModelTimerTest : public ::testing::Test {
 protected:
  void Compile(const testing::StackOptions& shape) {
    stack_ = std::make_unique<testing::RandomStack>(shape, 1);
    std::unique_ptr<kernels::Backend> backend;
    ASSERT_TRUE(kernels::CreateBackend("cpu", &backend).ok());
    ASSERT_TRUE(backend->Compile(stack_->spec(), {}, &executable_).ok());
  }

  std::unique_ptr<testing::RandomStack> stack_;
  std::unique_ptr<kernels::Executable> executable_;
};

TEST_F(ModelTimerTest, RunsEveryKindOfModelAndOutput) {
  testing::StackOptions classifier;
  testing::StackOptions encoder;
  encoder.num_labels = 0;
  testing::StackOptions features = encoder;
  features.vocabulary_size = 0;
  features.pooling = kernels::Pooling::kNone;
  for (const testing::StackOptions& shape : {classifier, encoder, features}) {
    Compile(shape);
    for (const OutputKind output : {OutputKind::kAuto, OutputKind::kTokens, OutputKind::kStates}) {
      ModelTimer timer(*executable_, stack_->spec(), output);
      for (const std::vector<int>& lengths : {std::vector<int>{3}, {1, 40, 7}}) {
        ASSERT_TRUE(timer.Prepare(lengths).ok());
        EXPECT_EQ(timer.num_tokens(), std::accumulate(lengths.begin(), lengths.end(), 0));
        const absl::Status status = timer.Run();
        EXPECT_TRUE(status.ok()) << status;
      }
      if (output != OutputKind::kAuto) {
        EXPECT_THAT(timer.token_vectors(), SizeIs(48 * 32));
        EXPECT_THAT(timer.token_vectors(), Not(Each(0.0f)));
      }
    }
  }
}

TEST_F(ModelTimerTest, FeaturesOfTheCaller) {
  testing::StackOptions shape;
  shape.vocabulary_size = 0;
  shape.num_labels = 0;
  Compile(shape);
  ModelTimer timer(*executable_, stack_->spec(), OutputKind::kTokens);
  ASSERT_TRUE(timer.Prepare({2}).ok());
  ASSERT_TRUE(timer.Run().ok());
  const std::vector<float> before = timer.token_vectors();
  timer.features()[0] += 1;
  ASSERT_TRUE(timer.Run().ok());
  EXPECT_NE(timer.token_vectors(), before);
}

}  // namespace
}  // namespace sru::bench
