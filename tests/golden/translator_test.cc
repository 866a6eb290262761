// The program of a translator on one backend, against the reference: the cases of
// golden_systems/translator that export_shared_cases.py has exported (README.md beside this file).
// Whole rows of log-probabilities, encoder outputs, alignments and states; every recorded greedy
// and beam search; the same bits alone, in a batch, step by step, and when sentences join at
// different steps.
#include "models/translator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/enum_names.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_fixture.h"
#include "tests/testing/translation.h"

namespace sru {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Of float32 log-probabilities, and of everything else but bfloat16.
constexpr float kTolerance = 1e-4f;
// Relative for values above 1. The weights have 8 bits, and so have the rows that they multiply.
constexpr float kBFloat16Tolerance = 0.15f;

// Written by export_shared_cases.py, which is a test that runs before this one.
constexpr const char* kSharedCases = SRU_SHARED_CASES;

// What a sentence gives when its target is known.
struct Forced {
  std::vector<float> encoder_output;  // [source tokens][d_model]
  std::vector<float> log_probs;       // [target tokens][vocabulary]
  std::vector<float> alignment;       // [target tokens][source tokens]
  std::vector<float> c;               // [layers][d_sru], after the last target token
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class TranslatorTest : public testing::ModelTest,
                       public ::testing::WithParamInterface<std::string> {
 protected:
  using Slot = kernels::StateArena::Slot;

  struct Sentence {
    std::vector<int32_t> source;
    std::vector<int32_t> target;  // BOS first
    Forced expected;
  };

  void SetUp() override {
    directory_ = fs::path(kSharedCases) / GetParam() / "1";
    ASSERT_NO_FATAL_FAILURE(LoadModel(directory_));
    ASSERT_NE(model_->As<models::Translator>(), nullptr);
    // Whole rows of log-probabilities are candidates.
    ASSERT_EQ(translator().max_candidates, config().target_vocabulary);
    ASSERT_NO_FATAL_FAILURE(ReadExpected());

    int tokens = 1;
    for (const Sentence& sentence : sentences_) {
      tokens += static_cast<int>(std::max(sentence.source.size(), sentence.target.size()));
    }
    kernels::ProgramLimits limits =
        models::TranslatorLimits(translator(), kMaxSentences * tokens, kMaxSentences,
                                 kMaxSentences * tokens, kMaxSentences * 8);
    limits.max_attention_values = int64_t{kMaxSentences} * tokens * tokens;
    MakeWorkspace(limits);
    MakeArena();
  }

  const models::Translator& translator() const { return *model_->As<models::Translator>(); }
  const models::TranslatorConfig& config() const { return model_->config().translator; }
  bool is_bfloat16() const { return tested_.dtype == kernels::DataType::kBFloat16; }

  // A batch of these sentences: all sources in one run, then the targets, `step` tokens per run.
  std::vector<Forced> Force(const std::vector<int>& indices, size_t step) {
    std::vector<Forced> forced(indices.size());
    std::vector<Slot> slots(indices.size());
    for (Slot& slot : slots) EXPECT_TRUE(arena_->Allocate(&slot).ok());
    Encode(indices, slots, &forced);
    size_t longest = 0;
    for (const int i : indices) longest = std::max(longest, sentences_[i].target.size());
    for (size_t begin = 0; begin < longest; begin += step) {
      Decode(indices, slots, begin, step, &forced);
    }
    for (size_t i = 0; i < indices.size(); ++i) {
      TakeC(slots[i], &forced[i].c);
      arena_->Free(slots[i]);
    }
    return forced;
  }

  void ExpectNear(const std::vector<float>& expected, const std::vector<float>& found,
                  const char* what) {
    ASSERT_EQ(expected.size(), found.size()) << what;
    for (size_t i = 0; i < expected.size(); ++i) {
      const float difference = std::abs(expected[i] - found[i]);
      if (!is_bfloat16()) worst_ = std::max(worst_, difference);
      const float tolerance =
          is_bfloat16() ? kBFloat16Tolerance * std::max(1.0f, std::abs(expected[i])) : kTolerance;
      ASSERT_LE(difference, tolerance) << what << " " << i << ": expected " << expected[i];
    }
  }

  static void ExpectSameBits(const Forced& a, const Forced& b, const std::string& what) {
    EXPECT_TRUE(SameBits(a.encoder_output, b.encoder_output)) << "encoder output " << what;
    EXPECT_TRUE(SameBits(a.log_probs, b.log_probs)) << "log-probabilities " << what;
    EXPECT_TRUE(SameBits(a.alignment, b.alignment)) << "alignment " << what;
    EXPECT_TRUE(SameBits(a.c, b.c)) << "c " << what;
  }

  static constexpr int kMaxSentences = 16;

  fs::path directory_;
  std::vector<Sentence> sentences_;
  float worst_ = 0;

 private:
  void ReadExpected() {
    auto file = models::SafetensorsFile::Open(directory_ / "expected.safetensors");
    ASSERT_TRUE(file.ok()) << file.status();
    const auto integers = [&](const char* name) {
      const models::TensorView* const view = (*file)->Find(name);
      EXPECT_NE(view, nullptr) << name;
      return static_cast<const int64_t*>(view->data);
    };
    const auto floats = [&](const char* name) {
      const models::TensorView* const view = (*file)->Find(name);
      EXPECT_NE(view, nullptr) << name;
      return static_cast<const float*>(view->data);
    };
    const models::TensorView* const offsets = (*file)->Find("source.offsets");
    ASSERT_NE(offsets, nullptr);
    const int64_t count = offsets->shape[0] - 1;
    const int64_t* const source = integers("source.ids");
    const int64_t* const source_offsets = integers("source.offsets");
    const int64_t* const target = integers("target.ids");
    const int64_t* const target_offsets = integers("target.offsets");
    const int64_t* const alignment_offsets = integers("decoder.alignment_offsets");
    const float* const alignment = floats("decoder.alignment");
    const float* const encoded = floats("encoder.output");
    const float* const log_probs = floats("decoder.log_probs");
    const float* const c = floats("decoder.c");
    const int64_t width = config().d_model;
    const int64_t vocabulary = config().target_vocabulary;
    const int64_t d_sru = config().d_sru;
    for (int64_t b = 0; b < count; ++b) {
      Sentence sentence;
      sentence.source.assign(source + source_offsets[b], source + source_offsets[b + 1]);
      sentence.target.assign(target + target_offsets[b], target + target_offsets[b + 1]);
      Forced& expected = sentence.expected;
      expected.encoder_output.assign(encoded + source_offsets[b] * width,
                                     encoded + source_offsets[b + 1] * width);
      expected.log_probs.assign(log_probs + target_offsets[b] * vocabulary,
                                log_probs + target_offsets[b + 1] * vocabulary);
      expected.alignment.assign(alignment + alignment_offsets[b],
                                alignment + alignment_offsets[b + 1]);
      for (int i = 0; i < config().decoder_layers; ++i) {
        const float* const row = c + (i * count + b) * d_sru;
        expected.c.insert(expected.c.end(), row, row + d_sru);
      }
      sentences_.push_back(std::move(sentence));
    }
  }

  void Encode(const std::vector<int>& indices, const std::vector<Slot>& slots,
              std::vector<Forced>* forced) {
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> ids;
    for (const int i : indices) {
      ids.insert(ids.end(), sentences_[i].source.begin(), sentences_[i].source.end());
      offsets.push_back(static_cast<int32_t>(ids.size()));
    }
    std::vector<kernels::AxisBatch> axes(translator().program.axes.size());
    axes[translator().source] = {static_cast<int>(indices.size()), offsets.data(), slots.data()};
    std::vector<kernels::InputBatch> inputs(translator().program.inputs.size());
    inputs[translator().source_ids].ids = ids.data();
    std::vector<kernels::OutputBatch> outputs(translator().program.outputs.size());
    const int width = config().d_model;
    std::vector<float> encoded(ids.size() * width);
    outputs[translator().encoder_output].values = encoded.data();
    ASSERT_NO_FATAL_FAILURE(RunProgram(axes, inputs, outputs));
    for (size_t i = 0; i < indices.size(); ++i) {
      (*forced)[i].encoder_output.assign(
          encoded.begin() + static_cast<std::ptrdiff_t>(offsets[i]) * width,
          encoded.begin() + static_cast<std::ptrdiff_t>(offsets[i + 1]) * width);
    }
  }

  void Decode(const std::vector<int>& indices, const std::vector<Slot>& slots, size_t begin,
              size_t step, std::vector<Forced>* forced) {
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> ids;
    std::vector<Slot> present;
    std::vector<size_t> of;
    size_t attention = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const Sentence& sentence = sentences_[indices[i]];
      if (begin >= sentence.target.size()) continue;
      const size_t end = std::min(begin + step, sentence.target.size());
      ids.insert(ids.end(), sentence.target.begin() + static_cast<std::ptrdiff_t>(begin),
                 sentence.target.begin() + static_cast<std::ptrdiff_t>(end));
      offsets.push_back(static_cast<int32_t>(ids.size()));
      present.push_back(slots[i]);
      of.push_back(i);
      attention += (end - begin) * sentence.source.size();
    }
    std::vector<kernels::AxisBatch> axes(translator().program.axes.size());
    axes[translator().target] = {static_cast<int>(present.size()), offsets.data(), present.data()};
    std::vector<kernels::InputBatch> inputs(translator().program.inputs.size());
    const int vocabulary = config().target_vocabulary;
    const std::vector<int32_t> counts(ids.size(), vocabulary);
    inputs[translator().target_ids].ids = ids.data();
    inputs[translator().counts].ids = counts.data();
    std::vector<kernels::OutputBatch> outputs(translator().program.outputs.size());
    std::vector<kernels::Candidate> candidates(ids.size() * vocabulary);
    std::vector<float> weights(attention);
    outputs[translator().candidates].candidates = candidates.data();
    outputs[translator().alignment].values = weights.data();
    ASSERT_NO_FATAL_FAILURE(RunProgram(axes, inputs, outputs));
    auto next = weights.begin();
    for (size_t i = 0; i < of.size(); ++i) {
      Forced& result = (*forced)[of[i]];
      const auto rows = static_cast<size_t>(offsets[i + 1] - offsets[i]);
      const size_t first = result.log_probs.size();
      result.log_probs.resize(first + rows * vocabulary);
      for (size_t row = 0; row < rows; ++row) {
        const kernels::Candidate* const best = &candidates[(offsets[i] + row) * vocabulary];
        for (int v = 0; v < vocabulary; ++v) {
          result.log_probs[first + row * vocabulary + best[v].id] = best[v].log_prob;
        }
      }
      const auto end =
          next + static_cast<std::ptrdiff_t>(rows * sentences_[indices[of[i]]].source.size());
      result.alignment.insert(result.alignment.end(), next, end);
      next = end;
    }
  }

