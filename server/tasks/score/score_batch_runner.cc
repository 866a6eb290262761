#include "server/tasks/score/score_batch_runner.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/kernel_status.h"
#include "models/language_model.h"
#include "server/batching/warm_up.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"

namespace sru::server::tasks {
namespace {

using kernels::StateArena;

const ScoreTask& ScoreOf(const batching::SequenceTask* sequence) {
  return static_cast<const ScoreTask&>(*sequence);
}

// The slots of a batch, freed at its end.
class BatchSlots {
 public:
  BatchSlots(StateArena* arena, const PackedRows& rows) : arena_(arena), rows_(rows) {}
  BatchSlots(const BatchSlots&) = delete;
  BatchSlots& operator=(const BatchSlots&) = delete;
  ~BatchSlots() {
    for (int i = 0; i < rows_.num_sequences; ++i) {
      if (rows_.slots[i] != StateArena::kNoSlot) arena_->Free(rows_.slots[i]);
    }
  }

 private:
  StateArena* const arena_;
  const PackedRows& rows_;
};

class ScoreRunner final : public ProgramRunner<batching::BatchRunner> {
 public:
  ScoreRunner(ProgramRun run, const models::LanguageModel& model,
              const batching::RunnerPlace& place)
      : ProgramRunner(std::move(run), place.limits),
        model_(model),
        arena_(place.arena),
        prefixes_(place.prefixes),
        tokens_(limits_.max_tokens, limits_.max_sequences) {}

  absl::Status Run(const SequenceTasks& sequences) override {
    absl::Status status;
    do {
      status = TryRun(sequences);
    } while (absl::IsResourceExhausted(status) && prefixes_ != nullptr &&
             prefixes_->Evict(sequences.size()));
    return status;
  }

 private:
  absl::Status TryRun(const SequenceTasks& sequences) {
    SRU_RETURN_UNLESS_OK(Pack(sequences));
    const BatchSlots slots(arena_.get(), tokens_);
    SRU_RETURN_UNLESS_OK(MakeSlots(sequences));
    const bool any_candidates = std::any_of(
        sequences.begin(), sequences.end(),
        [](const batching::SequenceTask* task) { return ScoreOf(task).num_candidates > 0; });
    if (any_candidates && candidates_ == nullptr) {
      candidates_ = std::make_unique<kernels::Candidate[]>(static_cast<size_t>(limits_.max_tokens) *
                                                           model_.max_candidates);
    }
    SRU_RETURN_UNLESS_OK(RunPacked(any_candidates));
    return ReadResults(sequences);
  }

  absl::Status Pack(const SequenceTasks& sequences) {
    tokens_.Clear();
    for (const batching::SequenceTask* sequence : sequences) {
      const ScoreTask& task = ScoreOf(sequence);
      if (task.token_ids.size() != static_cast<size_t>(task.num_tokens)) {
        return InvalidArgument("token_ids: expected ", task.num_tokens, " values, found ",
                               task.token_ids.size());
      }
      SRU_RETURN_UNLESS_OK(tokens_.CheckRoom(task.num_tokens));
      tokens_.AddScored(task.token_ids.data(), task.num_tokens, task.num_candidates,
                        task.is_fresh(), StateArena::kNoSlot);
    }
    return absl::OkStatus();
  }

  // Only for the sequences that need one.
  absl::Status MakeSlots(const SequenceTasks& sequences) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const ScoreTask& task = ScoreOf(sequences[i]);
      if (task.is_fresh() && task.final_state == nullptr) continue;
      kernels::Status status = arena_->Allocate(&tokens_.slots[i]);
      if (status.ok() && !task.is_fresh()) status = arena_->Put(tokens_.slots[i], *task.state);
      if (!status.ok()) return models::ToAbslStatus(status);
    }
    return absl::OkStatus();
  }

  absl::Status RunPacked(bool any_candidates) {
    run_.axis(model_.tokens) = tokens_.axis();
    run_.input(model_.ids).ids = tokens_.ids.data();
    run_.input(model_.targets).ids = tokens_.targets.data();
    run_.input(model_.counts).ids = tokens_.counts.data();
    run_.output(model_.log_probs).values = tokens_.log_probs.data();
    run_.output(model_.candidates).candidates = any_candidates ? candidates_.get() : nullptr;
    return run_.Run(arena_.get());
  }

  absl::Status ReadResults(const SequenceTasks& sequences) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const ScoreTask& score = ScoreOf(sequences[i]);
      const int begin = tokens_.offsets[i];
      const int end = tokens_.offsets[i + 1];
      std::copy_n(tokens_.log_probs.begin() + begin, end - begin, score.log_probs);
      for (int row = begin + (score.is_fresh() ? 1 : 0); row < end && score.num_candidates > 0;
           ++row) {
        std::copy_n(candidates_.get() + static_cast<size_t>(row) * model_.max_candidates,
                    score.num_candidates,
                    score.candidates + static_cast<size_t>(row - begin) * score.num_candidates);
      }
      if (score.final_state == nullptr) continue;
      SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena_->Take(tokens_.slots[i], score.final_state)));
    }
    return absl::OkStatus();
  }

  absl::Status RunWarmUpBatch(int num_tokens) override {
    const int num_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
    std::vector<float> log_probs(num_tokens);
    std::vector<ScoreTask> tasks(num_sequences);
    SequenceTasks sequences;
    for (int i = 0; i < num_sequences; ++i) {
      tasks[i].num_tokens = batching::EqualPart(num_tokens, num_sequences, i);
      tasks[i].token_ids.assign(tasks[i].num_tokens, 0);
      tasks[i].log_probs = log_probs.data();
      sequences.push_back(&tasks[i]);
    }
    return Run(sequences);
  }

  const models::LanguageModel& model_;
  const std::shared_ptr<StateArena> arena_;
  const std::shared_ptr<batching::PrefixCache> prefixes_;  // may be null
  PredictedRows tokens_;  // with slots for the sequences that need one
  // [max_tokens][max_candidates]; made when a sequence asks for candidates for the first time.
  std::unique_ptr<kernels::Candidate[]> candidates_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<batching::BatchRunner>> MakeScoreRunner(
    const models::Model& model, const batching::RunnerPlace& place) {
  const auto& language_model = *model.As<models::LanguageModel>();
  SRU_ASSIGN_OR_RETURN(
      ProgramRun run,
      ProgramRun::Create(model.program(), language_model.program,
                         models::LanguageModelLimits(language_model, place.limits.max_tokens,
                                                     place.limits.max_sequences, 0, 0),
                         place.limits));
  return std::make_unique<ScoreRunner>(std::move(run), language_model, place);
}

}  // namespace sru::server::tasks
