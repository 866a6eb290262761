// GenerateSequence: one call of Generate, as a sequence of steps. Its prompt is computed once, on a
// slot of the arena; then each sample goes on as a branch with a slot of its own, a picker and a
// text.
//
// With a prefix cache, a fresh prompt goes on from the longest beginning whose state is kept, and
// its own states are kept where it leaves what others have asked, and at its end. A prompt whose
// own log-probabilities or candidates are asked for is computed as a whole.
//
// Tokens are kept as ids, so that all of it can be computed again from its start (Rewind()) and
// goes on with the same tokens. What a step has added waits per sample until Deliver() passes it
// on: a sink that is slower than the steps gets larger chunks.
//
// Thread-safety: as StepSequence says; the functions for the stepper are called by the runner of
// the step that it is in.
#ifndef SRU_SERVER_TASKS_GENERATE_GENERATE_SEQUENCE_H_
#define SRU_SERVER_TASKS_GENERATE_GENERATE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/decoding/generated_text.h"
#include "models/decoding/stop_strings.h"
#include "models/decoding/token_picker.h"
#include "models/model.h"
#include "models/state_codec.h"
#include "server/batching/engine.h"
#include "server/batching/prefix_cache.h"
#include "server/batching/steps/step_runner.h"
#include "server/batching/steps/step_service.h"
#include "server/tasks/generate/generate_task.h"

namespace sru::server::tasks {

class GenerateSequence;

// A sequence of the program's batch: some tokens of the prompt or of one branch, and what is picked
// after them. It may have no tokens: then the picks go on from what its slot holds.
struct GenerateItem {
  static constexpr int kPrompt = -1;

  GenerateSequence* sequence = nullptr;
  size_t share = 0;      // of the step
  int branch = kPrompt;  // or a branch
  const int32_t* ids = nullptr;
  int count = 0;
  kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
  int first_row = 0;   // of the tokens in the prompt or the branch
  bool score = false;  // log-probabilities and candidates of the tokens are asked for
  // The branches that pick after it.
  int first_pick = 0;
  int num_picks = 0;
};

class GenerateSequence : public batching::StepSequence {
 public:
  // `model`, a language model, must outlive the sequence, and `task` its sink's OnDone().
  GenerateSequence(const GenerateTask* task, const models::Model& model);
  ~GenerateSequence() override;

  batching::StepNeed need() const override;
  bool holds_state() const override { return arena_ != nullptr; }
  void Rewind() override;
  void Suspend() override { suspended_ = true; }
  void Deliver() override;
  batching::StepProgress OnStep(const batching::StepTimes& /*step*/) override {
    batching::StepProgress progress;
    progress.new_tokens = std::exchange(new_tokens_, 0);
    return progress;
  }
  void End(const absl::Status& status, const batching::RequestTimes& times) override;

  // For the stepper. Appends what the next step of up to `rows` rows needs, with slots of `arena`,
  // whose prefix cache is `prefixes` (may be null). An error changes nothing that matters;
  // kResourceExhausted: there is no memory for its slots.
  absl::Status Plan(int rows, const std::shared_ptr<kernels::StateArena>& arena,
                    const std::shared_ptr<batching::PrefixCache>& prefixes, size_t share,
                    std::vector<GenerateItem>* items);
  kernels::Sampling SamplingOf(int branch) const { return branches_[branch].picker.Next(); }
  void AppendAdjustments(int branch, std::vector<kernels::Adjustment>* adjustments) const;
  int num_candidates() const { return task_.num_candidates; }
  // Whether the first row of the item has nothing that it could be predicted from.
  bool starts_fresh(const GenerateItem& item) const {
    return item.branch == GenerateItem::kPrompt && item.first_row == 0 && task_.state == nullptr;
  }

  // The results of an item. `log_probs` [count] and `candidates` [count][max_candidates] of its
  // tokens if they are scored, `picked` [num_picks] and `pick_candidates`
  // [num_picks][max_candidates].
  struct Results {
    const float* log_probs = nullptr;
    const kernels::Candidate* candidates = nullptr;
    const kernels::Candidate* picked = nullptr;
    const kernels::Candidate* pick_candidates = nullptr;
    int max_candidates = 0;
  };
  // The item has run. An error ends the call, except for kResourceExhausted.
  absl::Status Commit(const GenerateItem& item, const Results& results);

