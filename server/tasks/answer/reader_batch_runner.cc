#include "server/tasks/answer/reader_batch_runner.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"
#include "models/reader.h"
#include "server/batching/warm_up.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"

namespace sru::server::tasks {
namespace {

// The length of a row of an input that the model has; 0 without.
int WidthOf(const models::Reader& model, kernels::InputId input) {
  return input == kernels::kNone ? 0 : model.program.inputs[input].width;
}

size_t SizeOf(kernels::InputId input, int max_tokens) {
  return input == kernels::kNone ? 0 : max_tokens;
}

class ReaderRunner final : public ProgramRunner<batching::BatchRunner> {
 public:
  ReaderRunner(ProgramRun run, const models::Reader& model, const kernels::WorkspaceLimits& limits)
      : ProgramRunner(std::move(run), limits),
        model_(model),
        num_features_(WidthOf(model, model.passage_features)),
        question_rows_(limits.max_tokens, limits.max_sequences),
        passage_rows_(limits.max_tokens, limits.max_sequences),
        question_of_(limits.max_sequences),
        // Not initialized: what is not used is not touched and so costs nothing.
        features_(new float[static_cast<size_t>(limits.max_tokens) * num_features_]),
        pos_(SizeOf(model.pos_ids, limits.max_tokens)),
        ner_(SizeOf(model.ner_ids, limits.max_tokens)),
        start_logits_(limits.max_tokens),
        end_logits_(limits.max_tokens) {
    passages_.reserve(limits.max_sequences);
  }

  absl::Status Run(const SequenceTasks& sequences) override {
    Clear();  // what is left of a batch that failed
    for (const batching::SequenceTask* sequence : sequences) {
      SRU_RETURN_UNLESS_OK(Check(static_cast<const AnswerTask&>(*sequence)));
    }
    for (const batching::SequenceTask* sequence : sequences) {
      const auto& task = static_cast<const AnswerTask&>(*sequence);
      bool added = false;  // the question, to this run
      for (const AnswerTask::Passage& passage : task.passages) {
        if (passages_.size() == static_cast<size_t>(limits_.max_sequences)) {
          SRU_RETURN_UNLESS_OK(RunPacked());
          added = false;
        }
        if (!added) {
          SRU_RETURN_UNLESS_OK(question_rows_.CheckRoom(task.question_length));
          question_rows_.Add(task.question, task.question_length);
          added = true;
        }
        SRU_RETURN_UNLESS_OK(AddPassage(passage));
      }
    }
    return RunPacked();
  }

 private:
  // The backend checks the values, but what is not there must not even be copied.
  absl::Status Check(const AnswerTask& task) const {
    if (task.passages.empty()) {
      return absl::InvalidArgumentError("answer: expected a question and passages, found none");
    }
    int64_t num_tokens = task.question_length;
    bool complete = task.question != nullptr && task.question_length > 0;
    for (const AnswerTask::Passage& passage : task.passages) {
      num_tokens += passage.length;
      complete &=
          passage.length > 0 && passage.ids != nullptr && passage.start_logits != nullptr &&
          passage.end_logits != nullptr && (num_features_ == 0 || passage.features != nullptr) &&
          (pos_.empty() || passage.pos != nullptr) && (ner_.empty() || passage.ner != nullptr);
    }
    if (!complete) {
      return absl::InvalidArgumentError(
          "answer: expected tokens of the question and of every passage, with the features and "
          "tags "
          "that the model has");
    }
    if (num_tokens == task.num_tokens) return absl::OkStatus();
    return InvalidArgument("answer: expected ", task.num_tokens, " tokens in all, found ",
                           num_tokens);
  }

  absl::Status AddPassage(const AnswerTask::Passage& passage) {
    SRU_RETURN_UNLESS_OK(passage_rows_.CheckRoom(passage.length));
    const int row = passage_rows_.Add(passage.ids, passage.length);
    if (num_features_ > 0) {
      std::copy_n(passage.features, static_cast<size_t>(passage.length) * num_features_,
                  features_.get() + static_cast<size_t>(row) * num_features_);
    }
    if (!pos_.empty()) std::copy_n(passage.pos, passage.length, pos_.begin() + row);
    if (!ner_.empty()) std::copy_n(passage.ner, passage.length, ner_.begin() + row);
    question_of_[passages_.size()] = question_rows_.num_sequences - 1;
    passages_.push_back(&passage);
    return absl::OkStatus();
  }

