#include "server/tasks/translate/translate_stepper.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "models/kernel_status.h"
#include "server/batching/warm_up.h"

namespace sru::server::tasks {
namespace {

using kernels::StateArena;
using Kind = TranslateItem::Kind;

// Of the alignments of a batch: a megabyte of them, or those of one token and the longest source.
constexpr int64_t kLeastWeights = 1 << 18;

// As good as any, where sentences are only run for their time.
constexpr int32_t kPadding = 0;
constexpr int kWarmUpChoices = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<TranslateStepper>> TranslateStepper::Create(
    const kernels::ProgramExecutable& executable, const models::Translator& model,
    const kernels::WorkspaceLimits& limits, std::shared_ptr<StateArena> arena) {
  kernels::ProgramLimits program_limits = models::TranslatorLimits(
      model, limits.max_tokens, limits.max_sequences, limits.max_tokens, limits.max_sequences);
  program_limits.max_attention_values = std::max<int64_t>(kLeastWeights, limits.max_tokens);
  SRU_ASSIGN_OR_RETURN(ProgramRun run, ProgramRun::Create(executable, model.program,
                                                          std::move(program_limits), limits));
  return std::unique_ptr<TranslateStepper>(
      new TranslateStepper(std::move(run), model, limits, std::move(arena)));
}

TranslateStepper::Rows::Rows(const kernels::AxisLimits& limits)
    : offsets(limits.max_sequences + 1), ids(limits.max_rows), slots(limits.max_sequences) {}

int TranslateStepper::Rows::Add(const int32_t* tokens, int count, StateArena::Slot slot) {
  const int first = num_rows;
  std::copy_n(tokens, count, ids.begin() + first);
  slots[num_sequences] = slot;
  num_rows += count;
  offsets[++num_sequences] = num_rows;
  return first;
}

TranslateStepper::TranslateStepper(ProgramRun run, const models::Translator& model,
                                   const kernels::WorkspaceLimits& limits,
                                   std::shared_ptr<StateArena> arena)
    : run_(std::move(run)),
      model_(model),
      limits_(limits),
      arena_(std::move(arena)),
      source_(run_.limits().axes[model.source]),
      target_(run_.limits().axes[model.target]),
      choices_(model.choices == kernels::kNone ? kernels::AxisLimits()
                                               : run_.limits().axes[model.choices]),
      targets_(limits.max_tokens),
      counts_(limits.max_tokens),
      positions_(limits.max_tokens),
      choice_map_(limits.max_sequences),
      log_probs_(limits.max_tokens),
      candidates_(new kernels::Candidate[static_cast<size_t>(limits.max_tokens) *
                                         static_cast<size_t>(model.max_candidates)]) {
  planned_.reserve(limits.max_sequences);
  items_.reserve(limits.max_sequences);
  packed_.reserve(2 * static_cast<size_t>(limits.max_sequences));
}

absl::Status TranslateStepper::WarmUp() {
  return batching::WarmUpBySize(limits_.max_tokens, [this](int tokens) {
    const absl::Status status = RunWarmUpBatch(tokens);
    // Sentences wait then, and so may this.
    return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
  });
}

absl::Status TranslateStepper::Run(std::vector<batching::StepShare>& shares) {
  items_.clear();
  alignments_.clear();
  for (size_t i = 0; i < shares.size(); ++i) {
    auto* const sequence = static_cast<TranslateSequence*>(shares[i].sequence);
    planned_.clear();
    shares[i].status =
        sequence->Plan(shares[i].rows, run_.limits().max_attention_values, arena_, i, &planned_);
    if (!shares[i].status.ok()) continue;
    shares[i].unused = shares[i].rows;
    for (const TranslateItem& item : planned_) {
      shares[i].unused -= item.count;
      (item.kind == Kind::kAlign ? alignments_ : items_).push_back(item);
    }
  }
  SRU_RETURN_UNLESS_OK(RunAll(items_, shares));
  return RunAll(alignments_, shares);
}

absl::Status TranslateStepper::RunAll(const std::vector<TranslateItem>& items,
                                      std::vector<batching::StepShare>& shares) {
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    int64_t tokens[2] = {0, 0};  // of sources and of hypotheses
    int sequences[2] = {0, 0};
    int64_t weights = 0;
    size_t choices = 0;
    while (end < items.size()) {
      const TranslateItem& item = items[end];
      const int axis = item.kind == Kind::kSource ? 0 : 1;
      const int64_t more_weights = int64_t{item.count} * item.num_weights;
      const bool first = end == begin || items[end - 1].sequence != item.sequence;
      const size_t more_choices =
          item.kind == Kind::kSearch && first ? item.sequence->choices().size() : 0;
      if (tokens[axis] + item.count > limits_.max_tokens ||
          sequences[axis] == limits_.max_sequences ||
          weights + more_weights > run_.limits().max_attention_values ||
          choices + more_choices > choices_.ids.size()) {
        break;
      }
      choices += more_choices;
      tokens[axis] += item.count;
      ++sequences[axis];
      weights += more_weights;
      ++end;
    }
    SRU_RETURN_UNLESS_OK(RunItems(items, begin, end, shares));
  }
  return absl::OkStatus();
}

absl::Status TranslateStepper::RunItems(const std::vector<TranslateItem>& items, size_t begin,
                                        size_t end, std::vector<batching::StepShare>& shares) {
  Pack(items, begin, end, shares);
  const absl::Status status = packed_.empty() ? absl::OkStatus() : RunPacked();
  if (absl::IsUnavailable(status)) return status;
  if (!status.ok() && end - begin > 1 &&
      (absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status))) {
    const size_t middle = begin + (end - begin) / 2;
    const absl::Status first = RunItems(items, begin, middle, shares);
    return first.ok() ? RunItems(items, middle, end, shares) : first;
  }
  for (size_t i = begin; i < end; ++i) shares[items[i].share].status.Update(status);
  if (status.ok()) Commit(shares);
  return absl::OkStatus();
}

