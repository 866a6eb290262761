// What translations have in common, whatever the model, on one backend: the same bits alone and in
// any batch, and memory that is the caches and states of the hypotheses.
#include "tests/testing/translation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/translator.h"
#include "tests/golden/model_fixture.h"
#include "tests/testing/translator_files.h"

namespace sru {
namespace {

using kernels::kStatePageRows;
using Slot = kernels::StateArena::Slot;

class TranslationTest : public testing::ModelTest {
 protected:
  void SetUp() override {
    config_ = models::SmallTranslatorConfig();
    config_.erase("preprocessing");
    config_["translator"]["decoder_layers"] = 2;
    config_["translator"]["d_sru"] = 32;  // a page of c is not rounded up
    config_["translator"]["bidirectional_encoder"] = true;
    config_["translator"]["shared_embeddings"] = false;
    config_["translator"]["target_vocabulary"] = 83;
    ASSERT_NO_FATAL_FAILURE(Load());
  }

  void Load() {
    models::WriteTranslator(directory_, "m", config_, models::TranslatorTensors(config_));
    ASSERT_NO_FATAL_FAILURE(LoadModel(directory_.path("m")));
    kernels::ProgramLimits limits =
        models::TranslatorLimits(translator(), 1000, 32, 2000, 32 * kMaxBeam);
    limits.max_attention_values = 100000;
    MakeWorkspace(limits);
    MakeArena();
  }

  const models::Translator& translator() const { return *model_->As<models::Translator>(); }
  const models::TranslatorConfig& config() const { return model_->config().translator; }

  testing::TranslationDriver Driver() {
    return {model_->program(), translator(), config(), arena_.get(), workspace_.get()};
  }

  std::vector<int32_t> Ids(int length, int vocabulary) {
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % vocabulary);
    return ids;
  }

  // Feeds tokens, as many to each slot: those of a source, or of a target.
  void Run(bool encodes, const std::vector<int32_t>& ids, const std::vector<Slot>& slots) {
    std::vector<kernels::AxisBatch> axes(translator().program.axes.size());
    std::vector<kernels::InputBatch> inputs(translator().program.inputs.size());
    std::vector<int32_t> offsets = {0};
    const auto each = static_cast<int32_t>(ids.size() / slots.size());
    for (size_t i = 0; i < slots.size(); ++i) offsets.push_back(offsets.back() + each);
    kernels::AxisBatch& axis = axes[encodes ? translator().source : translator().target];
    axis = {static_cast<int>(slots.size()), offsets.data(), slots.data()};
    inputs[encodes ? translator().source_ids : translator().target_ids].ids = ids.data();
    const std::vector<kernels::OutputBatch> outputs(translator().program.outputs.size());
    RunProgram(axes, inputs, outputs);
  }

  size_t used_bytes() const { return arena_->stats().used_bytes; }

  // Bytes of a cache of keys and values of all layers.
  size_t CacheBytes(int tokens) const {
    const int rows = (tokens + kStatePageRows - 1) / kStatePageRows * kStatePageRows;
    return sizeof(float) * 2 * rows * config().d_model * config().decoder_layers;
  }
  size_t StateBytes() const { return sizeof(float) * config().d_sru * config().decoder_layers; }