  // The states c of all layers.
  void TakeC(Slot slot, std::vector<float>* c) {
    kernels::StateArena::State state;
    ASSERT_TRUE(arena_->Take(slot, &state).ok());
    const auto& fields = translator().program.fields;
    size_t begin = 0;
    for (size_t field = 0; field < fields.size(); ++field) {
      const size_t size = static_cast<size_t>(state.rows[field]) * fields[field].width;
      for (const models::Translator::Layer& layer : translator().layers) {
        if (layer.c != static_cast<int>(field)) continue;
        c->insert(c->end(), state.values.begin() + static_cast<std::ptrdiff_t>(begin),
                  state.values.begin() + static_cast<std::ptrdiff_t>(begin + size));
      }
      begin += size;
    }
  }
};

TEST_P(TranslatorTest, EveryValueIsThatOfTheReference) {
  std::vector<int> all(sentences_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  constexpr size_t kWhole = 1000;
  const std::vector<Forced> together = Force(all, kWhole);
  const std::vector<Forced> by_step = Force(all, 1);
  for (size_t i = 0; i < sentences_.size(); ++i) {
    SCOPED_TRACE("sentence " + std::to_string(i));
    const Forced& expected = sentences_[i].expected;
    ExpectNear(expected.encoder_output, together[i].encoder_output, "encoder output");
    ExpectNear(expected.log_probs, together[i].log_probs, "log-probability");
    ExpectNear(expected.alignment, together[i].alignment, "alignment");
    ExpectNear(expected.c, together[i].c, "c");
    const auto index = static_cast<int>(i);
    ExpectSameBits(together[i], Force({index}, kWhole)[0], "alone");
    ExpectSameBits(together[i], by_step[i], "step by step");
    ExpectSameBits(together[i], Force({index}, 3)[0], "alone, three tokens at a time");
  }
  EXPECT_EQ(arena_->stats().used_bytes, 0u);
  RecordProperty("largest_difference", std::to_string(worst_));
}

// One that expected.json has recorded.
struct RecordedSearch {
  testing::Sentence sentence;
  json hypotheses;
  std::string name;
};

// Whether the same hypotheses were found, with the same alignments; their log-probabilities and
// scores must be near then.
bool IsRecorded(const RecordedSearch& search, const testing::Translation& found, float tolerance) {
  if (found.hypotheses.size() != search.hypotheses.size()) return false;
  for (size_t i = 0; i < found.hypotheses.size(); ++i) {
    const models::FoundHypothesis& hypothesis = found.hypotheses[i];
    const json& expected = search.hypotheses[i];
    if (hypothesis.tokens != expected["tokens"].get<std::vector<int32_t>>()) return false;
    if (hypothesis.finished != expected["finished"].get<bool>()) return false;
  }
  for (size_t i = 0; i < found.hypotheses.size(); ++i) {
    const json& expected = search.hypotheses[i];
    // A sum over the tokens.
    const auto bound = tolerance * static_cast<double>(found.hypotheses[i].tokens.size() + 1);
    EXPECT_NEAR(found.hypotheses[i].log_prob, expected["log_prob"].get<double>(), bound);
    EXPECT_NEAR(found.hypotheses[i].score, expected["score"].get<double>(), bound);
    if (!expected.contains("alignment")) continue;
    std::vector<float> alignment;
    for (const json& row : expected["alignment"]) {
      alignment.insert(alignment.end(), row.begin(), row.end());
    }
    EXPECT_EQ(found.alignments[i].size(), alignment.size());
    for (size_t t = 0; t < std::min(alignment.size(), found.alignments[i].size()); ++t) {
      EXPECT_NEAR(found.alignments[i][t], alignment[t], tolerance) << "alignment " << t;
    }
  }
  return true;
}

void ExpectSame(const testing::Translation& a, const testing::Translation& b, const char* what) {
  ASSERT_EQ(a.hypotheses.size(), b.hypotheses.size()) << what;
  for (size_t i = 0; i < a.hypotheses.size(); ++i) {
    EXPECT_EQ(a.hypotheses[i].tokens, b.hypotheses[i].tokens) << what;
    EXPECT_EQ(a.hypotheses[i].log_prob, b.hypotheses[i].log_prob) << what;
    EXPECT_EQ(a.hypotheses[i].score, b.hypotheses[i].score) << what;
    EXPECT_TRUE(SameBits(a.alignments[i], b.alignments[i])) << what;
  }
}

TEST_P(TranslatorTest, EverySearchFindsWhatTheReferenceFound) {
  const json recorded = json::parse(std::ifstream(directory_ / "expected.json"));
  std::vector<RecordedSearch> searches;
  // Kernels that run on the host are slow: of their searches a part, with sentences of every
  // length.
  const size_t step = tested_.name == "cuda_host" ? 5 : 1;
  for (size_t i = 0; i < recorded["searches"].size(); i += step) {
    const json& search = recorded["searches"][i];
    RecordedSearch& next = searches.emplace_back();
    const int beam = search["beam"];
    next.sentence.source = sentences_[search["sentence"]].source;
    next.sentence.prefix = search["prefix"].get<std::vector<int32_t>>();
    models::SearchOptions& options = next.sentence.search;
    options.max_length = search["max_length"];
    if (beam > 0) {
      options.beam_size = beam;
      options.num_hypotheses = search["n_best"];
      options.alpha = search["alpha"];
      ASSERT_TRUE(kernels::ParseNamed<models::LengthPenaltyName>(
          search["penalty"].get<std::string>(), &options.length_penalty));
    }
    next.hypotheses = search["hypotheses"];
    json described = search;
    described.erase("hypotheses");
    next.name = described.dump();
  }
  ASSERT_GE(searches.size() * step, 30u);

  testing::TranslationDriver driver(model_->program(), translator(), config(), arena_.get(),
                                    workspace_.get());
  int equal = 0;
  for (size_t begin = 0; begin < searches.size(); begin += kMaxSentences) {
    const size_t end = std::min(begin + kMaxSentences, searches.size());
    std::vector<testing::Sentence> batch;
    for (size_t i = begin; i < end; ++i) batch.push_back(searches[i].sentence);
    const auto together = driver.Translate(batch, /*stagger=*/0);
    const auto staggered = driver.Translate(batch, /*stagger=*/2);
    ASSERT_EQ(together.size(), batch.size());
    ASSERT_EQ(staggered.size(), batch.size());
    for (size_t i = begin; i < end; ++i) {
      SCOPED_TRACE(searches[i].name);
      const testing::Translation& found = together[i - begin];
      // Not all of them alone: they are many.
      if (i % 5 == 0) ExpectSame(found, driver.Translate({searches[i].sentence}, 0)[0], "alone");
      ExpectSame(found, staggered[i - begin], "among sentences that come later");
      equal += IsRecorded(searches[i], found, is_bfloat16() ? kBFloat16Tolerance : kTolerance);
    }
  }
  EXPECT_EQ(arena_->stats().slots, 0);
  EXPECT_EQ(arena_->stats().used_bytes, 0u);
  const auto total = static_cast<int>(searches.size());
  RecordProperty("searches", total);
  RecordProperty("equal", equal);
  std::printf("%s: %d of %d searches as recorded\n", GetParam().c_str(), equal, total);
  // Weights of 8 bits may decide otherwise where two hypotheses are close.
  if (is_bfloat16()) {
    EXPECT_GE(4 * equal, 3 * total);
  } else {
    EXPECT_EQ(equal, total);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TranslatorTest, ::testing::ValuesIn(testing::Folders(kSharedCases)),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TranslatorTest);

TEST(SharedCasesTest, AreThere) {
  if (!fs::exists(kSharedCases)) {
    GTEST_SKIP() << kSharedCases << " is absent; the test export_shared_translators says why";
  }
  EXPECT_EQ(testing::Folders(kSharedCases).size(), 6u);
}

}  // namespace
}  // namespace sru
