// GenerateStepper: runs steps of GenerateSequences on a language model. It packs what they need
// into buffers that it allocated once, and owns the workspace of its worker.
//
// A step that is larger than the workspace, by its samples or by what their sampling adjusts, is
// run in parts. When the arena has no room for one, kept prefixes make room; when there are none
// left, it is run in halves, and so on: only a sequence for which there is none even alone has to
// wait.
#ifndef SRU_SERVER_TASKS_GENERATE_GENERATE_STEPPER_H_
#define SRU_SERVER_TASKS_GENERATE_GENERATE_STEPPER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "models/language_model.h"
#include "server/batching/prefix_cache.h"
#include "server/batching/steps/step_runner.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"

namespace sru::server::tasks {

class GenerateStepper : public batching::StepRunner {
 public:
  // Of all picks of a batch, unless a caller says otherwise.
  static constexpr int kLeastAdjustments = 1 << 14;

  // `executable` and `model` must outlive the stepper. `arena` is of the
  // device that `limits` names and shared with the others of that device. limits.states is not
  // read. `prefixes` is the cache of the same arena, shared as well; null: there is none.
  // `least_adjustments` fit into a batch, or those of one pick if that is more.
  static absl::StatusOr<std::unique_ptr<GenerateStepper>> Create(
      const kernels::ProgramExecutable& executable, const models::LanguageModel& model,
      const kernels::WorkspaceLimits& limits, std::shared_ptr<kernels::StateArena> arena,
      std::shared_ptr<batching::PrefixCache> prefixes = nullptr,
      int least_adjustments = kLeastAdjustments);

  int device() const override { return limits_.device; }
  absl::Status WarmUp() override;
  // The sequences are GenerateSequences.
  absl::Status Run(std::vector<batching::StepShare>& shares) override;

 private:
  GenerateStepper(ProgramRun run, const models::LanguageModel& model,
                  const kernels::WorkspaceLimits& limits, int max_picks, int max_adjustments,
                  std::shared_ptr<kernels::StateArena> arena,
                  std::shared_ptr<batching::PrefixCache> prefixes);

  // After an error for want of memory: whether that many kept prefixes, or what there is, have been
  // given up.
  bool MakeRoom(const absl::Status& status, size_t states);
  // Appends an item to items_, divided where it alone is too large.
  void AddItem(const GenerateItem& item);
  // The end of those items that fit into one run together.
  size_t EndOfPart(size_t begin) const;
  // Packs those of items_[begin, end) whose share has not failed.
  void Pack(size_t begin, size_t end, const std::vector<batching::StepShare>& shares);
  // Passes the results of the batch on.
  void Commit(std::vector<batching::StepShare>& shares);
  absl::Status RunPacked();
  absl::Status RunWarmUpBatch(int num_tokens);

  ProgramRun run_;
  const models::LanguageModel& model_;
  const kernels::WorkspaceLimits limits_;
  const int max_picks_;
  const int max_adjustments_;
  const std::shared_ptr<kernels::StateArena> arena_;
  const std::shared_ptr<batching::PrefixCache> prefixes_;  // may be null

  // The step.
  std::vector<GenerateItem> planned_;
  std::vector<GenerateItem> items_;
  std::vector<bool> continues_;        // [item]: it is on the slot of the one before it
  std::vector<int> pick_adjustments_;  // of each pick, where its adjustments end
  std::vector<size_t> first_picks_;    // [item]: index of its first pick
  std::vector<kernels::Adjustment> adjustments_;

  // The batch.
  int num_picks_ = 0;
  bool any_scores_ = false;
  bool any_candidates_ = false;
  bool any_pick_candidates_ = false;
  PredictedRows tokens_;
  std::vector<int32_t> pick_sequences_;
  std::vector<int32_t> pick_counts_;
  std::vector<int32_t> adjustment_offsets_;
  std::vector<kernels::Sampling> sampling_;
  std::vector<kernels::Adjustment> packed_adjustments_;
  std::vector<kernels::Candidate> picked_;
  // Made when they are asked for, for the first time.
  std::unique_ptr<kernels::Candidate[]> candidates_;       // [max_tokens][max_candidates]
  std::unique_ptr<kernels::Candidate[]> pick_candidates_;  // [max_picks][max_candidates]
  std::vector<size_t> packed_;                             // the items that are in it
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_GENERATE_GENERATE_STEPPER_H_
