// TagBatchRunner: runs batches of sequences on a tagger. It packs them into buffers that it
// allocated once, and owns the workspace of its worker.
#ifndef SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/program.h"
#include "models/model.h"
#include "models/tagger.h"
#include "server/batching/batch_runner.h"
#include "server/batching/warm_up.h"
#include "server/calls/messages/token_task.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"

namespace sru::server::tasks {

// A sequence of which a tagger finds the labels of each token.
struct TagTask : calls::TokenTask {
  // [num_tokens][num_labels]: the most probable labels of each token, the best first; a candidate's
  // id is the label's index. The caller's, valid until the request's `done` is called.
  kernels::Candidate* labels = nullptr;
  int num_labels = 1;  // 1 to models::Tagger::max_labels
};

class TagBatchRunner : public batching::BatchRunner {
 public:
  // `model` is a tagger and must outlive the runner. limits.states is not read.
  static absl::StatusOr<std::unique_ptr<TagBatchRunner>> Create(
      const models::Model& model, const kernels::WorkspaceLimits& limits) {
    const models::Tagger& tagger = *model.As<models::Tagger>();
    kernels::ProgramLimits axes;
    axes.axes.resize(tagger.program.axes.size());
    axes.axes[tagger.tokens] = {limits.max_tokens, limits.max_sequences};
    SRU_ASSIGN_OR_RETURN(ProgramRun run, ProgramRun::Create(model.program(), tagger.program,
                                                            std::move(axes), limits));
    return std::unique_ptr<TagBatchRunner>(new TagBatchRunner(std::move(run), model, limits));
  }

  int device() const override { return limits_.device; }

  absl::Status WarmUp() override {
    return batching::WarmUpBySize(limits_.max_tokens,
                                  [this](int tokens) { return RunWarmUpBatch(tokens); });
  }

  absl::Status Run(const std::vector<const batching::SequenceTask*>& sequences) override {
    SRU_RETURN_UNLESS_OK(Pack(sequences));
    run_.axis(tagger_.tokens) = tokens_.axis();
    if (takes_features()) {
      run_.input(tagger_.features).values = features_.data();
    } else {
      run_.input(tagger_.ids).ids = tokens_.ids.data();
    }
    run_.input(tagger_.counts).ids = counts_.data();
    run_.output(tagger_.labels).candidates = labels_.get();
    SRU_RETURN_UNLESS_OK(run_.Run());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const TagTask& task = TaskOf(sequences[i]);
      for (int t = 0; t < task.num_tokens; ++t) {
        std::copy_n(
            labels_.get() + static_cast<size_t>(tokens_.offsets[i] + t) * tagger_.max_labels,
            task.num_labels, task.labels + static_cast<size_t>(t) * task.num_labels);
      }
    }
    return absl::OkStatus();
  }

 private:
  TagBatchRunner(ProgramRun run, const models::Model& model, const kernels::WorkspaceLimits& limits)
      : run_(std::move(run)),
        tagger_(*model.As<models::Tagger>()),
        feature_size_(model.takes_features() ? model.spec().input_size : 0),
        limits_(limits),
        tokens_(limits.max_tokens, limits.max_sequences),
        features_(limits.max_tokens * feature_size_),
        counts_(limits.max_tokens),
        labels_(
            new kernels::Candidate[static_cast<size_t>(limits.max_tokens) * tagger_.max_labels]) {}

  static const TagTask& TaskOf(const batching::SequenceTask* sequence) {
    return *static_cast<const TagTask*>(sequence);
  }

  absl::Status Pack(const std::vector<const batching::SequenceTask*>& sequences) {
    tokens_.Clear();
    for (const batching::SequenceTask* sequence : sequences) {
      const TagTask& task = TaskOf(sequence);
      const size_t ids = takes_features() ? 0 : task.num_tokens;
      const size_t values = task.num_tokens * feature_size_;
      if (task.token_ids.size() != ids || task.features.size() != values) {
        return InvalidArgument("expected ", ids, " token_ids and ", values,
                               " values of features, found ", task.token_ids.size(), " and ",
                               task.features.size());
      }
      SRU_RETURN_UNLESS_OK(tokens_.CheckRoom(task.num_tokens));
      const int row =
          tokens_.Add(takes_features() ? nullptr : task.token_ids.data(), task.num_tokens);
      std::copy(task.features.begin(), task.features.end(),
                features_.begin() + row * feature_size_);
      std::fill_n(counts_.begin() + row, task.num_tokens, task.num_labels);
    }
    return absl::OkStatus();
  }

  absl::Status RunWarmUpBatch(int num_tokens) {
    const int num_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
    std::vector<kernels::Candidate> labels(num_tokens);  // nobody reads them
    std::vector<TagTask> tasks(num_sequences);
    std::vector<const batching::SequenceTask*> sequences;
    for (int i = 0; i < num_sequences; ++i) {
      TagTask& task = tasks[i];
      task.num_tokens = batching::EqualPart(num_tokens, num_sequences, i);
      if (!takes_features()) task.token_ids.assign(task.num_tokens, 0);
      task.features.assign(task.num_tokens * feature_size_, 0.0f);
      task.labels = labels.data();
      sequences.push_back(&task);
    }
    return Run(sequences);
  }

  bool takes_features() const { return feature_size_ > 0; }

  ProgramRun run_;
  const models::Tagger& tagger_;
  const size_t feature_size_;  // values of a token in features_; 0: the model takes ids
  const kernels::WorkspaceLimits limits_;
  PackedRows tokens_;
  std::vector<float> features_;  // [max_tokens][feature_size_]
  std::vector<int32_t> counts_;  // of labels, by token
  // [max_tokens][max_labels]; not initialized, so that what no token asks for costs nothing.
  const std::unique_ptr<kernels::Candidate[]> labels_;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_
