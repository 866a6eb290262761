// The program of a language model on one backend, against the published package: log-probabilities
// and states of the cases in tests/golden/language_model and of those that export_shared_cases.py
// has exported (README.md beside this file). Also: the same bits alone, in a batch, and cut into
// chunks of any size with the state carried.
#include "models/language_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "tests/golden/greedy_continuation.h"
#include "tests/golden/model_fixture.h"

namespace sru {
namespace {

namespace fs = std::filesystem;

// Of float32 log-probabilities and states. In bfloat16 weights and the rows between layers have 8
// bits, so the states of deep stacks differ in the second digit.
constexpr float kTolerance = 5e-5f;
constexpr float kBFloat16Tolerance = 0.15f;

constexpr const char* kCommittedCases = "tests/golden/language_model";
// Written by export_shared_cases.py, which is a test that runs before this one.
constexpr const char* kSharedCases = SRU_SHARED_CASES;

// One sequence: what goes in and what was recorded.
struct Sequence {
  std::vector<int32_t> tokens;
  bool carried = false;
  kernels::StateArena::State state;  // of a carried one: c of all layers, then h
  std::vector<float> log_probs;      // [tokens], 0 where there is none
  std::vector<float> final_state;    // c of all layers, then h
};

struct Scored {
  std::vector<float> log_probs;
  kernels::StateArena::State state;
};

class LanguageModelTest : public testing::ModelTest {
 protected:
  // A version's directory and the file of expected values.
  void Load(const std::string& directory, const std::string& expected_path) {
    ASSERT_NO_FATAL_FAILURE(LoadModel(directory));
    ASSERT_NE(model_->As<models::LanguageModel>(), nullptr);
    ASSERT_NO_FATAL_FAILURE(ReadExpected(expected_path));
    const auto num_sequences = static_cast<int>(sequences_.size());
    MakeWorkspace(models::LanguageModelLimits(*model_->As<models::LanguageModel>(),
                                              std::max(total_tokens_, 1), num_sequences,
                                              num_sequences, 0));
    MakeArena();
  }

  void CheckCase() {
    std::vector<int> all(sequences_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::vector<Scored> together = Score(all, 0);
    float worst = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      SCOPED_TRACE("sequence " + std::to_string(i));
      const Sequence& sequence = sequences_[i];
      worst = std::max(worst, ExpectNear(sequence.log_probs, together[i].log_probs));
      ExpectNear(sequence.final_state, together[i].state.values);
      ExpectSameBits(together[i], Score({static_cast<int>(i)}, 0)[0], "alone");
      for (const int chunk : {1, 3, 7}) {
        ExpectSameBits(together[i], Score({static_cast<int>(i)}, chunk)[0],
                       "in chunks of " + std::to_string(chunk));
      }
    }
    RecordProperty("largest_difference", std::to_string(worst));
    ExpectGreedy();
  }

 private:
  const float* Floats(const models::SafetensorsFile& file, const std::string& name) {
    const models::TensorView* const view = file.Find(name);
    return view == nullptr ? nullptr : static_cast<const float*>(view->data);
  }

