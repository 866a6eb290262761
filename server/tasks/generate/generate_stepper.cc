#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/program.h"
#include "models/language_model.h"
#include "server/batching/warm_up.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"
#include "server/tasks/programs/step_parts.h"

namespace sru::server::tasks {
namespace {

// Samples that a call may have, all of which pick after the last token of the prompt.
constexpr int kLeastPicks = 64;

// It packs what the sequences need into buffers that it allocated once, and owns the workspace of
// its worker.
//
// A step that is larger than the workspace, by its samples or by what their sampling adjusts, is
// run in parts. When the arena has no room for one, kept prefixes make room; when there are none
// left, it is run in halves, and so on: only a sequence for which there is none even alone has to
// wait.
class GenerateStepper final : public ProgramRunner<batching::StepRunner> {
 public:
  GenerateStepper(ProgramRun run, const models::LanguageModel& model,
                  const batching::RunnerPlace& place, int max_picks, int max_adjustments)
      : ProgramRunner(std::move(run), place.limits),
        model_(model),
        max_picks_(max_picks),
        max_adjustments_(max_adjustments),
        arena_(place.arena),
        prefixes_(place.prefixes),
        tokens_(limits_.max_tokens, limits_.max_sequences),
        pick_sequences_(max_picks),
        pick_counts_(max_picks),
        adjustment_offsets_(max_picks + 1),
        sampling_(max_picks),
        picked_(max_picks) {
    planned_.reserve(limits_.max_sequences);
    items_.reserve(limits_.max_sequences);
    continues_.reserve(limits_.max_sequences);
    first_picks_.reserve(limits_.max_sequences);
    pick_adjustments_.reserve(max_picks);
    packed_.reserve(limits_.max_sequences);
  }

  absl::Status Run(std::vector<batching::StepShare>& shares) override {
    items_.clear();
    continues_.clear();
    first_picks_.clear();
    pick_adjustments_.clear();
    adjustments_.clear();
    PlanItems(
        shares, &planned_,
        [&](const batching::StepShare& share, size_t i) {
          auto* const sequence = static_cast<GenerateSequence*>(share.sequence);
          absl::Status status;
          do {
            planned_.clear();
            status = sequence->Plan(share.rows, arena_, prefixes_, i, &planned_);
          } while (MakeRoom(status, 1));
          return status;
        },
        [&](const GenerateItem& item) { AddItem(item); });
    return RunInParts(
        items_, shares, [&](size_t begin) { return EndOfPart(begin); },
        [&](size_t from, size_t to) {
          absl::Status status;
          do {
            Pack(from, to, shares);
            status = tokens_.num_sequences == 0 ? absl::OkStatus() : RunPacked();
          } while (MakeRoom(status, to - from));
          return status;
        },
        [&] { Commit(shares); });
  }

 private:
  // After an error for want of memory: whether that many kept prefixes, or what there is, have been
  // given up.
  bool MakeRoom(const absl::Status& status, size_t states) {
    return absl::IsResourceExhausted(status) && prefixes_ != nullptr && prefixes_->Evict(states);
  }

  // Appends an item to items_, divided where it alone is too large.
  void AddItem(const GenerateItem& item) {
    items_.push_back(item);
    continues_.push_back(false);
    first_picks_.push_back(pick_adjustments_.size());
    size_t begin = adjustments_.size();
    for (int i = 0; i < item.num_picks; ++i) {
      item.sequence->AppendAdjustments(item.first_pick + i, &adjustments_);
      const bool full = adjustments_.size() - begin > static_cast<size_t>(max_adjustments_) ||
                        i - (items_.back().first_pick - item.first_pick) >= max_picks_;
      if (full) {
        // The rest goes on from the slot alone.
        GenerateItem rest = item;
        rest.ids = nullptr;
        rest.count = 0;
        rest.score = false;
        rest.first_pick = item.first_pick + i;
        rest.num_picks = item.num_picks - i;
        items_.back().num_picks = rest.first_pick - items_.back().first_pick;
        items_.push_back(rest);
        continues_.push_back(true);
        first_picks_.push_back(pick_adjustments_.size());
        begin = pick_adjustments_.empty() ? 0 : pick_adjustments_.back();
      }
      pick_adjustments_.push_back(static_cast<int>(adjustments_.size()));
    }
  }

