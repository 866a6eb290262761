// The trained reader on one backend, from text to answers, against what the reference recorded
// beside its checkpoint (export_shared_cases.py): every answer with its offsets, and which of
// several passages has it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/decoding/spans.h"
#include "models/model.h"
#include "models/reader.h"
#include "models/reader_input.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_fixture.h"
#include "tests/testing/checkpoints.h"

namespace sru {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Of float32 log scores and probabilities.
constexpr double kTolerance = 1e-3;
// Of answers in bfloat16, which moves log scores by some hundredths: how many must be the recorded
// ones.
constexpr double kEqualInBFloat16 = 0.97;
// Kernels that are emulated, and those that take their time, get every so many-th question.
constexpr int kSlowStep = 12;
constexpr int kQueriesPerBatch = 16;

// Written by export_shared_cases.py, which is a test that runs before this one.
constexpr const char* kSharedCases = SRU_SHARED_CASES;

struct Query {
  json recorded;
  std::string question;
  std::vector<std::string> passages;
};

struct Passage {
  models::EncodedText tokens;
  std::vector<float> features;
  std::vector<float> start;
  std::vector<float> end;
};

class TrainedReaderTest : public testing::ModelTest {
 protected:
  void SetUp() override {
    const fs::path directory = fs::path(kSharedCases) / "reader_squad" / "1";
    if (!fs::exists(directory)) {
      GTEST_SKIP() << directory << " is absent; the test export_trained_readers says why";
    }
    ASSERT_NO_FATAL_FAILURE(LoadModel(directory));
    ASSERT_NE(model_->As<models::Reader>(), nullptr);
    MakeWorkspace(
        models::ReaderLimits(*model_->As<models::Reader>(), 1 << 15, 8 * kQueriesPerBatch));
  }

  // What is recorded in a file beside the checkpoint.
  std::vector<Query> Read(const std::string& name) const {
    std::ifstream file(sru::testing::CheckpointsDirectory() / "reader_squad" / name);
    std::vector<Query> queries;
    int number = 0;
    for (std::string line; std::getline(file, line); ++number) {
      if (is_slow() && number % kSlowStep != 0) continue;
      Query query;
      query.recorded = json::parse(line);
      query.question = query.recorded["question"].get<std::string>();
      if (query.recorded.contains("paragraphs")) {
        query.passages = query.recorded["paragraphs"].get<std::vector<std::string>>();
      } else {
        query.passages = {query.recorded["paragraph"].get<std::string>()};
      }
      queries.push_back(std::move(query));
    }
    return queries;
  }

  // The logits of the passages of each query, some queries at a time.
  std::vector<std::vector<Passage>> Compute(const std::vector<Query>& queries) {
    std::vector<std::vector<Passage>> computed;
    for (size_t first = 0; first < queries.size(); first += kQueriesPerBatch) {
      const size_t end = std::min(queries.size(), first + kQueriesPerBatch);
      ComputeBatch({queries.begin() + first, queries.begin() + end}, &computed);
    }
    return computed;
  }

  bool is_slow() const {
    return tested_.name == "cuda_host" || tested_.name == "reference" ||
           tested_.cpu_isa == "amx_emulated";
  }
  bool is_float32() const { return tested_.dtype == kernels::DataType::kFloat32; }

  // Whether the span is the recorded one; if it must be, expects so.
  bool Check(const json& recorded, const std::string& passage, const models::EncodedText& tokens,
             const models::Span& span) {
    const models::TextSpan& first = tokens.spans[span.first];
    const models::TextSpan& last = tokens.spans[span.last];
    const json found = {
        {"answer", passage.substr(first.begin_byte, last.end_byte - first.begin_byte)},
        {"start_char", first.begin_char},
        {"end_char", last.end_char},
        {"start_byte", first.begin_byte},
        {"end_byte", last.end_byte},
        {"start_token", span.first},
        {"end_token", span.last}};
    bool equal = true;
    for (const auto& [key, value] : found.items()) {
      equal = equal && recorded[key] == value;
      if (is_float32()) {
        EXPECT_EQ(value, recorded[key]) << key;
      }
    }
    if (!equal) return false;
    const double score = std::abs(span.log_score - recorded["log_score"].get<double>());
    const double probability = std::abs(span.probability - recorded["probability"].get<double>());
    worst_score_ = std::max(worst_score_, score);
    worst_probability_ = std::max(worst_probability_, probability);
    if (is_float32()) {
      EXPECT_LE(score, kTolerance);
      EXPECT_LE(probability, kTolerance);
    }
    return true;
  }

  // Of `all` answers, these are the recorded ones.
  void Report(int equal, int all) {
    RecordProperty("largest_difference_of_log_scores", std::to_string(worst_score_));
    RecordProperty("largest_difference_of_probabilities", std::to_string(worst_probability_));
    RecordProperty("equal_answers", std::to_string(equal) + " of " + std::to_string(all));
    EXPECT_GE(equal, is_float32() ? all : std::floor(kEqualInBFloat16 * all)) << "of " << all;
  }

  models::SpanOptions Options(int top_n) const {
    return {model_->config().reader.max_len, top_n, /*no_overlap=*/false};
  }

  std::vector<models::Span> Best(const Passage& passage, int top_n) const {
    return models::BestSpans(passage.start.data(), passage.end.data(), passage.start.size(),
                             Options(top_n));
  }