  // Computes what has been added and begins anew.
  absl::Status RunPacked() {
    run_.axis(model_.passage) = passage_rows_.axis();
    run_.axis(model_.question) = question_rows_.axis();
    run_.input(model_.passage_ids).ids = passage_rows_.ids.data();
    run_.input(model_.question_ids).ids = question_rows_.ids.data();
    run_.input(model_.question_of).ids = question_of_.data();
    if (num_features_ > 0) run_.input(model_.passage_features).values = features_.get();
    if (!pos_.empty()) run_.input(model_.pos_ids).ids = pos_.data();
    if (!ner_.empty()) run_.input(model_.ner_ids).ids = ner_.data();
    run_.output(model_.start_logits).values = start_logits_.data();
    run_.output(model_.end_logits).values = end_logits_.data();
    SRU_RETURN_UNLESS_OK(run_.Run());
    for (size_t i = 0; i < passages_.size(); ++i) {
      const int row = passage_rows_.offsets[i];
      std::copy_n(start_logits_.begin() + row, passages_[i]->length, passages_[i]->start_logits);
      std::copy_n(end_logits_.begin() + row, passages_[i]->length, passages_[i]->end_logits);
    }
    Clear();
    return absl::OkStatus();
  }

  void Clear() {
    question_rows_.Clear();
    passage_rows_.Clear();
    passages_.clear();
  }

  absl::Status RunWarmUpBatch(int num_tokens) override {
    // About as long as a paragraph; a question takes an eighth of it.
    constexpr int kQueryLength = 128;
    constexpr int kQuestionPart = 8;
    const int num_queries =
        std::min(limits_.max_sequences, (num_tokens + kQueryLength - 1) / kQueryLength);
    const std::vector<int32_t> ids(num_tokens);
    const std::vector<float> features(static_cast<size_t>(num_tokens) * num_features_);
    std::vector<float> logits(num_tokens);
    std::vector<AnswerTask> tasks(num_queries);
    SequenceTasks sequences;
    for (int i = 0; i < num_queries; ++i) {
      const int length = batching::EqualPart(num_tokens, num_queries, i);
      AnswerTask& answer = tasks[i];
      answer.question = ids.data();
      answer.question_length = std::max(1, length / kQuestionPart);
      AnswerTask::Passage passage;
      passage.length = std::max(1, length - answer.question_length);
      passage.ids = passage.pos = passage.ner = ids.data();
      passage.features = features.data();
      passage.start_logits = passage.end_logits = logits.data();
      answer.passages.push_back(passage);
      answer.num_tokens = answer.question_length + passage.length;
      sequences.push_back(&answer);
    }
    return Run(sequences);
  }

  const models::Reader& model_;
  const int num_features_;  // per token of a passage; 0: the model has none
  // Of the questions and passages that have been added.
  std::vector<const AnswerTask::Passage*> passages_;
  PackedRows question_rows_;
  PackedRows passage_rows_;
  std::vector<int32_t> question_of_;   // [max_sequences], of each passage
  std::unique_ptr<float[]> features_;  // [max_tokens][num_features]
  std::vector<int32_t> pos_;           // [max_tokens], or empty for a model without
  std::vector<int32_t> ner_;
  std::vector<float> start_logits_;  // [max_tokens]
  std::vector<float> end_logits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<batching::BatchRunner>> MakeReaderRunner(
    const models::Model& model, const batching::RunnerPlace& place) {
  const auto& reader = *model.As<models::Reader>();
  const kernels::WorkspaceLimits& limits = place.limits;
  SRU_ASSIGN_OR_RETURN(
      ProgramRun run,
      ProgramRun::Create(model.program(), reader.program,
                         models::ReaderLimits(reader, limits.max_tokens, limits.max_sequences),
                         limits));
  return std::make_unique<ReaderRunner>(std::move(run), reader, limits);
}

}  // namespace sru::server::tasks