  // The end of those items that fit into one run together.
  size_t EndOfPart(size_t begin) const {
    const auto end_of = [this](size_t picks) -> int64_t {
      return picks == 0 ? 0 : pick_adjustments_[picks - 1];
    };
    int64_t tokens = 0;
    int64_t picks = 0;
    int64_t adjustments = 0;
    size_t end = begin;
    for (; end < items_.size(); ++end) {
      const size_t first = first_picks_[end];
      tokens += items_[end].count;
      picks += items_[end].num_picks;
      adjustments += end_of(first + items_[end].num_picks) - end_of(first);
      const auto sequences = static_cast<int64_t>(end + 1 - begin);
      if (end > begin &&
          (continues_[end] || tokens > limits_.max_tokens || sequences > limits_.max_sequences ||
           picks > max_picks_ || adjustments > max_adjustments_)) {
        break;
      }
    }
    return end;
  }

  // Passes the results of the batch on.
  void Commit(std::vector<batching::StepShare>& shares) {
    int row = 0;
    int pick = 0;
    for (const size_t i : packed_) {
      const GenerateItem& item = items_[i];
      absl::Status& outcome = shares[item.share].status;
      GenerateSequence::Results results;
      const auto most = static_cast<size_t>(model_.max_candidates);
      results.max_candidates = model_.max_candidates;
      results.log_probs = tokens_.log_probs.data() + row;
      results.picked = picked_.data() + pick;
      if (any_candidates_) results.candidates = candidates_.get() + row * most;
      if (any_pick_candidates_) results.pick_candidates = pick_candidates_.get() + pick * most;
      row += item.count;
      pick += item.num_picks;
      // It has run, whatever came of another item of its share.
      outcome.Update(item.sequence->Commit(item, results));
    }
  }

  // Packs those of items_[begin, end) whose share has not failed.
  void Pack(size_t begin, size_t end, const std::vector<batching::StepShare>& shares) {
    tokens_.Clear();
    num_picks_ = 0;
    any_scores_ = any_candidates_ = any_pick_candidates_ = false;
    packed_adjustments_.clear();
    packed_.clear();
    for (size_t i = begin; i < end; ++i) {
      const GenerateItem& item = items_[i];
      if (!shares[item.share].status.ok()) continue;
      packed_.push_back(i);
      // Only its state is wanted.
      if (item.count == 0 && item.num_picks == 0) continue;
      const GenerateSequence& sequence = *item.sequence;
      if (item.score) {
        any_scores_ = true;
        any_candidates_ = any_candidates_ || sequence.num_candidates() > 0;
        tokens_.AddScored(item.ids, item.count, sequence.num_candidates(),
                          sequence.starts_fresh(item), item.slot);
      } else {
        tokens_.Add(item.ids, item.count, item.slot);
      }
      for (int k = 0; k < item.num_picks; ++k) {
        const size_t pick = first_picks_[i] + k;
        pick_sequences_[num_picks_] = tokens_.num_sequences - 1;
        pick_counts_[num_picks_] = sequence.num_candidates();
        any_pick_candidates_ = any_pick_candidates_ || sequence.num_candidates() > 0;
        sampling_[num_picks_] = sequence.SamplingOf(item.first_pick + k);
        adjustment_offsets_[num_picks_] = static_cast<int32_t>(packed_adjustments_.size());
        const int first = pick == 0 ? 0 : pick_adjustments_[pick - 1];
        packed_adjustments_.insert(packed_adjustments_.end(), adjustments_.begin() + first,
                                   adjustments_.begin() + pick_adjustments_[pick]);
        ++num_picks_;
      }
    }
    adjustment_offsets_[num_picks_] = static_cast<int32_t>(packed_adjustments_.size());
    const auto most = static_cast<size_t>(model_.max_candidates);
    if (any_candidates_ && candidates_ == nullptr) {
      candidates_ = std::make_unique<kernels::Candidate[]>(limits_.max_tokens * most);
    }
    if (any_pick_candidates_ && pick_candidates_ == nullptr) {
      pick_candidates_ = std::make_unique<kernels::Candidate[]>(max_picks_ * most);
    }
  }

