#include "models/decoding/token_picker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "models/decoding/random.h"

namespace sru::models {

TokenPicker::TokenPicker(std::shared_ptr<const SamplingOptions> options, uint64_t seed, int sample,
                         const DecodingMemo& memo)
    : options_(std::move(options)), seed_(seed), sample_(sample), position_(memo.position) {
  std::vector<Entry> entries;
  entries.reserve(memo.counts.size() + memo.prompt_ids.size() + options_->logit_bias.size());
  for (const auto& [id, count] : memo.counts) entries.push_back({id, count});
  for (const int32_t id : memo.prompt_ids) entries.push_back({id, 0, /*in_prompt=*/true});
  for (const auto& [id, bias] : options_->logit_bias) entries.push_back({id, 0, false, bias});
  Merge(std::move(entries));
}

void TokenPicker::Merge(std::vector<Entry> more) {
  more.insert(more.end(), entries_.begin(), entries_.end());
  std::sort(more.begin(), more.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  entries_.clear();
  entries_.reserve(more.size());
  for (const Entry& entry : more) {
    if (entries_.empty() || entries_.back().id != entry.id) {
      entries_.push_back(entry);
      continue;
    }
    Entry& same = entries_.back();
    same.count = std::max(same.count, entry.count);
    same.in_prompt = same.in_prompt || entry.in_prompt;
    if (entry.bias != 0) same.bias = entry.bias;
  }
}

void TokenPicker::AddPrompt(const std::vector<int32_t>& ids) {
  position_ += static_cast<int64_t>(ids.size());
  if (!options_->penalizes_repetition()) return;
  // The different ones, all at once, so that no long prompt inserts one by one.
  std::vector<int32_t> different = ids;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  std::vector<Entry> entries;
  entries.reserve(different.size() + entries_.size());
  for (const int32_t id : different) entries.push_back({id, 0, /*in_prompt=*/true});
  Merge(std::move(entries));
}

kernels::Sampling TokenPicker::Next() const {
  kernels::Sampling sampling;
  if (options_->temperature == 0) return sampling;
  sampling.temperature = options_->temperature;
  sampling.top_k = options_->top_k;
  sampling.top_p = options_->top_p;
  sampling.min_p = options_->min_p;
  sampling.random = RandomAt(seed_, sample_, position_);
  return sampling;
}

kernels::Adjustment TokenPicker::AdjustmentOf(const Entry& entry) const {
  if (entry.bias <= kBanningLogitBias) {
    return {entry.id, 1, -std::numeric_limits<float>::infinity()};
  }
  kernels::Adjustment adjustment;
  adjustment.id = entry.id;
  if (options_->penalizes_repetition() && (entry.in_prompt || entry.count > 0)) {
    adjustment.scale = options_->repetition_penalty;
  }
  if (entry.count > 0) {
    adjustment.add -= options_->presence_penalty;
    adjustment.add -= options_->frequency_penalty * static_cast<float>(entry.count);
  }
  adjustment.add += entry.bias;
  return adjustment;
}

void TokenPicker::AppendAdjustments(const std::vector<int32_t>& banned,
                                    std::vector<kernels::Adjustment>* adjustments) const {
  size_t next = 0;
  const auto append_banned = [&](int32_t up_to) {
    for (; next < banned.size() && banned[next] <= up_to; ++next) {
      if (next > 0 && banned[next] == banned[next - 1]) continue;
      adjustments->push_back({banned[next], 1, -std::numeric_limits<float>::infinity()});
    }
  };
  for (const Entry& entry : entries_) {
    append_banned(entry.id - 1);
    if (next < banned.size() && banned[next] == entry.id) continue;
    const kernels::Adjustment adjustment = AdjustmentOf(entry);
    if (adjustment.scale != 1 || adjustment.add != 0) adjustments->push_back(adjustment);
  }
  append_banned(std::numeric_limits<int32_t>::max());
}

void TokenPicker::OnPicked(int32_t id) {
  ++position_;
  if (!options_->has_penalties()) return;
  auto entry = std::lower_bound(entries_.begin(), entries_.end(), id,
                                [](const Entry& e, int32_t value) { return e.id < value; });
  if (entry == entries_.end() || entry->id != id) entry = entries_.insert(entry, {id});
  if (entry->count < std::numeric_limits<int32_t>::max()) ++entry->count;
}

void TokenPicker::WriteTo(DecodingMemo* memo) const {
  memo->position = position_;
  memo->counts.clear();
  memo->prompt_ids.clear();
  for (const Entry& entry : entries_) {
    if (entry.count > 0) memo->counts.emplace_back(entry.id, entry.count);
    if (entry.in_prompt) memo->prompt_ids.push_back(entry.id);
  }
}

}  // namespace sru::models
