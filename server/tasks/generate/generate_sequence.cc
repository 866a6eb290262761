#include "server/tasks/generate/generate_sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"
#include "models/kernel_status.h"

namespace sru::server::tasks {

using kernels::StateArena;

namespace {

// A state is kept if it saves a prompt at least this many tokens: to find it costs less, and what
// many prompts begin with by chance is not worth one.
constexpr size_t kLeastPrefix = 16;

}  // namespace

GenerateSequence::GenerateSequence(const GenerateTask* task, const models::Model& model)
    : task_(*task),
      detokenizer_(model.tokenizer() == nullptr ? nullptr : model.tokenizer()->detokenizer()),
      state_codec_(model.state_codec()),
      stop_token_ids_(task->stop_token_ids) {
  sampling_ = std::make_shared<const models::SamplingOptions>(task_.sampling);
  if (!task_.stop.empty()) stop_ = std::make_shared<const models::StopStrings>(task_.stop);
  if (task_.state != nullptr) memo_ = task_.state->memo;
  std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
  const auto num_samples = static_cast<size_t>(task_.num_samples);
  const bool scores = task_.token_log_probs || task_.num_candidates > 0;
  branches_.reserve(num_samples);
  branches_.push_back(FirstBranch());
  for (size_t i = 1; i < num_samples; ++i) {  // copies, since the prompt is read once
    branches_.push_back(branches_.front());
    branches_.back().picker.set_sample(static_cast<int>(i));
  }
  if (!task_.echo || !scores) prompt_scored_ = task_.prompt.size();
  const MutexLock lock(&mutex_);
  unsent_.resize(num_samples);
  for (size_t i = 0; i < num_samples; ++i) {
    GeneratedChunk& chunk = unsent_[i].chunk;
    chunk.sample = static_cast<int>(i);
    if (task_.echo) chunk.token_ids = task_.prompt;
  }
  sink_ = task_.sink;
}

GenerateSequence::~GenerateSequence() { Rewind(); }

GenerateSequence::Branch GenerateSequence::FirstBranch() const {
  Branch branch(models::TokenPicker(sampling_, task_.seed, /*sample=*/0, memo_),
                models::GeneratedText(detokenizer_, stop_, memo_));
  branch.picker.AddPrompt(task_.prompt);
  branch.text.AppendPrompt(task_.prompt, task_.echo);
  return branch;
}

batching::StepNeed GenerateSequence::need() const {
  batching::StepNeed need;
  need.rows = 0;
  need.branches = 0;
  need.decoding = true;
  bool all_closed = true;
  bool all_finished = true;
  for (const Branch& branch : branches_) {
    need.has_result = need.has_result || !branch.tokens.empty();
    all_finished = all_finished && branch.finish != FinishReason::kNone;
    if (branch.closed) continue;
    all_closed = false;
    const size_t pending = branch.tokens.size() - branch.fed;
    need.rows += static_cast<int64_t>(std::max<size_t>(pending, 1));
    need.branches += 1;
    need.decoding = need.decoding && pending <= 1;
  }
  if (all_closed || (suspended_ && !prompt_done())) {
    need.done = true;
    need.cut_off = !all_finished || !all_closed;  // not closed: its state is missing
    return need;
  }
  if (!prompt_done()) {
    need.rows = static_cast<int64_t>(task_.prompt.size() - prompt_fed_);
    need.branches = 1;
    need.decoding = false;
  }
  return need;
}

void GenerateSequence::FreeSlot(StateArena::Slot* slot) {
  if (*slot != StateArena::kNoSlot) arena_->Free(*slot);
  *slot = StateArena::kNoSlot;
}

void GenerateSequence::Rewind() {
  if (arena_ != nullptr) {
    FreeSlot(&prompt_slot_);
    for (Branch& branch : branches_) FreeSlot(&branch.slot);
    arena_.reset();
  }
  prompt_fed_ = 0;
  forked_ = false;
  for (Branch& branch : branches_) branch.fed = 0;
}

absl::Status GenerateSequence::Begin(const std::shared_ptr<StateArena>& arena,
                                     const std::shared_ptr<batching::PrefixCache>& prefixes) {
  if (arena_ != nullptr) return absl::OkStatus();
  prefixes_ = task_.state == nullptr && !task_.prefix_owner.empty() ? prefixes : nullptr;
  keep_at_ = kept_ = 0;
  if (prefixes_ != nullptr && prompt_scored_ == task_.prompt.size()) {
    const batching::PrefixCache::Match match = prefixes_->Lookup(task_.prefix_owner, task_.prompt);
    if (match.branch >= match.length + kLeastPrefix) keep_at_ = match.branch;
    if (match.length > 0) {
      arena_ = arena;
      prompt_slot_ = match.slot;
      prompt_fed_ = kept_ = match.length;
      return absl::OkStatus();
    }
  }
  StateArena::Slot slot = StateArena::kNoSlot;
  SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena->Allocate(&slot)));
  if (task_.state != nullptr) {
    const kernels::Status status = arena->Put(slot, task_.state->state);
    if (!status.ok()) {
      arena->Free(slot);
      return models::ToAbslStatus(status);
    }
  }
  arena_ = arena;
  prompt_slot_ = slot;
  return absl::OkStatus();
}

