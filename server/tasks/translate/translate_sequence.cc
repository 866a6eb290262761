#include "server/tasks/translate/translate_sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "models/kernel_status.h"
#include "models/translator.h"

namespace sru::server::tasks {

using kernels::StateArena;

void PendingTranslation::Expect(size_t left) {
  const MutexLock lock(&mutex_);
  left_ = left;
}

void PendingTranslation::SetHandles(std::vector<batching::SequenceHandle> handles) noexcept {
  bool cancel = false;
  {
    const MutexLock lock(&mutex_);
    handles_ = std::move(handles);
    cancel = cancelled_ || !failure_.ok();
  }
  if (cancel) CancelSentences();
}

void PendingTranslation::Cancel() {
  {
    const MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  CancelSentences();
}

void PendingTranslation::CancelSentences() {
  for (size_t i = 0;; ++i) {
    batching::SequenceHandle handle;
    {
      const MutexLock lock(&mutex_);
      if (i >= handles_.size()) return;
      handle = handles_[i];
    }
    service_.Cancel(handle);
  }
}

void PendingTranslation::OnStep(const batching::StepTimes& step) {
  const MutexLock lock(&mutex_);
  if (step.number == last_step_) return;
  last_step_ = step.number;
  times_.queue = std::min(times_.queue, step.start - step.arrival);
  times_.compute += step.end - step.start;
  if (times_.steps == 0) times_.first_step = step.end - step.arrival;
  times_.Met(step.sequences, step.rows);
  if (request_.on_step != nullptr) request_.on_step(step);
}

void PendingTranslation::OnSentence(const absl::Status& status) {
  bool failed_first = false;
  bool last = false;
  {
    const MutexLock lock(&mutex_);
    failed_first = failure_.ok() && !status.ok();
    failure_.Update(status);
    last = --left_ == 0;
  }
  if (last) return Answer();
  if (failed_first) CancelSentences();
}

void PendingTranslation::Answer() {
  absl::Status status;
  batching::RequestTimes times;
  {
    const MutexLock lock(&mutex_);
    status = failure_;
    times = times_;
  }
  if (times.queue == absl::InfiniteDuration()) times.queue = absl::ZeroDuration();
  for (TranslateTask& task : request_.sentences) {
    if (!status.ok()) {
      task.hypotheses.clear();
    } else if (task.token_ids.empty()) {
      task.hypotheses.resize(1);
      task.hypotheses[0].finished = true;
    }
  }
  // What it holds may be gone with it.
  const auto done = std::move(request_.done);
  done(status, times);
}

absl::StatusOr<TranslateHandle> SubmitTranslate(const models::Model& model,
                                                batching::StepService& service,
                                                TranslateRequest&& request) {
  const auto call = std::make_shared<PendingTranslation>(std::move(request), &service);
  const TranslateRequest& pending = call->request();
  const absl::Span<TranslateTask> tasks = pending.sentences;
  std::vector<batching::SequenceRequest> sentences;
  sentences.reserve(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const TranslateTask& task = tasks[i];
    if (task.token_ids.empty()) continue;
    batching::SequenceRequest& sentence = sentences.emplace_back();
    sentence.sequence = std::make_unique<TranslateSequence>(call, i, model);
    sentence.priority = pending.priority;
    sentence.deadline = pending.deadline;
    sentence.flow = pending.flow;
    sentence.least_steps = task.search.max_length - static_cast<int>(task.prefix.size());
    sentence.branches = task.search.beam_size;
  }
  if (sentences.empty()) {
    SRU_RETURN_UNLESS_OK(
        service.CheckAdmission(0, 0, pending.priority, pending.deadline, pending.flow.get()));
    call->Answer();
    return call;
  }
  call->Expect(sentences.size());
  auto handles = service.Submit(std::move(sentences));
  if (!handles.ok()) return handles.status();
  call->SetHandles(*std::move(handles));
  return call;
}

TranslateSequence::TranslateSequence(std::shared_ptr<PendingTranslation> call, size_t index,
                                     const models::Model& model)
    : call_(std::move(call)),
      task_(call_->request().sentences[index]),
      config_(model.config().translator),
      model_(*model.As<models::Translator>()),
      num_candidates_(std::min(task_.search.beam_size, model_.max_candidates)) {
  begin_.reserve(task_.prefix.size() + 1);
  begin_.push_back(config_.bos_id);
  begin_.insert(begin_.end(), task_.prefix.begin(), task_.prefix.end());
}

TranslateSequence::~TranslateSequence() { TranslateSequence::Rewind(); }

batching::StepNeed TranslateSequence::need() const {
  batching::StepNeed need;
  need.done = need.has_result = done_;
  if (done_) return need;
  if (suspended_) {
    need.done = need.cut_off = true;
    return need;
  }
  if (!encoded_) {
    need.rows = static_cast<int64_t>(task_.token_ids.size());
    need.whole = true;
  } else if (found_) {
    need.rows = std::max<int64_t>(TokensToAlign(), 1);
    need.branches = static_cast<int>(task_.hypotheses.size());
  } else if (begun_ < begin_.size()) {
    need.rows = static_cast<int64_t>(begin_.size() - begun_);
    need.decoding = need.rows == 1;
  } else {
    need.branches = search_->live() - num_fed_;
    need.rows = need.branches;
    need.decoding = true;
  }
  return need;
}

int64_t TranslateSequence::TokensToAlign() const {
  int64_t tokens = 0;
  for (size_t i = 0; i < task_.hypotheses.size(); ++i) {
    tokens += static_cast<int64_t>(task_.hypotheses[i].tokens.size());
    if (i < aligned_.size()) tokens -= static_cast<int64_t>(aligned_[i]);
  }
  return tokens;
}

void TranslateSequence::MakeChoices() {
  if (model_.choices == kernels::kNone || !choices_.empty()) return;
  choices_ = model_.shortlist(task_.token_ids);
  // The translation may end, and has to begin with its prefix.
  const auto add = [this](int32_t id) {
    const auto place = std::lower_bound(choices_.begin(), choices_.end(), id);
    if (place == choices_.end() || *place != id) choices_.insert(place, id);
  };
  add(config_.eos_id);
  std::for_each(task_.prefix.begin(), task_.prefix.end(), add);
}

void TranslateSequence::FreeSlot(StateArena::Slot* slot) {
  if (*slot != StateArena::kNoSlot) arena_->Free(*slot);
  *slot = StateArena::kNoSlot;
}

void TranslateSequence::FreeSlots(std::vector<StateArena::Slot>* slots) {
  for (StateArena::Slot& slot : *slots) FreeSlot(&slot);
  slots->clear();
}

void TranslateSequence::Rewind() {
  FreeSlot(&source_slot_);
  FreeSlots(&slots_);
  FreeSlots(&aligned_slots_);
  arena_.reset();
  encoded_ = false;
  search_.reset();
  begun_ = 0;
  num_fed_ = 0;
  reorder_ = false;
  aligned_.clear();
  most_steps_ = std::max(most_steps_, steps_);
  if (!found_) steps_ = 0;
}

absl::Status TranslateSequence::BeginSearch() {
  if (!search_.has_value()) {
    const auto beam = static_cast<size_t>(task_.search.beam_size);
    slots_.reserve(beam);
    last_tokens_.resize(beam);
    parents_.resize(beam);
    candidates_.resize(beam * num_candidates_);
    fed_.assign(beam, false);
    num_fed_ = 0;
    prefix_log_probs_.clear();
    search_.emplace(task_.search, config_.bos_id, config_.eos_id, task_.prefix);
  }
  if (!slots_.empty()) return absl::OkStatus();
  StateArena::Slot slot = source_slot_;
  if (task_.alignment) {
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena_->Copy(source_slot_, &slot)));
  } else {
    source_slot_ = StateArena::kNoSlot;
  }
  slots_.push_back(slot);
  return absl::OkStatus();
}

