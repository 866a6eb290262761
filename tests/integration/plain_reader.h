// PlainReader: what a reader answers, without a server. Each passage is a run of the program by
// itself, and all of its spans are made and sorted.
#ifndef SRU_TESTS_INTEGRATION_PLAIN_READER_H_
#define SRU_TESTS_INTEGRATION_PLAIN_READER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/reader.h"
#include "models/reader_input.h"
#include "sru/v1/inference.pb.h"

namespace sru::testing {

class PlainReader {
 public:
  explicit PlainReader(const std::string& directory, const char* backend = "cpu") {
    const kernels::Status made = kernels::CreateBackend(backend, {}, &backend_);
    EXPECT_TRUE(made.ok()) << made.message();
    auto model = models::Model::Load(directory, "plain", 1, *backend_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (model.ok()) model_ = *std::move(model);
  }

  bool loaded() const { return model_ != nullptr; }

  // Of a good request.
  std::vector<v1::QueryAnswers> Answer(const v1::AnswerRequest& request) const {
    std::vector<v1::QueryAnswers> results;
    for (const v1::Query& query : request.queries()) results.push_back(AnswerQuery(request, query));
    return results;
  }

 private:
  struct Found {
    int passage = 0;
    int first = 0;
    int last = 0;
    double log_score = 0;
    double probability = 0;

    bool IsBetterThan(const Found& other) const {
      return std::tuple(-log_score, passage, first, last) <
             std::tuple(-other.log_score, other.passage, other.first, other.last);
    }
  };

  static std::vector<double> Softmax(const std::vector<float>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> values;
    double sum = 0;
    for (const float logit : logits) {
      values.push_back(std::exp(logit - largest));
      sum += values.back();
    }
    for (double& value : values) value /= sum;
    return values;
  }

  v1::QueryAnswers AnswerQuery(const v1::AnswerRequest& request, const v1::Query& query) const {
    const models::ReaderConfig& config = model_->config().reader;
    models::EncodeOptions with_spans;
    with_spans.spans = true;
    const models::EncodedText question = *model_->tokenizer()->Encode(query.question(), with_spans);
    const models::QuestionFeatures features(
        config, query.question(), question,
        {query.question_lemmas().begin(), query.question_lemmas().end()});
    const size_t most = std::max(request.top_n(), 1);
    const int longest =
        request.max_answer_tokens() == 0 ? config.max_len : request.max_answer_tokens();
    v1::QueryAnswers answers;
    size_t token_count = question.size();
    std::vector<models::EncodedText> passages;
    std::vector<Found> all;
    for (int p = 0; p < query.passages_size(); ++p) {
      passages.push_back(*model_->tokenizer()->Encode(query.passages(p), with_spans));
      const models::EncodedText& passage = passages.back();
      token_count += passage.size();
      v1::PassageTags tags;
      if (query.passage_tags_size() > 0) tags = query.passage_tags(p);
      std::vector<float> values(passage.size() * config.num_features());
      features.Fill(query.passages(p), passage, {tags.lemmas().begin(), tags.lemmas().end()},
                    values.data());
      std::vector<Found> found = SpansOf(p, Run(question, passage, values, tags), longest);
      std::sort(found.begin(), found.end(),
                [](const Found& a, const Found& b) { return a.IsBetterThan(b); });
      std::vector<Found> taken;
      for (const Found& span : found) {
        if (taken.size() == (request.one_per_passage() ? 1 : most)) break;
        const bool overlaps = std::any_of(taken.begin(), taken.end(), [&](const Found& other) {
          return span.first <= other.last && other.first <= span.last;
        });
        if (!overlaps || !request.no_overlap()) taken.push_back(span);
      }
      all.insert(all.end(), taken.begin(), taken.end());
    }
    std::sort(all.begin(), all.end(),
              [](const Found& a, const Found& b) { return a.IsBetterThan(b); });
    if (all.size() > most) all.resize(most);
    for (const Found& span : all) {
      const models::TextSpan& first = passages[span.passage].spans[span.first];
      const models::TextSpan& last = passages[span.passage].spans[span.last];
      v1::SpanAnswer* const answer = answers.add_answers();
      answer->set_passage(span.passage);
      answer->set_text(
          query.passages(span.passage).substr(first.begin_byte, last.end_byte - first.begin_byte));
      answer->set_start_byte(static_cast<int32_t>(first.begin_byte));
      answer->set_end_byte(static_cast<int32_t>(last.end_byte));
      answer->set_start_char(static_cast<int32_t>(first.begin_char));
      answer->set_end_char(static_cast<int32_t>(last.end_char));
      answer->set_log_score(span.log_score);
      answer->set_probability(static_cast<float>(span.probability));
    }
    answers.set_token_count(static_cast<int32_t>(token_count));
    return answers;
  }

  static std::vector<Found> SpansOf(int passage,
                                    const std::pair<std::vector<float>, std::vector<float>>& logits,
                                    int longest) {
    const auto& [start, end] = logits;
    const std::vector<double> starts = Softmax(start);
    const std::vector<double> ends = Softmax(end);
    std::vector<Found> found;
    const auto size = static_cast<int>(start.size());
    for (int i = 0; i < size; ++i) {
      for (int j = i; j < std::min(size, i + longest); ++j) {
        found.push_back({passage, i, j, double{start[i]} + double{end[j]}, starts[i] * ends[j]});
      }
    }
    return found;
  }

  // The start and end logits of a passage.
  std::pair<std::vector<float>, std::vector<float>> Run(const models::EncodedText& question,
                                                        const models::EncodedText& passage,
                                                        const std::vector<float>& features,
                                                        const v1::PassageTags& tags) const {
    const models::Reader& reader = *model_->As<models::Reader>();
    const auto question_length = static_cast<int>(question.size());
    const auto length = static_cast<int>(passage.size());
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    kernels::Status status = model_->program().CreateWorkspace(
        models::ReaderLimits(reader, std::max(length, question_length), 1), &workspace);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<kernels::AxisBatch> axes(reader.program.axes.size());
    const int32_t passage_offsets[] = {0, length};
    const int32_t question_offsets[] = {0, question_length};
    axes[reader.passage] = {1, passage_offsets};
    axes[reader.question] = {1, question_offsets};
    std::vector<kernels::InputBatch> inputs(reader.program.inputs.size());
    const int32_t zero = 0;
    inputs[reader.passage_ids].ids = passage.ids.data();
    inputs[reader.question_ids].ids = question.ids.data();
    inputs[reader.question_of].ids = &zero;
    if (!features.empty()) inputs[reader.passage_features].values = features.data();
    if (reader.pos_ids != kernels::kNone) inputs[reader.pos_ids].ids = tags.pos_ids().data();
    if (reader.ner_ids != kernels::kNone) inputs[reader.ner_ids].ids = tags.ner_ids().data();
    std::pair<std::vector<float>, std::vector<float>> logits;
    logits.first.resize(passage.size());
    logits.second.resize(passage.size());
    std::vector<kernels::OutputBatch> outputs(reader.program.outputs.size());
    outputs[reader.start_logits].values = logits.first.data();
    outputs[reader.end_logits].values = logits.second.data();
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    status = model_->program().Run(batch, outputs.data(), *workspace);
    EXPECT_TRUE(status.ok()) << status.message();
    return logits;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
};

// Everything equal; the probability to a few units in the last place.
inline void ExpectSameAnswers(const v1::QueryAnswers& found, const v1::QueryAnswers& expected) {
  EXPECT_EQ(found.token_count(), expected.token_count());
  ASSERT_EQ(found.answers_size(), expected.answers_size());
  for (int i = 0; i < found.answers_size(); ++i) {
    v1::SpanAnswer answer = found.answers(i);
    EXPECT_NEAR(answer.probability(), expected.answers(i).probability(),
                1e-6 * expected.answers(i).probability())
        << i;
    answer.set_probability(expected.answers(i).probability());
    EXPECT_EQ(answer.SerializeAsString(), expected.answers(i).SerializeAsString())
        << i << ": " << answer.ShortDebugString() << "; expected "
        << expected.answers(i).ShortDebugString();
  }
}

}  // namespace sru::testing

#endif  // SRU_TESTS_INTEGRATION_PLAIN_READER_H_
