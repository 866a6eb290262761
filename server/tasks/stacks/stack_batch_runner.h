// StackTask: a sequence that a stack of layers computes, of a classifier or an encoder.
// StackBatchRunner: runs batches of them. It packs the sequences into buffers that it allocated
// once, and owns the workspace of its worker.
#ifndef SRU_SERVER_TASKS_STACKS_STACK_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_STACKS_STACK_BATCH_RUNNER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "server/batching/batch_runner.h"
#include "server/batching/engine.h"
#include "server/batching/warm_up.h"
#include "server/calls/messages/token_task.h"
#include "server/tasks/programs/packed_rows.h"

namespace sru::server::tasks {

struct StackTask : calls::TokenTask {
  // [layers][output_size]: the state that the sequence continues from; null = it begins here. For a
  // unidirectional model; the state after it goes to output.final_state.
  const float* initial_state = nullptr;
  kernels::SequenceOutput output;
};

class StackBatchRunner : public batching::BatchRunner {
 public:
  // `executable` and `spec` must outlive the runner.
  static absl::StatusOr<std::unique_ptr<StackBatchRunner>> Create(
      const kernels::Executable& executable, const kernels::StackSpec& spec,
      const kernels::WorkspaceLimits& limits) {
    std::unique_ptr<kernels::Workspace> workspace;
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(executable.CreateWorkspace(limits, &workspace)));
    return std::unique_ptr<StackBatchRunner>(
        new StackBatchRunner(executable, spec, limits, std::move(workspace)));
  }

  int device() const override { return limits_.device; }

  absl::Status WarmUp() override {
    return batching::WarmUpBySize(limits_.max_tokens,
                                  [this](int tokens) { return RunWarmUpBatch(tokens); });
  }

  absl::Status Run(const std::vector<const batching::SequenceTask*>& sequences) override {
    bool has_ids = false;
    bool has_features = false;
    for (const batching::SequenceTask* task : sequences) {
      const auto* const sequence = static_cast<const StackTask*>(task);
      SRU_RETURN_UNLESS_OK(Check(*sequence));
      (sequence->features.empty() ? has_ids : has_features) = true;
    }
    // A batch with both kinds is rare; the backend runs each kind as a batch of its own.
    if (has_ids) {
      SRU_RETURN_UNLESS_OK(RunKind(sequences, /*features=*/false));
    }
    if (has_features) return RunKind(sequences, /*features=*/true);
    return absl::OkStatus();
  }

 private:
  StackBatchRunner(const kernels::Executable& executable, const kernels::StackSpec& spec,
                   const kernels::WorkspaceLimits& limits,
                   std::unique_ptr<kernels::Workspace> workspace)
      : executable_(executable),
        spec_(spec),
        limits_(limits),
        workspace_(std::move(workspace)),
        tokens_(limits.max_tokens, limits.max_sequences),
        // Not initialized: with a model that takes token ids only, this memory is never touched and
        // so costs nothing.
        features_(new float[static_cast<size_t>(limits.max_tokens) * spec.input_size]),
        outputs_(limits.max_sequences),
        initial_states_(limits.max_sequences) {}

  // The backend checks the rest, but a sequence whose data does not match its length must not even
  // be copied.
  absl::Status Check(const StackTask& sequence) const {
    const size_t num_tokens = static_cast<size_t>(std::max(sequence.num_tokens, 0));
    if (sequence.features.empty()) {
      if (sequence.token_ids.size() == num_tokens) return absl::OkStatus();
      return InvalidArgument("token_ids: expected ", num_tokens, " values, found ",
                             sequence.token_ids.size());
    }
    if (!sequence.token_ids.empty()) {
      return absl::InvalidArgumentError("expected token_ids or features, found both");
    }
    if (sequence.features.size() == num_tokens * spec_.input_size) return absl::OkStatus();
    return InvalidArgument("features: expected ", num_tokens, " x ", spec_.input_size,
                           " values, found ", sequence.features.size());
  }

  absl::Status RunKind(const std::vector<const batching::SequenceTask*>& sequences, bool features) {
    tokens_.Clear();
    bool goes_on = false;
    for (const batching::SequenceTask* task : sequences) {
      const auto* const sequence = static_cast<const StackTask*>(task);
      if (sequence->features.empty() == features) continue;
      SRU_RETURN_UNLESS_OK(tokens_.CheckRoom(sequence->num_tokens));
      outputs_[tokens_.num_sequences] = sequence->output;
      initial_states_[tokens_.num_sequences] = sequence->initial_state;
      goes_on |= sequence->initial_state != nullptr;
      const int row =
          tokens_.Add(features ? nullptr : sequence->token_ids.data(), sequence->num_tokens);
      std::copy(sequence->features.begin(), sequence->features.end(),
                features_.get() + static_cast<size_t>(row) * spec_.input_size);
    }
    kernels::RaggedBatch batch;
    batch.num_sequences = tokens_.num_sequences;
    batch.offsets = tokens_.offsets.data();
    if (goes_on) batch.initial_states = initial_states_.data();
    if (features) {
      batch.features = features_.get();
    } else {
      batch.token_ids = tokens_.ids.data();
    }
    return models::ToAbslStatus(executable_.Run(batch, outputs_.data(), *workspace_));
  }

  absl::Status RunWarmUpBatch(int num_tokens) {
    const int max_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
    const bool classify = spec_.num_labels > 0;
    const int width = classify ? spec_.num_labels : spec_.output_size();
    std::vector<float> results(static_cast<size_t>(max_sequences) * width);
    std::vector<StackTask> tasks(max_sequences);
    std::vector<const batching::SequenceTask*> sequences;
    for (int i = 0; i < max_sequences; ++i) {
      StackTask& task = tasks[i];
      task.num_tokens = batching::EqualPart(num_tokens, max_sequences, i);
      if (spec_.vocabulary_size > 0) {
        task.token_ids.assign(task.num_tokens, 0);
      } else {
        task.features.assign(static_cast<size_t>(task.num_tokens) * spec_.input_size, 0.0f);
      }
      float* const result = results.data() + static_cast<size_t>(i) * width;
      if (classify) {
        task.output.pooling = spec_.pooling;
        task.output.logits = result;
      } else {
        task.output.pooling = kernels::Pooling::kLast;
        task.output.pooled = result;
      }
      sequences.push_back(&task);
    }
    return Run(sequences);
  }

  const kernels::Executable& executable_;
  const kernels::StackSpec& spec_;
  const kernels::WorkspaceLimits limits_;
  const std::unique_ptr<kernels::Workspace> workspace_;
  PackedRows tokens_;
  const std::unique_ptr<float[]> features_;
  std::vector<kernels::SequenceOutput> outputs_;
  std::vector<const float*> initial_states_;
};

// The row of classifiers and encoders.
inline void AddStackRunners(batching::TaskRunners* row) {
  row->make_batch_runner = [](const models::Model& model, const batching::RunnerPlace& place)
      -> absl::StatusOr<std::unique_ptr<batching::BatchRunner>> {
    return StackBatchRunner::Create(model.executable(), model.spec(), place.limits);
  };
}

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_STACKS_STACK_BATCH_RUNNER_H_