void GenerateSequence::KeepPrefix() {
  if (prefixes_ == nullptr) return;
  if (prompt_fed_ != keep_at_ && !(prompt_done() && prompt_fed_ >= kept_ + kLeastPrefix)) return;
  kept_ = prompt_fed_;
  prefixes_->Insert(task_.prefix_owner, absl::MakeConstSpan(task_.prompt).subspan(0, prompt_fed_),
                    prompt_slot_);
}

absl::Status GenerateSequence::Fork() {
  if (forked_) return absl::OkStatus();
  Branch* last = nullptr;  // gets the slot itself
  for (Branch& branch : branches_) {
    if (branch.closed) continue;
    if (last != nullptr) {
      const kernels::Status status = arena_->Copy(prompt_slot_, &last->slot);
      if (!status.ok()) {
        Rewind();
        return models::ToAbslStatus(status);
      }
    }
    last = &branch;
  }
  if (last != nullptr) std::swap(last->slot, prompt_slot_);
  forked_ = true;
  return absl::OkStatus();
}

absl::Status GenerateSequence::Plan(int rows, const std::shared_ptr<StateArena>& arena,
                                    const std::shared_ptr<batching::PrefixCache>& prefixes,
                                    size_t share, std::vector<GenerateItem>* items) {
  SRU_RETURN_UNLESS_OK(Begin(arena, prefixes));

  GenerateItem item;
  item.sequence = this;
  item.share = share;
  if (!prompt_done()) {
    const size_t left = task_.prompt.size() - prompt_fed_;
    item.ids = task_.prompt.data() + prompt_fed_;
    item.count = static_cast<int>(std::min<size_t>(left, rows));
    if (keep_at_ > prompt_fed_) {
      item.count = static_cast<int>(std::min<size_t>(item.count, keep_at_ - prompt_fed_));
    }
    item.slot = prompt_slot_;
    item.first_row = static_cast<int>(prompt_fed_);
    item.score = prompt_fed_ + item.count > prompt_scored_;
    // After a Rewind() the branches may have tokens; they pick when these have been fed.
    const bool picks = static_cast<size_t>(item.count) == left &&
                       std::all_of(branches_.begin(), branches_.end(), [this](const Branch& b) {
                         return WantsPick(b) && b.tokens.empty();
                       });
    if (picks) item.num_picks = static_cast<int>(branches_.size());
    items->push_back(item);
    return absl::OkStatus();
  }
  SRU_RETURN_UNLESS_OK(Fork());
  int left = rows;
  const size_t first = first_branch_;
  for (size_t i = 0; i < branches_.size() && left > 0; ++i) {
    const size_t index = (first + i) % branches_.size();
    Branch& branch = branches_[index];
    if (branch.closed) continue;
    const size_t pending = branch.tokens.size() - branch.fed;
    item.branch = static_cast<int>(index);
    item.ids = branch.tokens.data() + branch.fed;
    item.count = static_cast<int>(std::min<size_t>(pending, left));
    item.slot = branch.slot;
    item.first_row = static_cast<int>(branch.fed);
    item.first_pick = static_cast<int>(index);
    const bool all = static_cast<size_t>(item.count) == pending;
    item.num_picks = all && WantsPick(branch) ? 1 : 0;
    items->push_back(item);
    left -= std::max(item.count, 1);
    first_branch_ = (index + 1) % branches_.size();
  }
  return absl::OkStatus();
}