void TranslateStepper::Pack(const std::vector<TranslateItem>& items, size_t begin, size_t end,
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
    Rows& rows = item.kind == Kind::kSource ? source_ : target_;
    const int row = rows.Add(item.ids, item.count, item.slot);
    packed_.push_back({&item, row, weight});
    if (item.kind == Kind::kSource) continue;
    std::iota(positions_.begin() + row, positions_.begin() + row + item.count, item.position);
    if (item.kind == Kind::kSearch) {
      AddChoices(item.sequence == last ? nullptr : &item.sequence->choices());
      last = item.sequence;
    }
    std::fill_n(targets_.begin() + row, item.count, -1);
    std::copy_n(item.targets, item.num_targets, targets_.begin() + row);
    std::fill_n(counts_.begin() + row, item.count, 0);
    counts_[row + item.count - 1] = item.num_candidates;
    weight += int64_t{item.count} * item.num_weights;
    any_log_probs_ = any_log_probs_ || item.num_targets > 0;
    any_candidates_ = any_candidates_ || item.num_candidates > 0;
  }
  any_weights_ = weight > 0;
  if (any_weights_ && weights_ == nullptr)
    weights_.reset(new float[run_.limits().max_attention_values]);
}

void TranslateStepper::AddChoices(const std::vector<int32_t>* choices) {
  if (model_.choices == kernels::kNone) return;
  if (choices != nullptr) choices_.Add(choices->data(), static_cast<int>(choices->size()));
  choice_map_[target_.num_sequences - 1] = choices_.num_sequences - 1;
}

absl::Status TranslateStepper::RunPacked() {
  const auto set_axis = [this](kernels::AxisId id, const Rows& rows) {
    kernels::AxisBatch& axis = run_.axis(id);
    axis.num_sequences = rows.num_sequences;
    axis.offsets = rows.offsets.data();
    axis.slots = rows.slots.data();
  };
  set_axis(model_.source, source_);
  set_axis(model_.target, target_);
  if (model_.choices != kernels::kNone) {
    set_axis(model_.choices, choices_);
    run_.input(model_.choice_ids).ids = choices_.ids.data();
    run_.input(model_.choice_map).ids = choices_.num_rows > 0 ? choice_map_.data() : nullptr;
  }
  if (model_.target_positions != kernels::kNone) {
    run_.input(model_.target_positions).ids = positions_.data();
  }
  run_.input(model_.source_ids).ids = source_.ids.data();
  run_.input(model_.target_ids).ids = target_.ids.data();
  run_.input(model_.targets).ids = targets_.data();
  run_.input(model_.counts).ids = counts_.data();
  run_.output(model_.log_probs).values = any_log_probs_ ? log_probs_.data() : nullptr;
  run_.output(model_.candidates).candidates = any_candidates_ ? candidates_.get() : nullptr;
  run_.output(model_.alignment).values = any_weights_ ? weights_.get() : nullptr;
  return run_.Run(arena_.get());
}

void TranslateStepper::Commit(std::vector<batching::StepShare>& shares) {
  for (const Packed& packed : packed_) {
    const TranslateItem& item = *packed.item;
    absl::Status& outcome = shares[item.share].status;
    TranslateSequence::Results results;
    if (item.kind == Kind::kSearch) {
      const int last = packed.row + item.count - 1;
      results.log_probs = log_probs_.data() + packed.row;
      results.candidates = candidates_.get() + static_cast<size_t>(last) * model_.max_candidates;
    } else if (item.kind == Kind::kAlign) {
      results.weights = weights_.get() + packed.weight;
    }
    // It has run, whatever came of another item of its share.
    outcome.Update(item.sequence->Commit(item, results));
  }
}

absl::Status TranslateStepper::RunWarmUpBatch(int num_tokens) {
  const int count = batching::WarmUpSequences(num_tokens, limits_.max_sequences);
  const std::vector<int32_t> tokens(num_tokens, kPadding);
  std::vector<StateArena::Slot> slots;
  slots.reserve(count);
  absl::Status status;
  source_.Clear();
  for (int i = 0; i < count && status.ok(); ++i) {
    StateArena::Slot slot = StateArena::kNoSlot;
    status = models::ToAbslStatus(arena_->Allocate(&slot));
    if (!status.ok()) break;
    slots.push_back(slot);
    source_.Add(tokens.data(), batching::EqualPart(num_tokens, count, i), slot);
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
    const int row = target_.Add(tokens.data(), 1, slot);
    AddChoices(slot == slots.front() ? &choices : nullptr);
    positions_[row] = 0;
    targets_[row] = -1;
    counts_[row] = model_.max_candidates;
  }
  any_candidates_ = true;
  if (status.ok()) status = RunPacked();
  for (const StateArena::Slot slot : slots) arena_->Free(slot);
  return status;
}

}  // namespace sru::server::tasks