  void ReadExpected(const std::string& path) {
    auto file = models::SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const models::TensorView* const lengths = (*file)->Find("input.lengths");
    const models::TensorView* const tokens = (*file)->Find("input.tokens");
    ASSERT_TRUE(lengths != nullptr && tokens != nullptr);
    const float* const log_probs = Floats(**file, "expected.log_probs");
    const float* const c = Floats(**file, "expected.c");
    const float* const h = Floats(**file, "expected.h");
    const float* const first_c = Floats(**file, "input.c");
    const float* const first_h = Floats(**file, "input.h");
    ASSERT_TRUE(log_probs != nullptr && c != nullptr && h != nullptr);
    const auto& fields = model_->As<models::LanguageModel>()->program.fields;
    const auto c_size = static_cast<size_t>(fields[model_->As<models::LanguageModel>()->c].width);
    const auto h_size =
        static_cast<size_t>(fields[model_->As<models::LanguageModel>()->last_h].width);
    const auto* ids = static_cast<const int64_t*>(tokens->data);
    if (const models::TensorView* const greedy = (*file)->Find("expected.greedy")) {
      const auto* const symbols = static_cast<const int64_t*>(greedy->data);
      for (int64_t b = 0; b < greedy->shape[0]; ++b) {
        expected_greedy_.emplace_back(symbols + b * greedy->shape[1],
                                      symbols + (b + 1) * greedy->shape[1]);
      }
    }
    total_tokens_ = 0;
    sequences_.clear();
    for (int64_t b = 0; b < lengths->shape[0]; ++b) {
      const auto length = static_cast<int>(static_cast<const int64_t*>(lengths->data)[b]);
      Sequence sequence;
      sequence.tokens.assign(ids + total_tokens_, ids + total_tokens_ + length);
      sequence.log_probs.assign(log_probs + total_tokens_, log_probs + total_tokens_ + length);
      sequence.final_state.assign(c + b * c_size, c + (b + 1) * c_size);
      sequence.final_state.insert(sequence.final_state.end(), h + b * h_size, h + (b + 1) * h_size);
      sequence.carried = first_c != nullptr;
      if (sequence.carried) {
        sequence.state.rows = {1, 1};
        sequence.state.values.assign(first_c + b * c_size, first_c + (b + 1) * c_size);
        sequence.state.values.insert(sequence.state.values.end(), first_h + b * h_size,
                                     first_h + (b + 1) * h_size);
      }
      total_tokens_ += length;
      sequences_.push_back(std::move(sequence));
    }
  }

  // Scores these sequences in one batch; with a chunk > 0 in a batch per chunk of that many tokens.
  std::vector<Scored> Score(const std::vector<int>& indices, int chunk) {
    std::vector<Scored> scored(indices.size());
    std::vector<kernels::StateArena::Slot> slots(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      EXPECT_TRUE(arena_->Allocate(&slots[i]).ok());
      if (sequences_[indices[i]].carried) {
        EXPECT_TRUE(arena_->Put(slots[i], sequences_[indices[i]].state).ok());
      }
    }
    size_t longest = 0;
    for (const int i : indices) longest = std::max(longest, sequences_[i].tokens.size());
    const size_t step = chunk == 0 ? longest : chunk;
    for (size_t begin = 0; begin < longest; begin += step) {
      RunChunk(indices, slots, begin, step, &scored);
    }
    for (size_t i = 0; i < indices.size(); ++i) {
      EXPECT_TRUE(arena_->Take(slots[i], &scored[i].state).ok());
      arena_->Free(slots[i]);
    }
    return scored;
  }

  void RunChunk(const std::vector<int>& indices,
                const std::vector<kernels::StateArena::Slot>& slots, size_t begin, size_t step,
                std::vector<Scored>* scored) {
    const models::LanguageModel& model = *model_->As<models::LanguageModel>();
    std::vector<int32_t> offsets = {0}, ids, targets;
    std::vector<kernels::StateArena::Slot> present;
    std::vector<size_t> of;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Sequence& sequence = sequences_[indices[i]];
      if (begin >= sequence.tokens.size()) continue;
      const size_t end = std::min(begin + step, sequence.tokens.size());
      for (size_t t = begin; t < end; ++t) {
        ids.push_back(sequence.tokens[t]);
        targets.push_back(t == 0 && !sequence.carried ? -1 : sequence.tokens[t]);
      }
      offsets.push_back(static_cast<int32_t>(ids.size()));
      present.push_back(slots[i]);
      of.push_back(i);
    }
    std::vector<float> log_probs(ids.size(), -1.0f);
    std::vector<kernels::AxisBatch> axes(model.program.axes.size());
    axes[model.tokens].num_sequences = static_cast<int>(present.size());
    axes[model.tokens].offsets = offsets.data();
    axes[model.tokens].slots = present.data();
    std::vector<kernels::InputBatch> inputs(model.program.inputs.size());
    inputs[model.ids].ids = ids.data();
    inputs[model.targets].ids = targets.data();
    const std::vector<int32_t> counts(ids.size(), 0);
    inputs[model.counts].ids = counts.data();
    std::vector<kernels::OutputBatch> outputs(model.program.outputs.size());
    outputs[model.log_probs].values = log_probs.data();
    ASSERT_NO_FATAL_FAILURE(RunProgram(axes, inputs, outputs));
    for (size_t i = 0; i < of.size(); ++i) {
      std::vector<float>& to = (*scored)[of[i]].log_probs;
      to.insert(to.end(), log_probs.begin() + offsets[i], log_probs.begin() + offsets[i + 1]);
    }
  }