void GenerateSequence::AppendAdjustments(int index,
                                         std::vector<kernels::Adjustment>* adjustments) const {
  static const auto* const kNone = new std::vector<int32_t>();
  const Branch& branch = branches_[index];
  branch.picker.AppendAdjustments(MayStop(branch) ? *kNone : stop_token_ids_, adjustments);
}

void GenerateSequence::CommitScores(const GenerateItem& item, const Results& results) {
  const MutexLock lock(&mutex_);
  const size_t k = task_.num_candidates;
  const size_t skipped = task_.state == nullptr ? 1 : 0;
  for (int row = 0; row < item.count; ++row) {
    const size_t position = prompt_fed_ + row;
    if (position < prompt_scored_) continue;
    const bool scored = position >= skipped;
    for (WaitingChunk& unsent : unsent_) {
      GeneratedChunk& chunk = unsent.chunk;
      if (task_.token_log_probs) chunk.log_probs.push_back(scored ? results.log_probs[row] : 0);
      if (k == 0 || !scored) continue;
      const kernels::Candidate* const best =
          results.candidates + static_cast<size_t>(row) * results.max_candidates;
      chunk.candidates.insert(chunk.candidates.end(), best, best + k);
    }
  }
  prompt_scored_ = std::max(prompt_scored_, prompt_fed_ + item.count);
}

absl::Status GenerateSequence::Commit(const GenerateItem& item, const Results& results) {
  absl::Status status;
  if (item.branch == GenerateItem::kPrompt && item.count > 0) {
    if (item.score) CommitScores(item, results);
    prompt_fed_ += item.count;
    KeepPrefix();
  } else if (item.branch != GenerateItem::kPrompt) {
    branches_[item.branch].fed += item.count;
  }
  const size_t k = task_.num_candidates;
  for (int i = 0; i < item.num_picks; ++i) {
    const int index = item.first_pick + i;
    const kernels::Candidate& picked = results.picked[i];
    if (picked.id < 0) {
      // Without tokens that may not come, the model itself left none.
      if (task_.sampling.logit_bias.empty() &&
          (MayStop(branches_[index]) || stop_token_ids_.empty())) {
        return absl::InternalError("the model's logits are not finite");
      }
      return absl::InvalidArgumentError(
          "sampling.logit_bias: expected a token that may come, found that none is left");
    }
    branches_[index].tokens.push_back(picked.id);
    ++new_tokens_;
    const MutexLock lock(&mutex_);
    GeneratedChunk& chunk = unsent_[index].chunk;
    chunk.token_ids.push_back(picked.id);
    if (task_.token_log_probs) chunk.log_probs.push_back(picked.log_prob);
    if (k > 0) {
      const kernels::Candidate* const best =
          results.pick_candidates + static_cast<size_t>(i) * results.max_candidates;
      chunk.candidates.insert(chunk.candidates.end(), best, best + k);
    }
  }
  if (prompt_done()) status = Fork();
  for (int i = 0; i < item.num_picks; ++i) TakeInToken(item.first_pick + i);
  if (status.ok() && item.branch != GenerateItem::kPrompt) {
    const Branch& branch = branches_[item.branch];
    if (WantsState(branch) && branch.fed == branch.tokens.size()) {
      status = TakeState(item.branch);
    }
  }
  return status;
}