absl::Status TranslateSequence::Reorder() {
  const auto live = static_cast<size_t>(search_->live());
  while (slots_.size() < live) {
    StateArena::Slot slot = StateArena::kNoSlot;
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena_->Allocate(&slot)));
    slots_.push_back(slot);
  }
  // Those that are not needed any more stay as they are, and are given back.
  const std::vector<int>& parents = search_->parents();
  std::iota(parents_.begin(), parents_.end(), 0);
  if (!std::equal(parents.begin(), parents.end(), parents_.begin())) {
    std::copy(parents.begin(), parents.end(), parents_.begin());
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(
        arena_->Reorder(slots_.data(), parents_.data(), static_cast<int>(slots_.size()))));
  }
  while (slots_.size() > live) {
    FreeSlot(&slots_.back());
    slots_.pop_back();
  }
  for (size_t i = 0; i < live; ++i) {
    last_tokens_[i] = search_->last_token(static_cast<int>(i));
  }
  reorder_ = false;
  return absl::OkStatus();
}

absl::Status TranslateSequence::StepSearch() {
  ++steps_;
  num_fed_ = 0;
  std::fill(fed_.begin(), fed_.end(), false);
  search_->Step(candidates_.data(), static_cast<int>(num_candidates_),
                static_cast<int>(num_candidates_));
  if (search_->done()) FinishSearch();
  if (found_) {
    FreeSlots(&slots_);
    return absl::OkStatus();
  }
  reorder_ = true;
  return Reorder();
}

