#include "server/tasks/classify/labels.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::vector<int> Order(const std::vector<float>& logits, int top_k) {
  std::vector<std::string> labels;
  std::vector<float> probabilities;
  for (size_t i = 0; i < logits.size(); ++i) {
    labels.push_back("label" + std::to_string(i));
    probabilities.push_back(0.125f * static_cast<float>(i));
  }
  v1::Classification classification;
  WriteLabels(labels, logits.data(), probabilities.data(), top_k, &classification);
  std::vector<int> order;
  for (const v1::Label& label : classification.labels()) {
    order.push_back(label.index());
    EXPECT_EQ(label.name(), labels[label.index()]);
    EXPECT_EQ(label.probability(), probabilities[label.index()]);
    if (!std::isnan(label.logit())) {
      EXPECT_EQ(label.logit(), logits[label.index()]);
    }
  }
  return order;
}

TEST(LabelsTest, LabelsDescendAndTiesGoByIndex) {
  EXPECT_THAT(Order({1, 3, 2}, 3), ElementsAre(1, 2, 0));
  EXPECT_THAT(Order({1, 3, 2}, 1), ElementsAre(1));
  EXPECT_THAT(Order({2, 5, 2, 5, 2}, 5), ElementsAre(1, 3, 0, 2, 4));
  EXPECT_THAT(Order({2, 5, 2, 5, 2}, 3), ElementsAre(1, 3, 0));
  EXPECT_THAT(Order({0}, 1), ElementsAre(0));
  EXPECT_THAT(Order({NAN, 1, NAN, 2}, 4), ElementsAre(3, 1, 0, 2));
}

TEST(LabelsTest, TopK) {
  EXPECT_EQ(*ParseTopK(0, 6), 6);
  EXPECT_EQ(*ParseTopK(2, 6), 2);
  EXPECT_EQ(*ParseTopK(7, 6), 6);
  const absl::Status status = ParseTopK(-1, 6).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("top_k: -1 is negative"));
}

}  // namespace
}  // namespace sru::server::tasks