void GenerateSequence::TakeInToken(int index) {
  Branch& branch = branches_[index];
  const int32_t id = branch.tokens.back();
  branch.picker.OnPicked(id);
  const bool may_stop = MayStop(branch);
  const bool stop_token =
      may_stop && std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), id);
  if (stop_token || branch.text.Append(id, may_stop)) {
    branch.finish = FinishReason::kStop;
  } else if (branch.tokens.size() >= static_cast<size_t>(task_.max_new_tokens)) {
    branch.finish = FinishReason::kLength;
  }
  const bool finished = branch.finish != FinishReason::kNone;
  const std::string text = finished ? branch.text.Finish() : branch.text.TakeText();
  {
    const MutexLock lock(&mutex_);
    WaitingChunk& unsent = unsent_[index];
    unsent.chunk.text += text;
    unsent.ready = !finished;  // the last chunk comes as a whole
  }
  if (finished && !task_.return_state) Close(index, std::string());
}

absl::Status GenerateSequence::TakeState(int index) {
  Branch& branch = branches_[index];
  models::SequenceState state;
  SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena_->Take(branch.slot, &state.state)));
  branch.picker.WriteTo(&state.memo);
  if (branch.finish == FinishReason::kNone) {
    const std::string text = branch.text.TakeText();  // of the prompt's echo, if no token came
    const MutexLock lock(&mutex_);
    unsent_[index].chunk.text += text;
  }
  branch.text.WriteTo(&state.memo);
  Close(index, state_codec_.Encode(state.state, state.memo));
  return absl::OkStatus();
}

void GenerateSequence::Close(int index, std::string state) {
  Branch& branch = branches_[index];
  branch.closed = true;
  FreeSlot(&branch.slot);
  const MutexLock lock(&mutex_);
  WaitingChunk& unsent = unsent_[index];
  unsent.chunk.last = true;
  unsent.chunk.finish = branch.finish;
  unsent.chunk.state = std::move(state);
  unsent.chunk.prompt_tokens = static_cast<int>(task_.prompt.size());
  unsent.chunk.generated_tokens = static_cast<int>(branch.tokens.size());
  unsent.ready = true;
}

void GenerateSequence::Deliver() {
  mutex_.Lock();
  if (delivering_ || sink_ == nullptr) {
    mutex_.Unlock();
    return;
  }
  delivering_ = true;
  // Another thread may add chunks, or the end, while one is passed on.
  bool found = true;
  while (found) {
    found = false;
    for (WaitingChunk& unsent : unsent_) {
      if (!unsent.ready) continue;
      found = true;
      GeneratedChunk chunk = unsent.Take();
      GenerateSink* const sink = sink_;
      mutex_.Unlock();
      sink->OnChunk(std::move(chunk));
      mutex_.Lock();
    }
  }
  delivering_ = false;
  if (!ended_) {
    mutex_.Unlock();
    return;
  }
  GenerateSink* const sink = sink_;
  sink_ = nullptr;
  const absl::Status status = end_status_;
  const batching::RequestTimes times = end_times_;
  const int64_t tokens = end_tokens_;
  mutex_.Unlock();
  sink->OnEnd(status, times, tokens);
}

void GenerateSequence::End(const absl::Status& status, const batching::RequestTimes& times) {
  // In no step any more.
  if (absl::IsUnavailable(status)) {
    for (size_t i = 0; i < branches_.size(); ++i) {
      Branch& branch = branches_[i];
      if (branch.closed) continue;
      if (branch.tokens.empty()) {
        // What of the prompt there is to echo has not been computed.
        const MutexLock lock(&mutex_);
        unsent_[i].Take();
      }
      Close(static_cast<int>(i), std::string());
    }
  }
  int64_t tokens = 0;
  for (const Branch& branch : branches_) tokens += static_cast<int64_t>(branch.tokens.size());
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    end_status_ = status;
    end_times_ = times;
    end_tokens_ = tokens;
  }
  Deliver();
}

absl::StatusOr<batching::SequenceHandle> SubmitGenerate(const models::Model& model,
                                                        batching::StepService& service,
                                                        const GenerateTask& task) {
  std::vector<batching::SequenceRequest> requests(1);
  requests[0].sequence = std::make_unique<GenerateSequence>(&task, model);
  requests[0].priority = task.priority;
  requests[0].deadline = task.deadline;
  requests[0].flow = task.flow;
  requests[0].least_steps = std::max(1, task.min_new_tokens);
  auto handles = service.Submit(std::move(requests));
  if (!handles.ok()) return handles.status();
  return handles->front();
}

}  // namespace sru::server::tasks
