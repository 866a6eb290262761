#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/status.h"
#include "models/kernel_status.h"
#include "models/translator.h"
#include "server/batching/warm_up.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"
#include "server/tasks/programs/step_parts.h"
#include "server/tasks/translate/translate_sequence.h"

namespace sru::server::tasks {
namespace {

using kernels::StateArena;
using Kind = TranslateItem::Kind;

// Of the alignments of a batch: a megabyte of them, or those of one token and the longest source.
constexpr int64_t kLeastWeights = 1 << 18;

constexpr int kWarmUpChoices = 512;

// It packs what the sequences need into buffers that it allocated once, and owns the workspace of
// its worker.
//
// A step is one run of the program, in which some sentences are encoded and hypotheses of others
// get a token, and a second one if alignments are asked for: only theirs are computed. A step that
// is larger than the workspace, by the hypotheses of its sentences, is run in parts. When the arena
// has no room for one, it is run in halves, and so on: only a sentence for which there is none even
// alone has to wait.
class TranslateStepper final : public ProgramRunner<batching::StepRunner> {
 public:
  TranslateStepper(ProgramRun run, const models::Translator& model,
                   const batching::RunnerPlace& place)
      : ProgramRunner(std::move(run), place.limits),
        model_(model),
        arena_(place.arena),
        source_(run_.limits().axes[model.source]),
        target_(limits_.max_tokens, limits_.max_sequences),
        choices_(model.choices == kernels::kNone ? kernels::AxisLimits()
                                                 : run_.limits().axes[model.choices]),
        positions_(limits_.max_tokens),
        choice_map_(limits_.max_sequences),
        candidates_(new kernels::Candidate[static_cast<size_t>(limits_.max_tokens) *
                                           static_cast<size_t>(model.max_candidates)]) {
    planned_.reserve(limits_.max_sequences);
    items_.reserve(limits_.max_sequences);
    packed_.reserve(2 * static_cast<size_t>(limits_.max_sequences));
  }

  absl::Status Run(std::vector<batching::StepShare>& shares) override {
    items_.clear();
    alignments_.clear();
    PlanItems(
        shares, &planned_,
        [&](const batching::StepShare& share, size_t i) {
          return static_cast<TranslateSequence*>(share.sequence)
              ->Plan(share.rows, run_.limits().max_attention_values, arena_, i, &planned_);
        },
        [&](const TranslateItem& item) {
          (item.kind == Kind::kAlign ? alignments_ : items_).push_back(item);
        });
    for (const auto* items : {&items_, &alignments_}) {
      SRU_RETURN_UNLESS_OK(RunInParts(
          *items, shares, [&](size_t begin) { return EndOfPart(*items, begin); },
          [&](size_t from, size_t to) {
            Pack(*items, from, to, shares);
            return packed_.empty() ? absl::OkStatus() : RunPacked();
          },
          [&] { Commit(shares); }));
    }
    return absl::OkStatus();
  }

 private:
  // The end of those items that fit into one run together.
  size_t EndOfPart(const std::vector<TranslateItem>& items, size_t begin) const {
    int64_t tokens[2] = {0, 0};  // of sources and of hypotheses
    int sequences[2] = {0, 0};
    int64_t weights = 0;
    size_t choices = 0;
    size_t end = begin;
    for (; end < items.size(); ++end) {
      const TranslateItem& item = items[end];
      const int axis = item.kind == Kind::kSource ? 0 : 1;
      const bool first = end == begin || items[end - 1].sequence != item.sequence;
      if (item.kind == Kind::kSearch && first) choices += item.sequence->choices().size();
      tokens[axis] += item.count;
      ++sequences[axis];
      weights += int64_t{item.count} * item.num_weights;
      if (tokens[axis] > limits_.max_tokens || sequences[axis] > limits_.max_sequences ||
          weights > run_.limits().max_attention_values || choices > choices_.ids.size()) {
        break;
      }
    }
    return end;
  }

  // Packs those of items[begin, end) whose share has not failed.
  void Pack(const std::vector<TranslateItem>& items, size_t begin, size_t end,
            const std::vector<batching::StepShare>& shares) {
    packed_.clear();
    source_.Clear();
    target_.Clear();
    choices_.Clear();
    any_log_probs_ = any_candidates_ = any_weights_ = false;
    int64_t weight = 0;
    const TranslateSequence* last = nullptr;
    for (size_t i = begin; i < end; ++i) {
      const TranslateItem& item = items[i];
      if (!shares[item.share].status.ok()) continue;
      const int row = item.kind == Kind::kSource ? source_.Add(item.ids, item.count, item.slot)
                                                 : target_.Add(item.ids, item.count, item.slot);
      packed_.push_back({&item, row, weight});
      if (item.kind == Kind::kSource) continue;
      std::iota(positions_.begin() + row, positions_.begin() + row + item.count, item.position);
      if (item.kind == Kind::kSearch) {
        AddChoices(item.sequence == last ? nullptr : &item.sequence->choices());
        last = item.sequence;
      }
      std::copy_n(item.targets, item.num_targets, target_.targets.begin() + row);
      target_.counts[row + item.count - 1] = item.num_candidates;
      weight += int64_t{item.count} * item.num_weights;
      any_log_probs_ = any_log_probs_ || item.num_targets > 0;
      any_candidates_ = any_candidates_ || item.num_candidates > 0;
    }
    any_weights_ = weight > 0;
    if (any_weights_ && weights_ == nullptr)
      weights_.reset(new float[run_.limits().max_attention_values]);
  }

