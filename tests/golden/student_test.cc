// Students of Marian on one backend. The small ones of tests/golden/student (make_student.py):
// every translation, log-probability, n-best list and alignment of the reference; the same bits
// alone and in a batch. The trained one of oracles/ssru in SRU_SHARED_DIR (default ../shared): the
// translations of Marian (float32) and of Bergamot (int8), in the files that they publish.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/decoding/decoding_memo.h"
#include "models/decoding/generated_text.h"
#include "models/model.h"
#include "models/translator.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_fixture.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translation.h"

namespace sru {
namespace {

using nlohmann::json;

constexpr int kBatch = 16;
// Least margin, in log-probability, of a choice that must be the same.
constexpr double kFloatMargin = 1e-3;
constexpr double kInt8Margin = 0.06;
// Largest error of a token's log-probability, of a score and of a value of an alignment, float32.
constexpr double kTokenTolerance = 2e-5;
constexpr double kScoreTolerance = 1e-4;
constexpr double kAlignmentTolerance = 1e-5;
// A rounded activation that is one off changes a score by up to 1e-2, so of int8 models the median
// counts.
constexpr double kMedianTolerance = 1e-5;
// Slow backends translate one sentence in this many of the trained model.
constexpr size_t kSlowStep = 25;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class StudentTest : public testing::ModelTest {
 protected:
  void Load(const std::string& directory) {
    ASSERT_TRUE(tested_.Create(&backend_).ok());
    kernels::CompileOptions options;
    options.dtype = tested_.dtype;
    auto model = models::Model::Load(directory, "student", 1, *backend_, options);
    // GPUs refuse int8 weights by name.
    if (tested_.is_cuda() && absl::IsUnimplemented(model.status())) {
      EXPECT_THAT(model.status().message(), ::testing::HasSubstr("int8_table"));
      GTEST_SKIP() << model.status();
    }
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    ASSERT_NE(model_->As<models::Translator>(), nullptr);
    kernels::ProgramLimits limits = models::TranslatorLimits(
        *model_->As<models::Translator>(), kBatch * 300, kBatch, kBatch * 400, kBatch * 8);
    limits.max_attention_values = int64_t{kBatch} * 4 * 400;
    MakeWorkspace(limits);
    MakeArena();
  }

  static std::vector<json> ReadLines(const std::string& path, size_t step = 1) {
    std::vector<json> lines;
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    size_t number = 0;
    for (std::string line; std::getline(file, line); ++number) {
      if (number % step == 0) lines.push_back(json::parse(line));
    }
    return lines;
  }

  bool is_float32() const { return tested_.dtype == kernels::DataType::kFloat32; }
  bool is_slow() const { return tested_.name != "cpu" && tested_.name != "cuda"; }

  const models::TranslatorConfig& config() const { return model_->config().translator; }

  testing::Sentence SentenceOf(const json& line, int beam_size) const {
    testing::Sentence sentence;
    auto ids = model_->tokenizer()->Encode(line["source"].get<std::string>());
    EXPECT_TRUE(ids.ok()) << ids.status();
    if (ids.ok()) sentence.source = *std::move(ids);
    if (line.contains("source_ids")) {
      EXPECT_EQ(sentence.source, line["source_ids"].get<std::vector<int32_t>>());
    }
    sentence.source.push_back(config().source_end_id);
    sentence.search = config().search;
    sentence.search.beam_size = sentence.search.num_hypotheses = beam_size;
    sentence.search.length_penalty = models::LengthPenalty::kPower;
    sentence.search.alpha = 1;
    sentence.search.max_length_factor = line["max_length_factor"];
    sentence.search.max_length =
        models::MaxLengthOf(sentence.search, static_cast<int>(sentence.source.size()));
    return sentence;
  }

  std::vector<testing::Translation> Translate(const std::vector<testing::Sentence>& sentences) {
    testing::TranslationDriver driver(model_->program(), *model_->As<models::Translator>(),
                                      config(), arena_.get(), workspace_.get());
    std::vector<testing::Translation> found;
    for (size_t begin = 0; begin < sentences.size(); begin += kBatch) {
      const std::vector<testing::Sentence> batch(
          sentences.begin() + static_cast<std::ptrdiff_t>(begin),
          sentences.begin() +
              static_cast<std::ptrdiff_t>(std::min(begin + kBatch, sentences.size())));
      for (testing::Translation& translation : driver.Translate(batch, /*stagger=*/1)) {
        found.push_back(std::move(translation));
      }
    }
    return found;
  }

  std::string Text(const std::vector<int32_t>& ids) const {
    models::GeneratedText text(model_->target_tokenizer()->detokenizer(), nullptr,
                               models::DecodingMemo());
    for (const int32_t id : ids) text.Append(id, /*may_stop=*/false);
    return text.Finish();
  }

  // The log-probability of each token, which feeds the hypothesis as a whole.
  std::vector<double> TokenLogProbs(const testing::Sentence& sentence,
                                    const models::FoundHypothesis& hypothesis) {
    const models::Translator& model = *model_->As<models::Translator>();
    std::vector<int32_t> targets = hypothesis.tokens;
    if (hypothesis.finished) targets.push_back(config().eos_id);
    std::vector<int32_t> ids(1, config().bos_id);
    ids.insert(ids.end(), targets.begin(), targets.end() - 1);
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<int32_t> choices;
    if (model.choices != kernels::kNone) choices = model.shortlist(sentence.source);
    std::vector<float> log_probs(ids.size());
    kernels::StateArena::Slot slot;
    EXPECT_TRUE(arena_->Allocate(&slot).ok());
    const kernels::StateArena::Slot no_slot = kernels::StateArena::kNoSlot;
    const auto run = [&](kernels::AxisId axis, const std::vector<int32_t>& rows) {
      const std::vector<int32_t> offsets = {0, static_cast<int32_t>(rows.size())};
      const std::vector<int32_t> choice_offsets = {0, static_cast<int32_t>(choices.size())};
      std::vector<kernels::AxisBatch> axes(model.program.axes.size());
      axes[axis] = {1, offsets.data(), &slot};
      std::vector<kernels::InputBatch> inputs(model.program.inputs.size());
      std::vector<kernels::OutputBatch> outputs(model.program.outputs.size());
      const int32_t first = 0;
      if (axis == model.source) {
        inputs[model.source_ids].ids = rows.data();
      } else {
        inputs[model.target_ids].ids = rows.data();
        inputs[model.target_positions].ids = positions.data();
        inputs[model.targets].ids = targets.data();
        outputs[model.log_probs].values = log_probs.data();
        if (!choices.empty()) {
          axes[model.choices] = {1, choice_offsets.data(), &no_slot};
          inputs[model.choice_ids].ids = choices.data();
          inputs[model.choice_map].ids = &first;
        }
      }
      RunProgram(axes, inputs, outputs);
    };
    run(model.source, sentence.source);
    run(model.target, ids);
    arena_->Free(slot);
    return std::vector<double>(log_probs.begin(), log_probs.end());
  }

  // Compares greedy search and beam 4 with the lines of the reference.
  void Check(const std::vector<json>& lines, double margin) {
    std::vector<testing::Sentence> greedy;
    std::vector<testing::Sentence> beam;
    for (const json& line : lines) {
      greedy.push_back(SentenceOf(line, 1));
      beam.push_back(SentenceOf(line, 4));
      if (line.contains("choices")) {
        EXPECT_EQ(model_->As<models::Translator>()->shortlist(greedy.back().source),
                  line["choices"].get<std::vector<int32_t>>());
      }
    }
    const std::vector<testing::Translation> found = Translate(greedy);
    const std::vector<testing::Translation> found_beam = Translate(beam);
    ASSERT_EQ(found.size(), lines.size());
    ASSERT_EQ(found_beam.size(), lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      SCOPED_TRACE(lines[i]["source"]);
      CheckGreedy(lines[i], greedy[i], found[i], margin);
      CheckBeam(lines[i], found_beam[i], margin);
    }
    std::printf(
        "%d of %d searches as recorded; tokens' log-probabilities %.2g off in the median, %.2g at "
        "most; scores %.2g at most\n",
        equal_, searches_, Median(token_differences_), worst_token_, worst_score_);
    RecordProperty("equal", equal_);
    RecordProperty("largest_difference_of_a_token", std::to_string(worst_token_));
  }

  void CheckGreedy(const json& line, const testing::Sentence& sentence,
                   const testing::Translation& found, double margin) {
    const models::FoundHypothesis& hypothesis = found.hypotheses.at(0);
    const bool same = hypothesis.tokens == line["greedy_ids"].get<std::vector<int32_t>>();
    ++searches_;
    equal_ += same ? 1 : 0;
    if (line["greedy_margin"] > margin && is_float32()) {
      EXPECT_TRUE(same) << Text(hypothesis.tokens);
    }
    if (!same || !is_float32()) return;
    EXPECT_EQ(Text(hypothesis.tokens), line["greedy"]);
    const auto expected = line["greedy_word_scores"].get<std::vector<double>>();
    const std::vector<double> tokens = TokenLogProbs(sentence, hypothesis);
    ASSERT_EQ(tokens.size(), expected.size());
    for (size_t t = 0; t < tokens.size(); ++t) CompareToken(expected[t], tokens[t]);
    CompareScore(line["greedy_score"], hypothesis.score);
    const std::vector<float>& alignment = found.alignments.at(0);
    const size_t sources = sentence.source.size();
    ASSERT_EQ(alignment.size(), hypothesis.tokens.size() * sources);
    for (size_t t = 0; t < hypothesis.tokens.size(); ++t) {
      const json& best = line["greedy_alignment"][t];
      const auto row = alignment.begin() + static_cast<std::ptrdiff_t>(t * sources);
      if (best.is_null()) continue;
      EXPECT_EQ(std::max_element(row, row + static_cast<std::ptrdiff_t>(sources)) - row,
                best.get<int>())
          << "token " << t;
    }
    if (!is_float32() || !line.contains("greedy_soft_alignment")) return;
    for (size_t t = 0; t < hypothesis.tokens.size(); ++t) {
      for (size_t s = 0; s < sources; ++s) {
        EXPECT_NEAR(alignment[t * sources + s], line["greedy_soft_alignment"][t][s].get<double>(),
                    kAlignmentTolerance)
            << "token " << t << ", source " << s;
      }
    }
  }

  void CheckBeam(const json& line, const testing::Translation& found, double margin) {
    const json& expected = line["beam4_nbest"];
    ASSERT_EQ(found.hypotheses.size(), expected.size());
    bool same = true;
    for (size_t i = 0; i < expected.size(); ++i) {
      same = same && found.hypotheses[i].tokens == expected[i]["ids"].get<std::vector<int32_t>>();
    }
    ++searches_;
    equal_ += same ? 1 : 0;
    if (line["beam4_margin"] > margin && is_float32()) {
      EXPECT_TRUE(same) << Text(found.hypotheses[0].tokens);
    }
    if (!same || !is_float32()) return;
    for (size_t i = 0; i < expected.size(); ++i)
      CompareScore(expected[i]["score"], found.hypotheses[i].score);
  }

  void CompareToken(double expected, double found) {
    token_differences_.push_back(std::abs(expected - found));
    worst_token_ = std::max(worst_token_, token_differences_.back());
    if (!config().int8_weights) {
      EXPECT_NEAR(found, expected, kTokenTolerance);
    }
  }

  void CompareScore(double expected, double found) {
    worst_score_ = std::max(worst_score_, std::abs(expected - found));
    if (!config().int8_weights) {
      EXPECT_NEAR(found, expected, kScoreTolerance);
    }
  }

  // Alone, in a batch with the others, and when they join at different steps.
  void CheckSameBits(const std::vector<json>& lines) {
    std::vector<testing::Sentence> sentences;
    for (const json& line : lines) sentences.push_back(SentenceOf(line, 4));
    const std::vector<testing::Translation> together = Translate(sentences);
    for (size_t i = 0; i < sentences.size(); ++i) {
      SCOPED_TRACE(lines[i]["source"]);
      const testing::Translation alone = Translate({sentences[i]}).at(0);
      ASSERT_EQ(alone.hypotheses.size(), together[i].hypotheses.size());
      for (size_t h = 0; h < alone.hypotheses.size(); ++h) {
        EXPECT_EQ(alone.hypotheses[h].tokens, together[i].hypotheses[h].tokens);
        EXPECT_EQ(alone.hypotheses[h].log_prob, together[i].hypotheses[h].log_prob);
        EXPECT_EQ(alone.alignments[h], together[i].alignments[h]);
      }
    }
  }

  int searches_ = 0;
  int equal_ = 0;
  double worst_token_ = 0;
  double worst_score_ = 0;
  std::vector<double> token_differences_;
};

class SmallStudentTest : public StudentTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string directory() const { return std::string("tests/golden/student/") + GetParam(); }
};

TEST_P(SmallStudentTest, TranslatesAsTheReference) {
  Load(directory());
  if (IsSkipped() || HasFatalFailure()) return;
  Check(ReadLines(directory() + "/expected.jsonl"),
        config().int8_weights ? kInt8Margin : kFloatMargin);
  if (config().int8_weights && is_float32()) {
    EXPECT_LT(Median(token_differences_), kMedianTolerance);
    EXPECT_LT(worst_token_, 0.1);
  }
}

TEST_P(SmallStudentTest, GivesTheSameBitsInAnyBatch) {
  Load(directory());
  if (IsSkipped() || HasFatalFailure()) return;
  CheckSameBits(ReadLines(directory() + "/expected.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Models, SmallStudentTest, ::testing::Values("shared", "apart", "int8"),
                         [](const auto& info) { return std::string(info.param); });

class TrainedStudentTest : public StudentTest {
 protected:
  void SetUp() override {
    const char* const shared = std::getenv("SRU_SHARED_DIR");
    oracle_ = std::filesystem::absolute(
        std::filesystem::path(shared != nullptr ? shared : "../shared") / "oracles" / "ssru");
    if (!std::filesystem::exists(oracle_)) {
      GTEST_SKIP() << oracle_ << " is absent; set SRU_SHARED_DIR to the directory that has it";
    }
  }

  // Translates greedily and compares the texts of `key`, and Bergamot's quality scores of equal
  // ones.
  void CheckBergamot(const std::string& key) {
    const std::vector<json> lines =
        ReadLines(oracle_ / "expected_int8.jsonl", is_slow() ? kSlowStep : 1);
    std::vector<testing::Sentence> sentences;
    for (const json& line : lines) sentences.push_back(SentenceOf(line, 1));
    const std::vector<testing::Translation> found = Translate(sentences);
    std::vector<double> differences;
    for (size_t i = 0; i < lines.size(); ++i) {
      const models::FoundHypothesis& hypothesis = found[i].hypotheses.at(0);
      if (Text(hypothesis.tokens) != lines[i][key]) {
        std::printf("differs: %s\n", lines[i][key].get<std::string>().c_str());
        continue;
      }
      differences.push_back(
          std::abs(Quality(sentences[i], hypothesis) - lines[i][key + "_score"].get<double>()));
    }
    std::printf("%s: %zu of %zu texts as Bergamot's, scores %.2g off in the median, %.2g at most\n",
                key.c_str(), differences.size(), lines.size(), Median(differences),
                *std::max_element(differences.begin(), differences.end()));
    EXPECT_GE(differences.size() + 1, lines.size());
    EXPECT_LT(Median(differences), kMedianTolerance);
  }

  // The mean over words of the mean log-probability of a word's pieces; the last token does not
  // count.
  double Quality(const testing::Sentence& sentence, const models::FoundHypothesis& hypothesis) {
    const std::vector<double> scores = TokenLogProbs(sentence, hypothesis);
    std::vector<std::vector<double>> words;
    for (size_t t = 0; t + 1 < scores.size(); ++t) {
      const std::string piece = model_->target_tokenizer()->TokenName(hypothesis.tokens[t]);
      if (words.empty() || piece.rfind("\u2581", 0) == 0) words.emplace_back();
      words.back().push_back(scores[t]);
    }
    double sum = 0;
    for (const auto& word : words)
      sum += std::accumulate(word.begin(), word.end(), 0.0) / static_cast<double>(word.size());
    return words.empty() ? 0 : sum / static_cast<double>(words.size());
  }

  std::filesystem::path oracle_;
};

TEST_F(TrainedStudentTest, TranslatesAsMarian) {
  Load(oracle_ / "marian");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(config().search.beam_size, 12) << "of model.npz.decoder.yml";
  EXPECT_EQ(config().search.length_penalty, models::LengthPenalty::kNone);
  Check(ReadLines(oracle_ / "expected.jsonl", is_slow() ? kSlowStep : 1), kFloatMargin);
  Check(ReadLines(oracle_ / "expected_edges.jsonl", is_slow() ? 8 : 1), kFloatMargin);
}

TEST_F(TrainedStudentTest, TranslatesAsBergamotWithTheShortlist) {
  Load(oracle_ / "firefox");
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(config().source_language, "en");
  EXPECT_EQ(config().target_language, "de");
  EXPECT_NE(model_->As<models::Translator>()->choices, kernels::kNone);
  CheckBergamot("shortlist");
}

TEST_F(TrainedStudentTest, TranslatesAsBergamotWithoutShortlist) {
  const models::TempDirectory directory;
  for (const auto& entry : std::filesystem::directory_iterator(oracle_ / "firefox")) {
    std::filesystem::create_symlink(entry.path(), directory.path(entry.path().filename()));
  }
  directory.Write("config.json", R"({"format_version": 1, "shortlist": false})");
  Load(directory.path());
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(model_->As<models::Translator>()->choices, kernels::kNone);
  CheckBergamot("full");
}

}  // namespace
}  // namespace sru