 private:
  models::EncodedText Tokenize(const std::string& text) const {
    models::EncodeOptions options;
    options.spans = true;
    auto tokens = model_->tokenizer()->Encode(text, options);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.ok() ? *std::move(tokens) : models::EncodedText();
  }

  void ComputeBatch(const std::vector<Query>& queries,
                    std::vector<std::vector<Passage>>* computed) {
    const models::Reader& reader = *model_->As<models::Reader>();
    const models::ReaderConfig& config = model_->config().reader;
    std::vector<int32_t> passage_offsets = {0}, question_offsets = {0}, passage_ids, question_ids,
                         of;
    std::vector<float> features;
    const size_t first = computed->size();
    for (const Query& query : queries) {
      const models::EncodedText question = Tokenize(query.question);
      const models::QuestionFeatures asked(config, query.question, question, {});
      question_ids.insert(question_ids.end(), question.ids.begin(), question.ids.end());
      question_offsets.push_back(static_cast<int32_t>(question_ids.size()));
      std::vector<Passage>& passages = computed->emplace_back();
      for (const std::string& text : query.passages) {
        Passage& passage = passages.emplace_back();
        passage.tokens = Tokenize(text);
        const size_t begin = features.size();
        features.resize(begin + passage.tokens.size() * config.features.size());
        asked.Fill(text, passage.tokens, {}, &features[begin]);
        passage_ids.insert(passage_ids.end(), passage.tokens.ids.begin(), passage.tokens.ids.end());
        passage_offsets.push_back(static_cast<int32_t>(passage_ids.size()));
        of.push_back(static_cast<int32_t>(question_offsets.size()) - 2);
      }
    }
    std::vector<kernels::AxisBatch> axes(reader.program.axes.size());
    axes[reader.passage].num_sequences = static_cast<int>(of.size());
    axes[reader.passage].offsets = passage_offsets.data();
    axes[reader.question].num_sequences = static_cast<int>(queries.size());
    axes[reader.question].offsets = question_offsets.data();
    std::vector<kernels::InputBatch> inputs(reader.program.inputs.size());
    inputs[reader.passage_ids].ids = passage_ids.data();
    inputs[reader.passage_features].values = features.data();
    inputs[reader.question_ids].ids = question_ids.data();
    inputs[reader.question_of].ids = of.data();
    std::vector<float> start(passage_ids.size());
    std::vector<float> end(passage_ids.size());
    std::vector<kernels::OutputBatch> outputs(reader.program.outputs.size());
    outputs[reader.start_logits].values = start.data();
    outputs[reader.end_logits].values = end.data();
    ASSERT_NO_FATAL_FAILURE(RunProgram(axes, inputs, outputs));
    size_t at = 0;
    for (size_t i = first; i < computed->size(); ++i) {
      for (Passage& passage : (*computed)[i]) {
        const size_t size = passage.tokens.size();
        passage.start.assign(start.begin() + at, start.begin() + at + size);
        passage.end.assign(end.begin() + at, end.begin() + at + size);
        at += size;
      }
    }
  }

  double worst_score_ = 0;
  double worst_probability_ = 0;
};

TEST_F(TrainedReaderTest, AnswersAsTheReference) {
  const std::vector<Query> queries = Read("expected.jsonl");
  ASSERT_GE(queries.size(), is_slow() ? 25u : 300u);
  const auto computed = Compute(queries);
  int equal = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    SCOPED_TRACE(queries[i].question);
    const json& top = queries[i].recorded["top3"];
    const Passage& passage = computed[i][0];
    const std::vector<models::Span> best = Best(passage, static_cast<int>(top.size()));
    ASSERT_EQ(best.size(), top.size());
    const std::string& text = queries[i].passages[0];
    if (Check(queries[i].recorded, text, passage.tokens, best[0])) ++equal;
    if (!is_float32()) continue;
    for (size_t k = 0; k < top.size(); ++k) Check(top[k], text, passage.tokens, best[k]);
  }
  Report(equal, static_cast<int>(queries.size()));
}

TEST_F(TrainedReaderTest, FindsThePassageAsTheReference) {
  const std::vector<Query> queries = Read("expected_paragraphs.jsonl");
  ASSERT_GE(queries.size(), is_slow() ? 4u : 40u);
  const auto computed = Compute(queries);
  int equal = 0;
  int answers = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    SCOPED_TRACE(queries[i].question);
    const json& recorded = queries[i].recorded;
    std::vector<std::vector<models::Span>> best;
    for (size_t k = 0; k < computed[i].size(); ++k) {
      best.push_back(Best(computed[i][k], 1));
      ASSERT_EQ(best.back().size(), 1u);
      if (Check(recorded["answers"][k], queries[i].passages[k], computed[i][k].tokens,
                best.back()[0])) {
        ++equal;
      }
      ++answers;
    }
    const std::vector<models::PassageSpan> merged =
        models::MergeSpans(best, 1, /*one_per_passage=*/false);
    ASSERT_EQ(merged.size(), 1u);
    if (is_float32()) {
      EXPECT_EQ(merged[0].passage, recorded["best_paragraph"].get<int>());
    }
  }
  Report(equal, answers);
}

}  // namespace
}  // namespace sru