  const GenerateTask& task() const { return task_; }

 private:
  struct Branch {
    Branch(models::TokenPicker made_picker, models::GeneratedText made_text)
        : picker(std::move(made_picker)), text(std::move(made_text)) {}

    kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
    models::TokenPicker picker;
    models::GeneratedText text;
    std::vector<int32_t> tokens;  // that have been picked
    size_t fed = 0;               // of these, on the slot
    FinishReason finish = FinishReason::kNone;
    bool closed = false;  // nothing more comes of it
  };

  bool prompt_done() const { return prompt_fed_ == task_.prompt.size(); }
  bool MayStop(const Branch& branch) const {
    return branch.tokens.size() >= static_cast<size_t>(task_.min_new_tokens);
  }
  bool WantsPick(const Branch& branch) const {
    return !branch.closed && branch.finish == FinishReason::kNone && !suspended_;
  }
  bool WantsState(const Branch& branch) const {
    return !branch.closed &&
           (suspended_ || (branch.finish != FinishReason::kNone && task_.return_state));
  }
  Branch FirstBranch() const;
  // Puts the given state, or that of a kept beginning of the prompt, into a slot, if there is none
  // yet.
  absl::Status Begin(const std::shared_ptr<kernels::StateArena>& arena,
                     const std::shared_ptr<batching::PrefixCache>& prefixes);
  // Keeps the state after the part of the prompt that has been fed, if that is a place for it.
  void KeepPrefix();
  // Gives each branch a slot with the state after the prompt.
  absl::Status Fork();
  void FreeSlot(kernels::StateArena::Slot* slot);
  // The picker and the text take in the token that was picked last.
  void TakeInToken(int index);
  absl::Status TakeState(int index);
  void Close(int index, std::string state);
  void CommitScores(const GenerateItem& item, const Results& results);

  const GenerateTask& task_;
  const models::Detokenizer* const detokenizer_;  // may be null
  const models::StateCodec& state_codec_;
  std::vector<int32_t> stop_token_ids_;  // sorted
  std::shared_ptr<const models::SamplingOptions> sampling_;
  std::shared_ptr<const models::StopStrings> stop_;
  models::DecodingMemo memo_;  // before the prompt

  std::shared_ptr<kernels::StateArena> arena_;  // that the slots are of; null: there are none
  kernels::StateArena::Slot prompt_slot_ = kernels::StateArena::kNoSlot;
  size_t prompt_fed_ = 0;
  std::shared_ptr<batching::PrefixCache>
      prefixes_;        // of the arena; null: the prompt has nothing to do with it
  size_t keep_at_ = 0;  // where a step of the prompt ends, to keep its state
  size_t kept_ = 0;     // the longest beginning whose state is kept
  size_t prompt_scored_ = 0;
  bool forked_ = false;
  bool suspended_ = false;
  std::vector<Branch> branches_;
  size_t first_branch_ = 0;  // in the next step; it changes, for steps that do not take all
  int new_tokens_ = 0;       // since OnStep()

  Mutex mutex_;
  std::vector<WaitingChunk> unsent_ ABSL_GUARDED_BY(mutex_);  // [branch]
  GenerateSink* sink_ ABSL_GUARDED_BY(mutex_);                // null after the end
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  batching::RequestTimes end_times_ ABSL_GUARDED_BY(mutex_);
  int64_t end_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Submits a call of `model` to its service, with the errors of StepService::Submit(). If the status
// is OK, the sink of the task gets OnDone() exactly once, maybe before this returns, and `task`
// must live until then.
absl::StatusOr<batching::SequenceHandle> SubmitGenerate(const models::Model& model,
                                                        batching::StepService& service,
                                                        const GenerateTask& task);

// Of all picks of a batch, unless a caller says otherwise.
inline constexpr int kLeastAdjustments = 1 << 14;

// The runner of steps of GenerateSequences. `model`, a language model, must outlive the runner. The
// place's arena is shared with the other runners of its device, and so is the cache of prefixes,
// which may be null. `least_adjustments` fit into a batch, or those of one pick if that is more.
absl::StatusOr<std::unique_ptr<batching::StepRunner>> MakeGenerateStepper(
    const models::Model& model, const batching::RunnerPlace& place,
    int least_adjustments = kLeastAdjustments);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_GENERATE_GENERATE_SEQUENCE_H_