  // After each sequence, with its state in a slot and no token in the first batch.
  void ExpectGreedy() {
    if (expected_greedy_.empty() || tested_.dtype != kernels::DataType::kFloat32) return;
    std::vector<kernels::StateArena::Slot> slots(sequences_.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      ASSERT_TRUE(arena_->Allocate(&slots[i]).ok());
      kernels::StateArena::State state;
      state.rows = {1, 1};
      state.values = sequences_[i].final_state;
      ASSERT_TRUE(arena_->Put(slots[i], state).ok());
    }
    const auto steps = static_cast<int>(expected_greedy_[0].size());
    const std::vector<std::vector<int32_t>> nothing(slots.size());
    const auto picks =
        testing::ContinueGreedily(model_->program(), *model_->As<models::LanguageModel>(), nothing,
                                  steps, arena_.get(), slots, workspace_.get());
    for (size_t i = 0; i < slots.size(); ++i) {
      std::vector<int32_t> ids;
      for (const kernels::Candidate& pick : picks[i]) ids.push_back(pick.id);
      EXPECT_EQ(ids, expected_greedy_[i]) << "after sequence " << i;
      arena_->Free(slots[i]);
    }
  }

  float ExpectNear(const std::vector<float>& expected, const std::vector<float>& found) {
    const bool bfloat16 = tested_.dtype == kernels::DataType::kBFloat16;
    const float tolerance = bfloat16 ? kBFloat16Tolerance : kTolerance;
    float worst = 0;
    EXPECT_EQ(expected.size(), found.size());
    if (expected.size() != found.size()) return worst;
    for (size_t i = 0; i < expected.size(); ++i) {
      const float difference = std::abs(expected[i] - found[i]);
      worst = std::max(worst, difference);
      EXPECT_LE(difference, tolerance * std::max(1.0f, bfloat16 ? std::abs(expected[i]) : 1.0f))
          << "value " << i << ": expected " << expected[i] << ", found " << found[i];
    }
    return worst;
  }

  static void ExpectSameBits(const Scored& expected, const Scored& found, const std::string& what) {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(expected.log_probs, found.log_probs)) << "log-probabilities " << what;
    EXPECT_TRUE(same(expected.state.values, found.state.values)) << "state " << what;
  }

  std::vector<Sequence> sequences_;
  std::vector<std::vector<int32_t>> expected_greedy_;  // of each sequence, if there are any
  int total_tokens_ = 0;
};

class CommittedCaseTest : public LanguageModelTest,
                          public ::testing::WithParamInterface<std::string> {};

TEST_P(CommittedCaseTest, EqualsThePublishedPackage) {
  const fs::path directory = fs::path(kCommittedCases) / GetParam();
  ASSERT_NO_FATAL_FAILURE(Load(directory, directory / "expected.safetensors"));
  CheckCase();
}

INSTANTIATE_TEST_SUITE_P(Cases, CommittedCaseTest,
                         ::testing::ValuesIn(testing::Folders(kCommittedCases)),
                         [](const auto& info) { return info.param; });
// The test below reports an empty directory.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommittedCaseTest);

TEST(CommittedCasesTest, AllAreThere) { EXPECT_EQ(testing::Folders(kCommittedCases).size(), 4u); }

class SharedCaseTest : public LanguageModelTest,
                       public ::testing::WithParamInterface<std::string> {};

TEST_P(SharedCaseTest, EqualsTheReference) {
  const fs::path directory = fs::path(kSharedCases) / GetParam() / "1";
  ASSERT_NO_FATAL_FAILURE(Load(directory, directory / "expected.safetensors"));
  CheckCase();
}

INSTANTIATE_TEST_SUITE_P(Cases, SharedCaseTest, ::testing::ValuesIn(testing::Folders(kSharedCases)),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedCaseTest);

TEST(SharedCasesTest, AreThere) {
  if (!fs::exists(kSharedCases)) {
    GTEST_SKIP() << kSharedCases << " is absent; the test export_shared_language_models says why";
  }
  EXPECT_EQ(testing::Folders(kSharedCases).size(), 6u);
}

}  // namespace
}  // namespace sru
