#include "server/tasks/score/score_batch_runner.h"

#include <algorithm>
#include <cstddef>

#include "base/status.h"
#include "models/kernel_status.h"
#include "server/batching/warm_up.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<ScoreBatchRunner>> ScoreBatchRunner::Create(
    const kernels::ProgramExecutable& executable, const models::LanguageModel& model,
    const kernels::WorkspaceLimits& limits, std::shared_ptr<kernels::StateArena> arena,
    std::shared_ptr<batching::PrefixCache> prefixes) {
  SRU_ASSIGN_OR_RETURN(ProgramRun run,
                       ProgramRun::Create(executable, model.program,
                                          models::LanguageModelLimits(model, limits.max_tokens,
                                                                      limits.max_sequences, 0, 0),
                                          limits));
  return std::unique_ptr<ScoreBatchRunner>(
      new ScoreBatchRunner(std::move(run), model, limits, std::move(arena), std::move(prefixes)));
}

ScoreBatchRunner::ScoreBatchRunner(ProgramRun run, const models::LanguageModel& model,
                                   const kernels::WorkspaceLimits& limits,
                                   std::shared_ptr<kernels::StateArena> arena,
                                   std::shared_ptr<batching::PrefixCache> prefixes)
    : run_(std::move(run)),
      model_(model),
      limits_(limits),
      arena_(std::move(arena)),
      prefixes_(std::move(prefixes)),
      tokens_(limits.max_tokens, limits.max_sequences) {}

absl::Status ScoreBatchRunner::WarmUp() {
  return batching::WarmUpBySize(limits_.max_tokens,
                                [this](int tokens) { return RunWarmUpBatch(tokens); });
}

absl::Status ScoreBatchRunner::Run(const std::vector<const batching::SequenceTask*>& sequences) {
  absl::Status status;
  do {
    status = TryRun(sequences);
  } while (absl::IsResourceExhausted(status) && prefixes_ != nullptr &&
           prefixes_->Evict(sequences.size()));
  return status;
}

absl::Status ScoreBatchRunner::TryRun(const std::vector<const batching::SequenceTask*>& sequences) {
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
  absl::Status status = RunPacked(any_candidates);
  return status.ok() ? ReadResults(sequences) : status;
}

absl::Status ScoreBatchRunner::Pack(const std::vector<const batching::SequenceTask*>& sequences) {
  tokens_.Clear();
  for (const batching::SequenceTask* sequence : sequences) {
    const ScoreTask& task = ScoreOf(sequence);
    if (task.token_ids.size() != static_cast<size_t>(task.num_tokens)) {
      return InvalidArgument("token_ids: expected ", task.num_tokens, " values, found ",
                             task.token_ids.size());
    }
    SRU_RETURN_UNLESS_OK(tokens_.CheckRoom(task.num_tokens));
    tokens_.AddScored(task.token_ids.data(), task.num_tokens, task.num_candidates, task.is_fresh(),
                      StateArena::kNoSlot);
  }
  return absl::OkStatus();
}

// Only for the sequences that need one.
absl::Status ScoreBatchRunner::MakeSlots(
    const std::vector<const batching::SequenceTask*>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ScoreTask& task = ScoreOf(sequences[i]);
    if (task.is_fresh() && task.final_state == nullptr) continue;
    kernels::Status status = arena_->Allocate(&tokens_.slots[i]);
    if (status.ok() && !task.is_fresh()) status = arena_->Put(tokens_.slots[i], *task.state);
    if (!status.ok()) return models::ToAbslStatus(status);
  }
  return absl::OkStatus();
}

absl::Status ScoreBatchRunner::RunPacked(bool any_candidates) {
  run_.axis(model_.tokens) = tokens_.axis();
  run_.input(model_.ids).ids = tokens_.ids.data();
  run_.input(model_.targets).ids = tokens_.targets.data();
  run_.input(model_.counts).ids = tokens_.counts.data();
  run_.output(model_.log_probs).values = tokens_.log_probs.data();
  run_.output(model_.candidates).candidates = any_candidates ? candidates_.get() : nullptr;
  return run_.Run(arena_.get());
}

absl::Status ScoreBatchRunner::ReadResults(
    const std::vector<const batching::SequenceTask*>& sequences) {
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

absl::Status ScoreBatchRunner::RunWarmUpBatch(int num_tokens) {
  const int num_sequences = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
  std::vector<float> log_probs(num_tokens);
  std::vector<ScoreTask> tasks(num_sequences);
  std::vector<const batching::SequenceTask*> sequences;
  for (int i = 0; i < num_sequences; ++i) {
    tasks[i].num_tokens = batching::EqualPart(num_tokens, num_sequences, i);
    tasks[i].token_ids.assign(tasks[i].num_tokens, 0);
    tasks[i].log_probs = log_probs.data();  // nobody reads them
    sequences.push_back(&tasks[i]);
  }
  return Run(sequences);
}

}  // namespace sru::server::tasks
