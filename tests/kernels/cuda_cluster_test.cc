// A cluster of blocks answers a row of a large vocabulary with the bits of one block, whatever is
// asked of the row. Both run on the host (cuda_host/).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/testing/random_stack.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/cuda_host/shim_mode.h"

namespace sru::kernels::cuda {
namespace {

using sru::testing::HostDeviceControl;
using sru::testing::kShimModes;
using sru::testing::MakeHostDevice;
using sru::testing::SetShimMode;
using sru::testing::ShimMode;

constexpr int kMaxCount = 260;  // more than Predict has parts of a row for its candidates
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows of logits and what is asked of them.
struct Question {
  int vocabulary = 0;
  int rows = 0;
  std::vector<float> logits;  // [row][stride]
  std::vector<float> bias;
  std::vector<int32_t> targets, counts, never;
  std::vector<int32_t> choices, choice_offsets;  // one list for each row
  std::vector<Sampling> sampling;
  std::vector<Adjustment> adjustments;
  std::vector<int32_t> adjustment_offsets;

  int stride() const { return (vocabulary + 7) / 8 * 8; }
};

struct Answers {
  std::vector<float> log_prob;
  std::vector<Candidate> candidates, picked;
  int64_t clusters = 0;

  std::vector<unsigned char> Bytes() const {
    std::vector<unsigned char> bytes;
    const auto add = [&](const auto& values) {
      const auto* const begin = reinterpret_cast<const unsigned char*>(values.data());
      bytes.insert(bytes.end(), begin, begin + values.size() * sizeof(values[0]));
    };
    add(log_prob);
    add(candidates);
    add(picked);
    return bytes;
  }
};

// `bucket` rows are launched, of which those of the question exist.
Answers Ask(Question question, int bucket) {
  HostDeviceControl control;
  Answers answers;
  answers.log_prob.assign(question.rows, -1.0f);
  answers.candidates.assign(size_t{kMaxCount} * question.rows, {-2, -1.0f});
  answers.picked.assign(question.rows, {-2, -1.0f});
  const PredictHeader header = {{question.rows, {}}, kMaxCount, 0, answers.candidates.data()};
  std::vector<float> unadjusted(question.adjustments.size());
  std::vector<int32_t> own_row(question.rows);
  for (int row = 0; row < question.rows; ++row) own_row[row] = row;
  PredictArgs args{};
  args.header = &header;
  args.max_rows = bucket;
  args.logits = question.logits.data();
  args.logit_stride = question.stride();
  args.vocabulary_size = question.vocabulary;
  args.bias = question.bias.empty() ? nullptr : question.bias.data();
  args.targets = question.targets.data();
  args.counts = question.counts.data();
  args.never = question.never.data();
  args.num_never = static_cast<int>(question.never.size());
  args.log_prob = answers.log_prob.data();
  if (!question.choices.empty()) {
    args.rows = args.row_sequence = args.choices_map = own_row.data();
    args.choices = question.choices.data();
    args.choice_offsets = question.choice_offsets.data();
  }
  if (!question.sampling.empty()) {
    args.sampling = question.sampling.data();
    args.adjustment_offsets = question.adjustment_offsets.data();
    args.adjustments = question.adjustments.data();
    args.unadjusted = unadjusted.data();
    args.picked = answers.picked.data();
  }
  {
    const std::unique_ptr<Device> device = MakeHostDevice({}, &control);
    std::unique_ptr<Stream> stream;
    EXPECT_TRUE(device->CreateStream(nullptr, &stream).ok());
    EXPECT_TRUE(stream->RunOperation(args).ok());
    EXPECT_TRUE(stream->Wait().ok());
  }
  answers.clusters = control.clusters;
  return answers;
}

// Asks in every mode: few rows, each by a cluster, and the same rows in a bucket of many.
void ExpectSameBits(const Question& question, const std::string& name) {
  SCOPED_TRACE(name + ", " + std::to_string(question.vocabulary) + " symbols");
  const int few = MaxClusteredRows(/*num_multiprocessors=*/0);
  const Answers expected = Ask(question, few + 1);
  EXPECT_EQ(expected.clusters, 0);
  for (const ShimMode& mode : kShimModes) {
    SetShimMode(mode);
    const Answers by_cluster = Ask(question, few);
    EXPECT_EQ(by_cluster.clusters, few);
    EXPECT_TRUE(by_cluster.Bytes() == expected.Bytes())
        << "copies early " << mode.copies_early << ", reversed " << mode.threads_reversed;
  }
  SetShimMode(kShimModes[0]);
}

using LogitOf = std::function<float(int)>;

// A row for each kind of what may be asked.
Question QuestionOf(int vocabulary, const LogitOf& logit_of, bool picks) {
  Question question;
  question.vocabulary = vocabulary;
  const int part = RowPartSize<kLargePredictThreads>(vocabulary);
  const int last = vocabulary - 1;
  // Targets at the borders of parts.
  question.targets = {0, part - 1, part, 3 * part, last, -1, vocabulary / 2, 2 * part, -1};
  question.counts = {0, 1, 5, 60, 100, 2, 17, 0, 3};
  question.rows = static_cast<int>(question.targets.size());
  question.logits.assign(static_cast<size_t>(question.rows) * question.stride(), -kInfinity);
  for (int row = 0; row < question.rows; ++row) {
    for (int v = 0; v < vocabulary; ++v) {
      question.logits[static_cast<size_t>(row) * question.stride() + v] = logit_of(v);
    }
  }
  if (!picks) return question;
  constexpr uint64_t kMost = ~uint64_t{0};
  question.sampling = {{0.0f, 0, 0, 0, 1},
                       {1.0f, 0, 0, 0, kMost},
                       {1.5f, 40, 0, 0, kMost / 3},
                       {1.0f, vocabulary - 1, 0.9f, 0, kMost / 2},
                       {2.0f, 0, 0.5f, 0.01f, kMost / 7},
                       {1e-30f, vocabulary, 0.3f, 0, 5},
                       {1.0f, part + 7, 0.999f, 0, kMost - kMost / 9},
                       {1.0f, 0, 1e-6f, 0, 0},
                       {30.0f, 3 * part, 0, 0.3f, kMost / 5 * 4}};
  question.adjustment_offsets = {0};
  for (int row = 0; row < question.rows; ++row) {
    for (int i = 0; i < row * row * 9; ++i) {
      const auto id = static_cast<int32_t>(int64_t{i} * vocabulary / (row * row * 9));
      question.adjustments.push_back(
          {id, 1.0f + static_cast<float>(i % 2), i % 5 == 0 ? -kInfinity : 0.5f * (i % 4)});
    }
    question.adjustment_offsets.push_back(static_cast<int32_t>(question.adjustments.size()));
  }
  return question;
}

// Around 1.
std::vector<float> LogitsAroundOne(int count, unsigned seed) {
  return testing::RandomValues(count, seed, 3.0f, 1.0f);
}

// Just above kSmallVocabulary, no multiple of 2048, and too many for the shared memory of one
// block.
constexpr int kVocabularies[] = {kSmallVocabulary + 1, 3 * 2048 * 3 + 77, 60001};

TEST(CudaClusterTest, RandomLogits) {
  for (const int vocabulary : kVocabularies) {
    const std::vector<float> logits = LogitsAroundOne(vocabulary, 1);
    for (const bool picks : {false, true}) {
      Question question = QuestionOf(
          vocabulary, [&](int v) { return logits[v]; }, picks);
      ExpectSameBits(question, "no bias");
      question.bias = LogitsAroundOne(vocabulary, 2);
      question.never = {0, vocabulary / 3, vocabulary - 1};
      ExpectSameBits(question, "with bias and symbols that are no candidates");
    }
  }
}

TEST(CudaClusterTest, EqualLogitsAndLogitsFarApart) {
  const std::vector<float> logits = LogitsAroundOne(kVocabularies[0], 3);
  const struct {
    const char* name;
    int vocabulary;
    LogitOf logit_of;
  } kCases[] = {
      {"all equal", kVocabularies[1], [](int) { return -2.0f; }},
      {"in three groups", kVocabularies[1], [](int v) { return static_cast<float>(v % 3); }},
      {"zeros", kVocabularies[1], [](int v) { return v % 2 == 0 ? -0.0f : 0.0f; }},
      {"far", kVocabularies[0], [&](int v) { return logits[v] * 1e30f; }},
      {"one", kVocabularies[0], [](int v) { return v == 8000 ? 3e38f : -3e38f; }},
      {"none", kVocabularies[0], [](int v) { return v == 5 ? 1.0f : -kInfinity; }},
  };
  for (const auto& c : kCases) {
    for (const bool picks : {false, true}) {
      ExpectSameBits(QuestionOf(c.vocabulary, c.logit_of, picks), c.name);
    }
  }
}

// More keys are above the 200th best part than are sorted at a time, so candidates are found one
// after the other.
TEST(CudaClusterTest, TheBestMayAllBeInAFewThreadsParts) {
  const int vocabulary = kVocabularies[0];
  const int part = RowPartSize<kLargePredictThreads>(vocabulary);
  const auto logit_of = [](int v) {
    return -static_cast<float>(v % part % 256) - 1e-4f * static_cast<float>(v / 256);
  };
  Question question = QuestionOf(vocabulary, logit_of, false);
  question.counts[0] = kMaxCount;
  ExpectSameBits(question, "parts");
}

TEST(CudaClusterTest, ARowAlone) {
  const int vocabulary = kVocabularies[0];
  const std::vector<float> logits = LogitsAroundOne(vocabulary, 6);
  Question question = QuestionOf(
      vocabulary, [&](int v) { return logits[v]; }, true);
  const Answers all = Ask(question, 17);
  // The third row.
  question.rows = 1;
  for (auto* const values : {&question.targets, &question.counts}) (*values)[0] = (*values)[2];
  question.sampling[0] = question.sampling[2];
  question.adjustment_offsets = {question.adjustment_offsets[2], question.adjustment_offsets[3]};
  const Answers one = Ask(question, 1);
  EXPECT_EQ(one.clusters, 1);
  EXPECT_EQ(one.log_prob[0], all.log_prob[2]);
  EXPECT_EQ(one.picked[0].id, all.picked[2].id);
  EXPECT_EQ(one.picked[0].log_prob, all.picked[2].log_prob);
}

TEST(CudaClusterTest, ListsOfChoices) {
  const int vocabulary = kVocabularies[1];
  const std::vector<float> logits = LogitsAroundOne(vocabulary, 4);
  Question question = QuestionOf(
      vocabulary, [&](int v) { return logits[v]; }, false);
  question.choice_offsets = {0};
  for (int row = 0; row < question.rows; ++row) {
    for (int v = row; v < vocabulary; v += 1 + row * row * 300) question.choices.push_back(v);
    question.choice_offsets.push_back(static_cast<int32_t>(question.choices.size()));
  }
  ExpectSameBits(question, "no bias");
  question.bias = LogitsAroundOne(vocabulary, 5);
  ExpectSameBits(question, "with bias");
}

// A part of such a row has no room in a block's shared memory: one block reads the row from global
// memory.
TEST(CudaClusterTest, RowsThatAreTooLongForAClusterArePickedByOneBlock) {
  const int vocabulary = 230000;
  const Question question = QuestionOf(
      vocabulary, [](int v) { return static_cast<float>(v % 1001) / 100; }, true);
  const Answers few = Ask(question, 16);
  EXPECT_EQ(few.clusters, 0);
  EXPECT_TRUE(few.Bytes() == Ask(question, 17).Bytes());
}

}  // namespace
}  // namespace sru::kernels::cuda