  absl::Status RunPacked() {
    run_.axis(model_.tokens) = tokens_.axis();
    const int32_t pick_offsets[2] = {0, num_picks_};
    kernels::AxisBatch& picks = run_.axis(model_.picks);
    picks.num_sequences = num_picks_ > 0 ? 1 : 0;
    picks.offsets = pick_offsets;
    kernels::AxisBatch& adjustments = run_.axis(model_.adjustments);
    adjustments.num_sequences = packed_adjustments_.empty() ? 0 : num_picks_;
    adjustments.offsets = adjustment_offsets_.data();

    run_.input(model_.ids).ids = tokens_.ids.data();
    run_.input(model_.targets).ids = tokens_.targets.data();
    run_.input(model_.counts).ids = tokens_.counts.data();
    run_.input(model_.pick_sequences).ids = pick_sequences_.data();
    run_.input(model_.sampling).sampling = sampling_.data();
    run_.input(model_.pick_counts).ids = pick_counts_.data();
    run_.input(model_.pick_adjustments).adjustments = packed_adjustments_.data();

    run_.output(model_.log_probs).values = any_scores_ ? tokens_.log_probs.data() : nullptr;
    run_.output(model_.candidates).candidates = any_candidates_ ? candidates_.get() : nullptr;
    run_.output(model_.picked).candidates = num_picks_ > 0 ? picked_.data() : nullptr;
    run_.output(model_.pick_candidates).candidates =
        any_pick_candidates_ ? pick_candidates_.get() : nullptr;

    return run_.Run(arena_.get());
  }

  absl::Status RunWarmUpBatch(int num_tokens) override {
    const int sequences = std::min(num_tokens, limits_.max_sequences);
    tokens_.Clear();
    for (int i = 0; i < sequences; ++i) {
      tokens_.Add(nullptr, batching::EqualPart(num_tokens, sequences, i));
      pick_sequences_[i] = i;
      pick_counts_[i] = 0;
      sampling_[i] = kernels::Sampling();
    }
    num_picks_ = sequences;
    any_scores_ = any_candidates_ = any_pick_candidates_ = false;
    packed_adjustments_.clear();
    return RunPacked();
  }

  const models::LanguageModel& model_;
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

}  // namespace

absl::StatusOr<std::unique_ptr<batching::StepRunner>> MakeGenerateStepper(
    const models::Model& model, const batching::RunnerPlace& place, int least_adjustments) {
  const auto& language_model = *model.As<models::LanguageModel>();
  const int max_picks = std::max(place.limits.max_sequences, kLeastPicks);
  // One pick may adjust the whole vocabulary.
  const int max_adjustments = std::max(
      language_model.program.inputs[language_model.pick_adjustments].limit, least_adjustments);
  SRU_ASSIGN_OR_RETURN(
      ProgramRun run,
      ProgramRun::Create(
          model.program(), language_model.program,
          models::LanguageModelLimits(language_model, place.limits.max_tokens,
                                      place.limits.max_sequences, max_picks, max_adjustments),
          place.limits));
  return std::make_unique<GenerateStepper>(std::move(run), language_model, place, max_picks,
                                           max_adjustments);
}

}  // namespace sru::server::tasks
