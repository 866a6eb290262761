#include "server/tasks/tag/tag_batch_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/kernel_status.h"
#include "server/batching/warm_up.h"
#include "server/tasks/tag/tag_task.h"

namespace sru::server::tasks {
namespace {

const TagTask& TaskOf(const batching::SequenceTask* sequence) {
  return *static_cast<const TagTask*>(sequence);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TagBatchRunner>> TagBatchRunner::Create(
    const models::Model& model, const kernels::WorkspaceLimits& limits) {
  kernels::ProgramLimits program_limits;
  program_limits.axes.resize(model.tagger()->program.axes.size());
  program_limits.axes[model.tagger()->tokens] = {limits.max_tokens, limits.max_sequences};
  program_limits.device = limits.device;
  program_limits.turn = limits.turn;
  std::unique_ptr<kernels::ProgramWorkspace> workspace;
  SRU_RETURN_UNLESS_OK(
      models::ToAbslStatus(model.program().CreateWorkspace(program_limits, &workspace)));
  return std::unique_ptr<TagBatchRunner>(new TagBatchRunner(model, limits, std::move(workspace)));
}

TagBatchRunner::TagBatchRunner(const models::Model& model, const kernels::WorkspaceLimits& limits,
                               std::unique_ptr<kernels::ProgramWorkspace> workspace)
    : executable_(model.program()),
      tagger_(*model.tagger()),
      limits_(limits),
      workspace_(std::move(workspace)),
      offsets_(limits.max_sequences + 1),
      token_ids_(takes_features() ? 0 : limits.max_tokens),
      features_(limits.max_tokens * feature_size()),
      counts_(limits.max_tokens),
      labels_(new kernels::Candidate[static_cast<size_t>(limits.max_tokens) * tagger_.max_labels]) {
}

absl::Status TagBatchRunner::WarmUp() {
  return batching::WarmUpBySize(limits_.max_tokens,
                                [this](int tokens) { return RunWarmUpBatch(tokens); });
}

absl::Status TagBatchRunner::Run(const std::vector<const batching::SequenceTask*>& sequences) {
  SRU_RETURN_UNLESS_OK(Pack(sequences));
  std::vector<kernels::AxisBatch> axes(tagger_.program.axes.size());
  axes[tagger_.tokens].num_sequences = static_cast<int>(sequences.size());
  axes[tagger_.tokens].offsets = offsets_.data();
  std::vector<kernels::InputBatch> inputs(tagger_.program.inputs.size());
  if (takes_features()) {
    inputs[tagger_.features].values = features_.data();
  } else {
    inputs[tagger_.ids].ids = token_ids_.data();
  }
  inputs[tagger_.counts].ids = counts_.data();
  std::vector<kernels::OutputBatch> outputs(tagger_.program.outputs.size());
  outputs[tagger_.labels].candidates = labels_.get();
  kernels::ProgramBatch batch;
  batch.axes = axes.data();
  batch.inputs = inputs.data();
  SRU_RETURN_UNLESS_OK(models::ToAbslStatus(executable_.Run(batch, outputs.data(), *workspace_)));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const TagTask& task = TaskOf(sequences[i]);
    for (int t = 0; t < task.num_tokens; ++t) {
      std::copy_n(labels_.get() + static_cast<size_t>(offsets_[i] + t) * tagger_.max_labels,
                  task.num_labels, task.labels + static_cast<size_t>(t) * task.num_labels);
    }
  }
  return absl::OkStatus();
}

absl::Status TagBatchRunner::Pack(const std::vector<const batching::SequenceTask*>& sequences) {
  if (sequences.size() > static_cast<size_t>(limits_.max_sequences)) {
    return absl::InternalError(absl::StrCat("a batch of ", sequences.size(),
                                            " sequences is over the workspace's limit of ",
                                            limits_.max_sequences));
  }
  int row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const TagTask& task = TaskOf(sequences[i]);
    const size_t ids = takes_features() ? 0 : task.num_tokens;
    const size_t values = task.num_tokens * feature_size();
    if (task.token_ids.size() != ids || task.features.size() != values) {
      return InvalidArgument("expected ", ids, " token_ids and ", values,
                             " values of features, found ", task.token_ids.size(), " and ",
                             task.features.size());
    }
    if (task.num_tokens > limits_.max_tokens - row) {
      return absl::InternalError(absl::StrCat("the batch is over the workspace's limit of ",
                                              limits_.max_tokens, " tokens"));
    }
    offsets_[i] = row;
    std::copy(task.token_ids.begin(), task.token_ids.end(),
              token_ids_.begin() + (ids > 0 ? row : 0));
    std::copy(task.features.begin(), task.features.end(), features_.begin() + row * feature_size());
    std::fill_n(counts_.begin() + row, task.num_tokens, task.num_labels);
    row += task.num_tokens;
  }
  offsets_[sequences.size()] = row;
  return absl::OkStatus();
}

absl::Status TagBatchRunner::RunWarmUpBatch(int num_tokens) {
  const int num_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
  std::vector<kernels::Candidate> labels(num_tokens);  // nobody reads them
  std::vector<TagTask> tasks(num_sequences);
  std::vector<const batching::SequenceTask*> sequences;
  for (int i = 0; i < num_sequences; ++i) {
    TagTask& task = tasks[i];
    task.num_tokens = batching::EqualPart(num_tokens, num_sequences, i);
    if (!takes_features()) task.token_ids.assign(task.num_tokens, 0);
    task.features.assign(task.num_tokens * feature_size(), 0.0f);
    task.labels = labels.data();
    sequences.push_back(&task);
  }
  return Run(sequences);
}

}  // namespace sru::server::tasks