  models::TempDirectory directory_;
  nlohmann::json config_;
  std::minstd_rand random_{7};
};

TEST_F(TranslationTest, ASentenceHasTheSameBitsAloneAndInAnyBatch) {
  std::vector<testing::Sentence> sentences;
  for (const int length : {1, 40, 2, 17, 16, 3, 90, 5}) {
    testing::Sentence sentence;
    sentence.source = Ids(length, config().source_vocabulary);
    const int beam = 1 + static_cast<int>(random_() % 6);
    sentence.search = {beam, 1 + static_cast<int>(random_() % beam), models::LengthPenalty::kGnmt,
                       0.6, 4 + static_cast<int>(random_() % 20)};
    sentence.prefix = Ids(static_cast<int>(random_() % 4), config().target_vocabulary);
    sentences.push_back(sentence);
  }
  // As many candidates as there can be.
  sentences.push_back({Ids(6, config().source_vocabulary),
                       {kMaxBeam, kMaxBeam, models::LengthPenalty::kPower, 1, 6},
                       {}});
  testing::TranslationDriver driver = Driver();
  const auto together = driver.Translate(sentences, /*stagger=*/0);
  const auto later = driver.Translate(sentences, /*stagger=*/3);
  ASSERT_EQ(together.size(), sentences.size());
  for (size_t i = 0; i < sentences.size(); ++i) {
    SCOPED_TRACE("sentence " + std::to_string(i));
    for (const testing::Translation& other : {later[i], driver.Translate({sentences[i]}, 0)[0]}) {
      const testing::Translation& found = together[i];
      ASSERT_EQ(found.hypotheses.size(), other.hypotheses.size());
      for (size_t h = 0; h < found.hypotheses.size(); ++h) {
        EXPECT_EQ(found.hypotheses[h].tokens, other.hypotheses[h].tokens);
        EXPECT_EQ(found.hypotheses[h].log_prob, other.hypotheses[h].log_prob);
        EXPECT_EQ(found.hypotheses[h].finished, other.hypotheses[h].finished);
        ASSERT_EQ(found.alignments[h].size(), other.alignments[h].size());
        EXPECT_EQ(found.alignments[h].size(),
                  found.hypotheses[h].tokens.size() * sentences[i].source.size());
        if (found.alignments[h].empty()) continue;
        EXPECT_EQ(std::memcmp(found.alignments[h].data(), other.alignments[h].data(),
                              found.alignments[h].size() * sizeof(float)),
                  0);
      }
    }
  }
  EXPECT_EQ(arena_->stats().slots, 0);
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(TranslationTest, AForcedPrefixIsWhatTheSearchFindsByItself) {
  const std::vector<int32_t> source = Ids(9, config().source_vocabulary);
  testing::TranslationDriver driver = Driver();
  const models::SearchOptions greedy = {1, 1, models::LengthPenalty::kNone, 0, 20};
  const testing::Translation whole = driver.Translate({{source, greedy, {}}}, 0)[0];
  ASSERT_GT(whole.hypotheses[0].tokens.size(), 3u);
  std::vector<int32_t> prefix(whole.hypotheses[0].tokens.begin(),
                              whole.hypotheses[0].tokens.begin() + 3);
  const testing::Translation forced = driver.Translate({{source, greedy, prefix}}, 0)[0];
  EXPECT_EQ(forced.hypotheses[0].tokens, whole.hypotheses[0].tokens);
  EXPECT_NEAR(forced.hypotheses[0].log_prob, whole.hypotheses[0].log_prob, 1e-9);
  EXPECT_EQ(forced.alignments[0], whole.alignments[0]);
}

// docs/operations.md says what a hypothesis costs.
TEST_F(TranslationTest, MemoryIsTheCachesAndStatesOfTheHypotheses) {
  constexpr int kSource = 37;
  constexpr int kTarget = 20;
  constexpr int kHypotheses = 5;
  Slot sentence = kernels::StateArena::kNoSlot;
  ASSERT_TRUE(arena_->Allocate(&sentence).ok());
  Run(/*encodes=*/true, Ids(kSource, config().source_vocabulary), {sentence});
  EXPECT_EQ(used_bytes(), CacheBytes(kSource));
  Run(/*encodes=*/false, Ids(kTarget, config().target_vocabulary), {sentence});
  const size_t one = CacheBytes(kSource) + CacheBytes(kTarget) + StateBytes();
  EXPECT_EQ(used_bytes(), one);

  // Copies cost nothing until they differ. Then each has its own page of what is not full, and its
  // c.
  std::vector<Slot> slots = {sentence};
  for (int i = 1; i < kHypotheses; ++i) {
    slots.push_back(kernels::StateArena::kNoSlot);
    ASSERT_TRUE(arena_->Copy(sentence, &slots.back()).ok());
  }
  EXPECT_EQ(used_bytes(), one);
  Run(/*encodes=*/false, Ids(kHypotheses, config().target_vocabulary), slots);
  EXPECT_EQ(used_bytes(),
            one + (kHypotheses - 1) * (CacheBytes(kTarget % kStatePageRows + 1) + StateBytes()));

  // All of them go on from one: what the others had is given up.
  const std::vector<int> parents(kHypotheses, 3);
  ASSERT_TRUE(arena_->Reorder(slots.data(), parents.data(), kHypotheses).ok());
  EXPECT_EQ(used_bytes(), one);
  for (int i = 1; i < kHypotheses; ++i) arena_->Free(slots[i]);
  EXPECT_EQ(used_bytes(), one);
  arena_->Free(slots[0]);
  EXPECT_EQ(used_bytes(), 0u);
}

}  // namespace
}  // namespace sru