void TranslateSequence::FinishSearch() {
  std::vector<models::FoundHypothesis> found = search_->Take(/*with_rows=*/false);
  task_.hypotheses.resize(found.size());
  if (task_.alignment) aligned_ids_.resize(found.size());
  bool any_tokens = false;
  for (size_t i = 0; i < found.size(); ++i) {
    TranslatedHypothesis& hypothesis = task_.hypotheses[i];
    if (task_.alignment && !found[i].tokens.empty()) {
      any_tokens = true;
      hypothesis.alignment.resize(found[i].tokens.size() * task_.token_ids.size());
      aligned_ids_[i].push_back(config_.bos_id);
      aligned_ids_[i].insert(aligned_ids_[i].end(), found[i].tokens.begin(),
                             found[i].tokens.end() - 1);
    }
    hypothesis.tokens = std::move(found[i].tokens);
    hypothesis.finished = found[i].finished;
    hypothesis.log_prob = found[i].log_prob;
    hypothesis.score = found[i].score;
    hypothesis.log_probs = std::move(found[i].log_probs);
  }
  search_.reset();
  found_ = true;
  done_ = !any_tokens;
}

absl::Status TranslateSequence::BeginAlignment() {
  const size_t count = task_.hypotheses.size();
  aligned_slots_.reserve(count);
  aligned_.reserve(count);
  while (aligned_slots_.size() < count) {
    StateArena::Slot slot = StateArena::kNoSlot;
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena_->Copy(source_slot_, &slot)));
    aligned_slots_.push_back(slot);
    aligned_.push_back(0);
  }
  return absl::OkStatus();
}

void TranslateSequence::PlanAlignment(int rows, int64_t most_weights, TranslateItem item,
                                      std::vector<TranslateItem>* items) const {
  item.kind = TranslateItem::Kind::kAlign;
  item.num_weights = static_cast<int>(task_.token_ids.size());
  int64_t left = std::min<int64_t>(rows, most_weights / item.num_weights);
  for (size_t i = 0; i < aligned_.size() && left > 0; ++i) {
    const auto tokens = static_cast<int64_t>(aligned_ids_[i].size() - aligned_[i]);
    if (tokens == 0) continue;
    item.place = static_cast<int>(i);
    item.ids = aligned_ids_[i].data() + aligned_[i];
    item.count = static_cast<int>(std::min(tokens, left));
    item.position = static_cast<int>(aligned_[i]);
    item.slot = aligned_slots_[i];
    items->push_back(item);
    left -= item.count;
  }
}

