// TagBatchRunner: runs batches of sequences on a tagger. It packs them into buffers that it allocated once, and owns the workspace of
// its worker.
#ifndef SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "server/batching/batch_runner.h"

namespace sru::server::tasks {

class TagBatchRunner : public batching::BatchRunner {
 public:
  // `model` is a tagger and must outlive the runner. limits.states is not read.
  static absl::StatusOr<std::unique_ptr<TagBatchRunner>> Create(
      const models::Model& model, const kernels::WorkspaceLimits& limits);

  int device() const override { return limits_.device; }
  absl::Status WarmUp() override;
  absl::Status Run(const std::vector<const batching::SequenceTask*>& sequences) override;

 private:
  TagBatchRunner(const models::Model& model, const kernels::WorkspaceLimits& limits,
                 std::unique_ptr<kernels::ProgramWorkspace> workspace);

  absl::Status Pack(const std::vector<const batching::SequenceTask*>& sequences);
  absl::Status RunWarmUpBatch(int num_tokens);

  bool takes_features() const { return tagger_.features != kernels::kNone; }
  // Values of a token in features_.
  size_t feature_size() const { return takes_features() ? tagger_.stack().input_size : 0; }

  const kernels::ProgramExecutable& executable_;
  const models::Tagger& tagger_;
  const kernels::WorkspaceLimits limits_;
  const std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::vector<int32_t> offsets_;
  std::vector<int32_t> token_ids_;
  std::vector<float> features_;  // [max_tokens][feature_size()]
  std::vector<int32_t> counts_;  // of labels, by token
  // [max_tokens][max_labels]; not initialized, so that what no token asks for costs nothing.
  const std::unique_ptr<kernels::Candidate[]> labels_;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TAG_TAG_BATCH_RUNNER_H_