  // Lists the words that the last sequence of `target_` may go on with; null: those of the one
  // before.
  void AddChoices(const std::vector<int32_t>* choices) {
    if (model_.choices == kernels::kNone) return;
    if (choices != nullptr) choices_.Add(choices->data(), static_cast<int>(choices->size()));
    choice_map_[target_.num_sequences - 1] = choices_.num_sequences - 1;
  }

  absl::Status RunPacked() {
    run_.axis(model_.source) = source_.axis();
    run_.axis(model_.target) = target_.axis();
    if (model_.choices != kernels::kNone) {
      run_.axis(model_.choices) = choices_.axis();
      run_.input(model_.choice_ids).ids = choices_.ids.data();
      run_.input(model_.choice_map).ids = choices_.num_rows > 0 ? choice_map_.data() : nullptr;
    }
    if (model_.target_positions != kernels::kNone) {
      run_.input(model_.target_positions).ids = positions_.data();
    }
    run_.input(model_.source_ids).ids = source_.ids.data();
    run_.input(model_.target_ids).ids = target_.ids.data();
    run_.input(model_.targets).ids = target_.targets.data();
    run_.input(model_.counts).ids = target_.counts.data();
    run_.output(model_.log_probs).values = any_log_probs_ ? target_.log_probs.data() : nullptr;
    run_.output(model_.candidates).candidates = any_candidates_ ? candidates_.get() : nullptr;
    run_.output(model_.alignment).values = any_weights_ ? weights_.get() : nullptr;
    return run_.Run(arena_.get());
  }

  // Passes the results of the batch on.
  void Commit(std::vector<batching::StepShare>& shares) {
    for (const Packed& packed : packed_) {
      const TranslateItem& item = *packed.item;
      absl::Status& outcome = shares[item.share].status;
      TranslateSequence::Results results;
      if (item.kind == Kind::kSearch) {
        const int last = packed.row + item.count - 1;
        results.log_probs = target_.log_probs.data() + packed.row;
        results.candidates = candidates_.get() + static_cast<size_t>(last) * model_.max_candidates;
      } else if (item.kind == Kind::kAlign) {
        results.weights = weights_.get() + packed.weight;
      }
      // It has run, whatever came of another item of its share.
      outcome.Update(item.sequence->Commit(item, results));
    }
  }

  absl::Status RunWarmUpBatch(int num_tokens) override {
    const int count = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
    std::vector<StateArena::Slot> slots;
    slots.reserve(count);
    absl::Status status;
    source_.Clear();
    for (int i = 0; i < count && status.ok(); ++i) {
      StateArena::Slot slot = StateArena::kNoSlot;
      status = models::ToAbslStatus(arena_->Allocate(&slot));
      if (!status.ok()) break;
      slots.push_back(slot);
      source_.Add(nullptr, batching::EqualPart(num_tokens, count, i), slot);
    }
    target_.Clear();
    choices_.Clear();
    any_log_probs_ = any_candidates_ = any_weights_ = false;
    if (status.ok()) status = RunPacked();
    source_.Clear();
    std::vector<int32_t> choices;
    if (model_.choices != kernels::kNone) {
      choices.resize(std::min(kWarmUpChoices, model_.program.inputs[model_.choice_ids].limit));
      std::iota(choices.begin(), choices.end(), 0);
    }
    for (const StateArena::Slot slot : slots) {
      const int row = target_.Add(nullptr, 1, slot);
      AddChoices(slot == slots.front() ? &choices : nullptr);
      positions_[row] = 0;
      target_.counts[row] = model_.max_candidates;
    }
    any_candidates_ = true;
    if (status.ok()) status = RunPacked();
    for (const StateArena::Slot slot : slots) arena_->Free(slot);
    // Without room in the arena sentences wait, and so may this.
    return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
  }

  const models::Translator& model_;
  const std::shared_ptr<kernels::StateArena> arena_;

  // The step.
  std::vector<TranslateItem> planned_;
  std::vector<TranslateItem> items_;
  std::vector<TranslateItem> alignments_;

  // The batch.
  struct Packed {
    const TranslateItem* item = nullptr;
    int row = 0;         // the first, on its axis
    int64_t weight = 0;  // the first, of the alignment
  };
  std::vector<Packed> packed_;
  PackedRows source_;
  PredictedRows target_;
  PackedRows choices_;               // of sentences; without rows if the model has none
  std::vector<int32_t> positions_;   // [target row]
  std::vector<int32_t> choice_map_;  // [target sequence]
  bool any_log_probs_ = false;
  bool any_candidates_ = false;
  bool any_weights_ = false;
  std::unique_ptr<kernels::Candidate[]> candidates_;  // [target rows][max_candidates]
  // Made when it is asked for, for the first time: [max_attention_values].
  std::unique_ptr<float[]> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<batching::StepRunner>> MakeTranslateStepper(
    const models::Model& model, const batching::RunnerPlace& place) {
  const auto& translator = *model.As<models::Translator>();
  const int max_tokens = place.limits.max_tokens;
  const int max_sequences = place.limits.max_sequences;
  kernels::ProgramLimits limits =
      models::TranslatorLimits(translator, max_tokens, max_sequences, max_tokens, max_sequences);
  limits.max_attention_values = std::max<int64_t>(kLeastWeights, max_tokens);
  SRU_ASSIGN_OR_RETURN(ProgramRun run, ProgramRun::Create(model.program(), translator.program,
                                                          std::move(limits), place.limits));
  return std::make_unique<TranslateStepper>(std::move(run), translator, place);
}

}  // namespace sru::server::tasks