absl::Status TranslateSequence::Plan(int rows, int64_t most_weights,
                                     const std::shared_ptr<StateArena>& arena, size_t share,
                                     std::vector<TranslateItem>* items) {
  if (arena_ == nullptr) {
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(arena->Allocate(&source_slot_)));
    arena_ = arena;
  }
  TranslateItem item;
  item.sequence = this;
  item.share = share;
  if (!encoded_) {
    MakeChoices();
    item.kind = TranslateItem::Kind::kSource;
    item.ids = task_.token_ids.data();
    item.count = static_cast<int>(task_.token_ids.size());
    item.slot = source_slot_;
    items->push_back(item);
    return absl::OkStatus();
  }
  if (found_) {
    SRU_RETURN_UNLESS_OK(BeginAlignment());
    PlanAlignment(rows, most_weights, item, items);
    return absl::OkStatus();
  }
  SRU_RETURN_UNLESS_OK(BeginSearch());
  if (reorder_) {
    SRU_RETURN_UNLESS_OK(Reorder());
  }
  item.kind = TranslateItem::Kind::kSearch;
  if (begun_ < begin_.size()) {
    item.ids = begin_.data() + begun_;
    item.count = static_cast<int>(std::min<size_t>(begin_.size() - begun_, rows));
    item.position = static_cast<int>(begun_);
    item.slot = slots_[0];
    const bool all = begun_ + item.count == begin_.size();
    item.targets = item.ids + 1;
    item.num_targets = item.count - (all ? 1 : 0);
    if (all) item.num_candidates = static_cast<int>(num_candidates_);
    items->push_back(item);
    return absl::OkStatus();
  }
  item.count = 1;
  item.position = static_cast<int>(begin_.size()) - 1 + search_->steps();
  item.num_candidates = static_cast<int>(num_candidates_);
  for (int place = 0; place < search_->live() && rows > 0; ++place) {
    if (fed_[place]) continue;
    item.place = place;
    item.ids = &last_tokens_[place];
    item.slot = slots_[place];
    items->push_back(item);
    --rows;
  }
  return absl::OkStatus();
}

absl::Status TranslateSequence::Commit(const TranslateItem& item, const Results& results) {
  switch (item.kind) {
    case TranslateItem::Kind::kSource:
      encoded_ = true;
      return absl::OkStatus();
    case TranslateItem::Kind::kAlign: {
      std::vector<float>& alignment = task_.hypotheses[item.place].alignment;
      const auto width = static_cast<size_t>(item.num_weights);
      std::copy_n(results.weights, width * item.count,
                  alignment.begin() + static_cast<std::ptrdiff_t>(aligned_[item.place] * width));
      aligned_[item.place] += item.count;
      done_ = TokensToAlign() == 0;
      return absl::OkStatus();
    }
    case TranslateItem::Kind::kSearch:
      break;
  }
  if (begun_ < begin_.size()) {
    begun_ += item.count;
    prefix_log_probs_.insert(prefix_log_probs_.end(), results.log_probs,
                             results.log_probs + item.num_targets);
    if (begun_ < begin_.size()) return absl::OkStatus();
    if (!task_.prefix.empty()) search_->SetPrefixLogProbs(std::move(prefix_log_probs_));
  }
  std::copy_n(results.candidates, num_candidates_,
              candidates_.begin() + static_cast<std::ptrdiff_t>(item.place * num_candidates_));
  fed_[item.place] = true;
  ++num_fed_;
  return num_fed_ == search_->live() ? StepSearch() : absl::OkStatus();
}

batching::StepProgress TranslateSequence::OnStep(const batching::StepTimes& step) {
  call_->OnStep(step);
  batching::StepProgress progress;
  if (!done_) return progress;
  for (const TranslatedHypothesis& hypothesis : task_.hypotheses) {
    progress.new_tokens +=
        static_cast<int>(hypothesis.tokens.size()) + (hypothesis.finished ? 1 : 0);
  }
  progress.steps = steps_;
  progress.fed_rows = static_cast<int>(task_.token_ids.size());
  return progress;
}

void TranslateSequence::End(const absl::Status& status, const batching::RequestTimes& /*times*/) {
  // The call has a handle of this sequence, and is not to be kept by it.
  const std::shared_ptr<PendingTranslation> call = std::move(call_);
  // Handles keep the sequence.
  candidates_ = std::vector<kernels::Candidate>();
  choices_ = std::vector<int32_t>();
  aligned_ids_ = std::vector<std::vector<int32_t>>();
  task_.steps = std::max(most_steps_, steps_);
  call->OnSentence(status);
}

}  // namespace sru::server::tasks
