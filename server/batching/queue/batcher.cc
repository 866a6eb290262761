#include "server/batching/queue/batcher.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/base/late_wakes.h"
#include "server/batching/queue/admission.h"
#include "server/batching/queue/order_tree.h"

namespace sru::server::batching {

// All fields but `done` and `times` of a finished request are guarded by the batcher's mutex.
class PendingRequest {
 public:
  BatchRequest request;
  absl::Time arrival;

  // The sequences that wait: a list through `next`, which is empty when there is only one.
  int first = 0;
  std::vector<int> next;
  bool queued = false;
  int running = 0;  // sequences that are in batches
  int passes = 0;   // batches in which it was overtaken

  Batcher::FlowQueue* queue = nullptr;  // while it waits
  OrderNode order;                      // in that queue's order
  OrderNode expiry;                     // by deadline; only when there is one
  PendingRequest* older = nullptr;
  PendingRequest* newer = nullptr;

  double predicted_seconds = 0;  // from arrival to the end, without the margin; 0 = unknown
  absl::Status status;           // the first that is not OK
  RequestTimes times;
  // Keeps the request alive from Submit() to `done`.
  std::shared_ptr<PendingRequest> self;

  int Next(int index) const { return next.empty() ? kEnd : next[index]; }

  static constexpr int kEnd = -1;
};

namespace {

// A request need not be judged early if its deadline is further away than kAmple times the backlog
// plus kAmpleLeast: twice what a queue that stands leaves it.
constexpr double kAmple = 2.0 / kStandingPatience;
constexpr absl::Duration kAmpleLeast = absl::Milliseconds(1);
// A caller has little waiting if it is at most this part of a batch.
constexpr int kLittlePart = 8;
// Lower than the rank of any arrival.
constexpr int64_t kOvertakenRank = std::numeric_limits<int64_t>::min();

int64_t NumBatches(const OrderWeight& weight, const BatcherOptions& options) {
  const auto divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  return std::max(divide(weight.tokens, options.max_batch_tokens),
                  divide(weight.sequences, options.max_batch_sequences));
}

AdmissionOptions AdmissionOptionsOf(const BatcherOptions& options) {
  AdmissionOptions admission;
  admission.most = {options.max_queue_tokens, options.max_queue_sequences};
  admission.by_deadline = options.admission_by_deadline;
  admission.ageing_interval = options.ageing_interval;
  return admission;
}

absl::Status CheckOptions(const BatcherOptions& options) {
  if (options.max_queue_delay < absl::ZeroDuration()) {
    return InvalidArgument("max_queue_delay: expected 0 or more, found ",
                           absl::FormatDuration(options.max_queue_delay));
  }
  if (options.max_queue_tokens < options.max_batch_tokens) {
    return InvalidArgument("max_queue_tokens: expected at least max_batch_tokens (",
                           options.max_batch_tokens, "), found ", options.max_queue_tokens);
  }
  return CheckLeast({{"max_batch_tokens", options.max_batch_tokens, 1},
                     {"max_batch_sequences", options.max_batch_sequences, 1},
                     {"max_queue_sequences", options.max_queue_sequences, 1},
                     {"max_passes", options.max_passes, 0},
                     {"num_workers", options.num_workers, 1}},
                    options.ageing_interval);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Batcher>> Batcher::Create(const BatcherOptions& options,
                                                         const Clock* clock) {
  SRU_RETURN_UNLESS_OK(CheckOptions(options));
  return std::unique_ptr<Batcher>(new Batcher(options, clock));
}

void Batch::Add(PendingRequest* request, const SequenceTask* task) {
  if (shares.empty() || shares.back().request != request) shares.push_back({request, 0});
  ++shares.back().count;
  sequences.push_back(task);
  AddPart(request->request.flow, task->num_tokens, &parts);
  num_tokens += task->num_tokens;
}

Batcher::Batcher(const BatcherOptions& options, const Clock* clock)
    : options_(options),
      admission_options_(AdmissionOptionsOf(options)),
      clock_(clock),
      start_(clock->Now()),
      num_workers_(options.num_workers),
      admission_(admission_options_, start_),
      flows_(options.ageing_interval) {}

Batcher::~Batcher() {
  MutexLock lock(&mutex_);
  if (oldest_ == nullptr && running_batches_ == 0) return;
  std::fprintf(stderr,
               "Batcher destroyed while %lld sequences wait and %lld batches run; Close() it and "
               "serve or Abort() the rest first\n",
               static_cast<long long>(total_.sequences), static_cast<long long>(running_batches_));
  std::abort();
}

void Batcher::Answer(Answers answers) {
  const LateWakes late;
  for (RequestHandle& answer : answers) {
    const RequestHandle pending = std::move(answer);  // freed once it is answered
    // Moved out, so that its captures are freed even if the caller keeps the handle.
    const auto done = std::move(pending->request.done);
    pending->request.done = nullptr;
    if (done) done(pending->status, pending->times);
  }
}

absl::StatusOr<RequestHandle> Batcher::Submit(BatchRequest&& request) {
  if (request.sequences.empty()) {
    return absl::InvalidArgumentError("sequences: expected at least one, found none");
  }
  OrderWeight own;
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const int num_tokens = request.sequences[i]->num_tokens;
    if (num_tokens < 1 || num_tokens > options_.max_batch_tokens) {
      return InvalidArgument("sequences[", i, "]: expected 1 to ", options_.max_batch_tokens,
                             " tokens (max_batch_tokens), found ", num_tokens);
    }
    own += {num_tokens, 1};
  }
  SRU_RETURN_UNLESS_OK(Admission::CheckSize(admission_options_, own));

  auto pending = std::make_shared<PendingRequest>();
  if (own.sequences > 1) {
    pending->next.resize(own.sequences);
    for (int i = 0; i < own.sequences; ++i) pending->next[i] = i + 1;
    pending->next.back() = PendingRequest::kEnd;
  }
  pending->order.weight = own;
  pending->order.request = pending->expiry.request = pending.get();

  const bool wakes_later = wakes_later_();
  Verdict verdict;
  {
    MutexLock lock(&mutex_);
    verdict = Judge(own, request.priority, request.deadline, request.flow.get());
    if (verdict.accepted()) {
      pending->queue = flows_.Join(request.flow);  // may throw
      admission_.TakeNumber();
      pending->order.key = verdict.key;
      pending->predicted_seconds = verdict.predicted_seconds;
      pending->request = std::move(request);
      pending->arrival = verdict.now;
      Enqueue(pending);
      PublishAmpleBudget(verdict.now);
    }
  }
  SRU_RETURN_UNLESS_OK(verdict.ToStatus());
  if (!wakes_later) on_work_();
  return pending;
}

absl::Status Batcher::CheckAdmission(int64_t num_tokens, int64_t num_sequences, Priority priority,
                                     absl::Time deadline, const Flow* flow) {
  // At most half of the room is taken while a budget is ample.
  const int64_t ample_ns = ample_budget_ns_.load(std::memory_order_relaxed);
  if (absl::ToInt64Nanoseconds(deadline - clock_->Now()) > ample_ns &&
      num_sequences <= options_.max_queue_sequences / 2 &&
      num_tokens <= options_.max_queue_tokens / 2) {
    return absl::OkStatus();
  }
  Verdict verdict;
  {
    MutexLock lock(&mutex_);
    verdict = Judge({num_tokens, num_sequences}, priority, deadline, flow);
  }
  return verdict.ToStatus();
}

Verdict Batcher::Judge(const OrderWeight& own, Priority priority, absl::Time deadline,
                       const Flow* flow) {
  // Arrivals are kept in order even if the clock is set back.
  absl::Time now = clock_->Now();
  if (newest_ != nullptr) now = std::max(now, newest_->arrival);
  return admission_.Judge({own, priority, deadline, flow}, now, *this);
}

Batcher::Levels Batcher::levels(const Flow* flow, absl::Time now) const {
  Levels levels;
  levels.waiting = total_;
  if (const FlowQueue* const queue = flows_.Find(flow); queue != nullptr) {
    levels.own = queue->order.total();
  }
  levels.share = flows_.ShareOf(flow);
  levels.idle = IsIdle();
  levels.stands = !levels.idle && now - busy_since_ > kStanding;
  return levels;
}

Batcher::Prediction Batcher::Predict(const OrderKey& key, const AdmissionRequest& request,
                                     absl::Time now) const {
  const SpeedModel& speed = admission_.speed();
  const FlowQueue* const queue = flows_.Find(request.flow);
  OrderWeight ahead = queue == nullptr ? OrderWeight() : queue->order.Before(key);
  OrderWeight work = ahead;
  work += request.size;
  // Other flows' requests of a higher priority go before it, and those of the same priority as far
  // as their share allows.
  OrderWeight others;
  for (int c = static_cast<int>(request.priority); c < kClasses; ++c) {
    OrderWeight rest = waiting_.of[c];
    if (queue != nullptr) rest -= queue->waiting.of[c];
    const bool higher = c > static_cast<int>(request.priority);
    others += higher ? rest : flows_.Before(request.flow, request.priority, work.tokens, rest);
  }
  work += others;
  ahead += others;
  const double total = speed.SecondsWithWaits(work.tokens, NumBatches(work, options_));
  // The workers share the work ahead of the request, but not the batch that it ends in.
  const double last =
      speed.SecondsWithWaits(std::min<int64_t>(work.tokens, options_.max_batch_tokens), 1);
  // A free worker begins at once.
  const bool free = running_batches_ < num_workers_;
  const double running = free ? 0.0 : RunningSeconds(now);
  const double seconds = (running + total - last) / num_workers_ + last;
  const double waits = speed.SecondsWithWaits(ahead.tokens, NumBatches(ahead, options_));
  return {seconds, seconds, (running + waits) / num_workers_};
}

double Batcher::BacklogSeconds(absl::Time now) const {
  const SpeedModel& speed = admission_.speed();
  const double seconds = speed.SecondsWithWaits(total_.tokens, NumBatches(total_, options_));
  return (RunningSeconds(now) + seconds) / num_workers_;
}

void Batcher::PublishAmpleBudget(absl::Time now) {
  const bool roomy = !admission_.closed() && total_.tokens <= options_.max_queue_tokens / 2 &&
                     total_.sequences <= options_.max_queue_sequences / 2;
  const absl::Duration ample =
      roomy
          ? absl::Seconds(kAmple * admission_.speed().margin() * BacklogSeconds(now)) + kAmpleLeast
          : absl::InfiniteDuration();
  ample_budget_ns_.store(absl::ToInt64Nanoseconds(ample), std::memory_order_relaxed);
}

void Batcher::Enqueue(const RequestHandle& pending) {
  PendingRequest* const p = pending.get();
  if (IsIdle()) busy_since_ = p->arrival;
  p->self = pending;
  p->queued = true;
  flows_.Insert(p->queue, p->request.priority, p->arrival);
  p->queue->order.Insert(&p->order);
  p->queue->waiting.at(p->request.priority) += p->order.weight;
  waiting_.at(p->request.priority) += p->order.weight;
  total_ += p->order.weight;
  if (p->request.deadline != absl::InfiniteFuture()) {
    p->expiry.key = {0, p->request.deadline, p->order.key.number};
    expiry_.Insert(&p->expiry);
  }
  p->older = newest_;
  (newest_ == nullptr ? oldest_ : newest_->newer) = p;
  newest_ = p;
}

void Batcher::Dequeue(PendingRequest* pending) {
  pending->queued = false;
  Count(pending, pending->order.weight);
  pending->queue->order.Erase(&pending->order);
  flows_.Erase(pending->queue, pending->request.priority);
  if (pending->request.deadline != absl::InfiniteFuture()) expiry_.Erase(&pending->expiry);
  (pending->older == nullptr ? oldest_ : pending->older->newer) = pending->newer;
  (pending->newer == nullptr ? newest_ : pending->newer->older) = pending->older;
}

void Batcher::Drop(PendingRequest* pending, const absl::Status& status, absl::Time now,
                   Answers* answers) {
  if (pending->queued) Dequeue(pending);
  pending->status.Update(status);
  if (pending->running > 0) return;
  pending->times.queue = now - pending->arrival;
  pending->times.compute = absl::ZeroDuration();
  answers->push_back(std::move(pending->self));
}

void Batcher::Expire(PendingRequest* pending, absl::Time now, Answers* answers) {
  ++counts_.expired;
  // It would have taken even longer, so it is an outcome only if it has already outlasted its
  // prediction.
  const double actual = absl::ToDoubleSeconds(now - pending->arrival);
  if (pending->predicted_seconds > 0 && actual > pending->predicted_seconds) {
    admission_.speed().AddOutcome(pending->predicted_seconds, actual);
  }
  Drop(pending,
       absl::DeadlineExceededError(absl::StrCat("the deadline passed after ",
                                                absl::FormatDuration(now - pending->arrival),
                                                " in the queue")),
       now, answers);
}

void Batcher::DropExpired(absl::Time now, Answers* answers) {
  for (OrderNode* node = expiry_.First(); node != nullptr && node->key.deadline <= now;
       node = expiry_.First()) {
    Expire(node->request, now, answers);
  }
}

void Batcher::Cancel(const RequestHandle& handle) noexcept {
  if (handle == nullptr) return;
  Answers answers;
  bool closed = false;
  {
    MutexLock lock(&mutex_);
    if (!handle->queued) return;
    const absl::Time now = clock_->Now();
    if (handle->request.deadline <= now) {
      Expire(handle.get(), now, &answers);
    } else {
      ++counts_.cancelled;
      Drop(handle.get(), absl::CancelledError("the caller cancelled the request"), now, &answers);
    }
    closed = admission_.closed();
  }
  if (closed) on_work_();
  Answer(std::move(answers));  // the last one may be the end of the batcher
}

void Batcher::Count(PendingRequest* pending, const OrderWeight& taken) {
  pending->queue->waiting.at(pending->request.priority) -= taken;
  waiting_.at(pending->request.priority) -= taken;
  total_ -= taken;
}

absl::Time Batcher::ReadyAt() const {
  if (oldest_ == nullptr) return absl::InfiniteFuture();
  if (options_.max_queue_delay == absl::ZeroDuration() || admission_.closed() ||
      total_.tokens >= options_.max_batch_tokens ||
      total_.sequences >= options_.max_batch_sequences) {
    return absl::InfinitePast();
  }
  absl::Time ready = oldest_->arrival + options_.max_queue_delay;
  if (const OrderNode* node = expiry_.First(); node != nullptr) {
    const SpeedModel& speed = admission_.speed();
    const double seconds = speed.SecondsWithWaits(total_.tokens, 1) * speed.margin();
    ready = std::min(ready, node->key.deadline - absl::Seconds(seconds));
  }
  return ready;
}

int Batcher::TokenBudget(absl::Time now) const {
  const SpeedModel& speed = admission_.speed();
  if (!speed.known() || !flows_.contested(now)) return options_.max_batch_tokens;
  return static_cast<int>(std::min<int64_t>(options_.max_batch_tokens,
                                            speed.TokensWithin(absl::ToDoubleSeconds(kPiece))));
}

void Batcher::StartFlows(absl::Time now) {
  flows_.Begin(now);
  flows_.Clear();
  for (FlowQueue* queue : flows_.active()) {
    queue->next = queue->order.First();
    flows_.Add(queue, queue->next->request->request.priority, queue->next->key.number);
  }
  flows_.Start();
}

NextWork Batcher::Next(absl::Time now) {
  MutexLock lock(&mutex_);
  NextWork next;
  const absl::Time ready = ReadyAt();
  const OrderNode* const expires = expiry_.First();
  next.at = expires == nullptr ? ready : std::min(ready, expires->key.deadline);
  if (ready > now) return next;
  FlowQueue* first = flows_.active().front();
  if (flows_.active().size() > 1) {
    StartFlows(now);
    first = flows_.Next();
  }
  next.flow = first->flow.get();
  const PendingRequest& pending = *first->order.First()->request;
  next.tokens = pending.request.sequences[pending.first]->num_tokens;
  return next;
}

bool Batcher::IsDone() const {
  MutexLock lock(&mutex_);
  return admission_.closed() && oldest_ == nullptr && running_batches_ == 0;
}

std::unique_ptr<Batch> Batcher::BuildBatch(absl::Time now, const OrderWeight& most_of_it,
                                           bool strictly) {
  if (ReadyAt() > now) return nullptr;
  auto batch = std::make_unique<Batch>();
  // Under the lock it is quicker to allocate once.
  const auto most =
      static_cast<size_t>(std::min<int64_t>(options_.max_batch_sequences, total_.sequences));
  batch->sequences.reserve(most);
  batch->shares.reserve(most);
  const int most_of_all = TokenBudget(now);
  int budget = static_cast<int>(std::min<int64_t>(most_of_all, most_of_it.tokens));
  // So many tokens or fewer count as little; none do if nobody competes.
  const int64_t little = most_of_all < options_.max_batch_tokens ? most_of_all / kLittlePart : 0;
  bool has_little_only = false;
  int room =
      static_cast<int>(std::min<int64_t>(options_.max_batch_sequences, most_of_it.sequences));
  const int max_look_past = options_.max_passes == 0 ? 0 : kMaxLookPast;
  int looked_past = 0;                                 // sequences
  std::array<PendingRequest*, kMaxLookPast> passed{};  // requests, in order
  size_t num_passed = 0;
  size_t num_overtaken = 0;  // of these, the first ones
  bool open = room > 0;
  StartFlows(now);
  for (FlowQueue* queue = flows_.Next(); queue != nullptr && open; queue = flows_.Next()) {
    const bool has_little = queue->order.total().tokens <= little;
    const bool opens = batch->sequences.empty();
    if (opens) has_little_only = has_little;
    if (has_little_only && !has_little) break;
    OrderNode* const node = queue->next;
    PendingRequest* const pending = node->request;
    const OrderKey key = node->key;
    OrderWeight taken;
    int* link = &pending->first;
    for (int index = *link; index != PendingRequest::kEnd && open; index = *link) {
      const int num_tokens = pending->request.sequences[index]->num_tokens;
      const bool first = batch->sequences.empty();
      if (first && strictly && num_tokens > budget) return nullptr;
      // The first one goes even if it takes longer than a piece.
      if (num_tokens <= budget || first) {
        batch->Add(pending, pending->request.sequences[index]);
        taken += {num_tokens, 1};
        budget -= num_tokens;
        --room;
        *link = pending->Next(index);
        open = budget > 0 && room > 0;
      } else if (looked_past == max_look_past) {
        open = false;
      } else {
        ++looked_past;
        if (num_passed == 0 || passed[num_passed - 1] != pending) passed[num_passed++] = pending;
        if (pending->next.empty()) break;
        link = &pending->next[index];
      }
    }
    if (taken.sequences > 0) {
      num_overtaken = num_passed;
      if (num_passed > 0 && passed[num_passed - 1] == pending) --num_overtaken;  // not by itself
      pending->running += static_cast<int>(taken.sequences);
      if (taken.sequences == node->weight.sequences) {
        Dequeue(pending);
      } else {
        Count(pending, taken);
        queue->order.Reduce(node, taken);
      }
      // Whoever has a batch without the work of others pays for all of it.
      const bool pays_all = has_little_only && opens;
      flows_.Took(taken.tokens +
                  (pays_all ? static_cast<int64_t>(admission_.speed().FixedTokens()) : 0));
    }
    queue->next = queue->order.After(key);
    if (queue->next == nullptr) {
      flows_.Pop();
    } else {
      flows_.Replace(queue->next->request->request.priority, queue->next->key.number);
    }
  }
  for (size_t i = 0; i < num_overtaken; ++i) {
    if (++passed[i]->passes != options_.max_passes) continue;
    OrderNode& node = passed[i]->order;
    OrderTree& order = passed[i]->queue->order;
    order.Erase(&node);
    node.key = {kOvertakenRank, absl::InfinitePast(), node.key.number};
    order.Insert(&node);
  }

  if (batch->sequences.empty()) return nullptr;
  batch->left_some = oldest_ != nullptr;
  batch->start = now;
  ++running_batches_;
  if (const SpeedModel& speed = admission_.speed(); speed.known()) {
    batch->predicted_end = Since(now) + speed.SecondsWithWaits(batch->num_tokens, 1);
    predicted_ends_ += batch->predicted_end;
    ++timed_batches_;
  }
  PublishAmpleBudget(now);
  return batch;
}

int Batcher::ShortBatchTokens() const {
  const SpeedModel& speed = admission_.speed();
  if (!speed.known()) return 0;
  const double batches = speed.Seconds(total_.tokens, NumBatches(total_, options_)) /
                         absl::ToDoubleSeconds(kShortBatch);
  // A request alone is answered when all of it is computed.
  const bool has_parts = oldest_ != newest_;
  if (batches > (has_parts ? 2 : 1)) return 0;
  return static_cast<int>(batches <= 1 ? total_.tokens : (total_.tokens + 1) / 2);
}

std::unique_ptr<Batch> Batcher::Take(bool is_short, const OrderWeight& most, bool strictly) {
  Answers answers;
  std::unique_ptr<Batch> batch;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    DropExpired(now, &answers);
    const int64_t tokens = is_short ? ShortBatchTokens() : most.tokens;
    if (tokens > 0) batch = BuildBatch(now, {tokens, most.sequences}, strictly);
  }
  Answer(std::move(answers));
  return batch;
}

void Batcher::Finish(std::unique_ptr<Batch> batch, const absl::Status& status,
                     absl::Duration compute) {
  Answers answers;
  answers.reserve(batch->shares.size());
  static std::atomic<int64_t> batches{0};
  const BatchRef ref = {batches.fetch_add(1, std::memory_order_relaxed) + 1,
                        static_cast<int>(batch->sequences.size()), batch->num_tokens, batch->start};
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    --running_batches_;
    if (batch->predicted_end > 0) {
      predicted_ends_ -= batch->predicted_end;
      if (--timed_batches_ == 0) predicted_ends_ = 0;  // carries no rounding error on
    }
    size_t begin = 0;
    for (const Batch::Share& share : batch->shares) {
      PendingRequest* const pending = share.request;
      pending->running -= share.count;
      pending->times.compute = compute;
      pending->times.queue = batch->start - pending->arrival;
      pending->times.batch = ref;
      pending->status.Update(status);
      for (const auto& [index, failure] : batch->failures) {
        if (index >= begin && index < begin + share.count) pending->status.Update(failure);
      }
      begin += share.count;
      if (!pending->status.ok() && pending->queued) Dequeue(pending);
      if (!pending->queued && pending->running == 0) answers.push_back(std::move(pending->self));
    }

    for (const RequestHandle& pending : answers) {
      if (!pending->status.ok()) continue;
      admission_.AddOutcome(pending->predicted_seconds, pending->arrival, pending->request.deadline,
                            now);
    }
    admission_.LearnOutcomes();
    PublishAmpleBudget(now);
  }
  Answer(std::move(answers));
  if (!status.ok() || batch->num_tokens == 0) return;
  bool is_ready_sooner = false;
  {
    MutexLock lock(&mutex_);
    const absl::Time ready = ReadyAt();
    // The worker is busy for longer than the forward pass: it also packs and answers.
    const absl::Duration busy = std::max(compute, clock_->Now() - batch->start);
    admission_.speed().AddBatch(batch->num_tokens, absl::ToDoubleSeconds(busy),
                                absl::ToDoubleSeconds(batch->waited),
                                absl::ToDoubleSeconds(batch->interrupted));
    is_ready_sooner = ReadyAt() < ready;
  }
  if (is_ready_sooner) on_work_();  // workers sleep until the time that they were told
}

void Batcher::SetNumWorkers(int num_workers) {
  MutexLock lock(&mutex_);
  num_workers_ = num_workers;
}

void Batcher::Stop(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    admission_.Stop(status);
  }
  Abort(status);
}

void Batcher::Close() {
  {
    MutexLock lock(&mutex_);
    admission_.Close();
    PublishAmpleBudget(clock_->Now());
  }
  on_work_();
}

void Batcher::Abort(const absl::Status& status) {
  Answers answers;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    while (oldest_ != nullptr) Drop(oldest_, status, now, &answers);
  }
  on_work_();
  Answer(std::move(answers));
}

BatcherStats Batcher::stats() const {
  MutexLock lock(&mutex_);
  BatcherStats stats = counts_;
  stats.rejected = admission_.rejected();
  stats.queued_sequences = total_.sequences;
  stats.queued_tokens = total_.tokens;
  if (oldest_ != nullptr) {
    stats.oldest_age = std::max(clock_->Now() - oldest_->arrival, absl::ZeroDuration());
  }
  stats.running_batches = running_batches_;
  return stats;
}

}  // namespace sru::server::batching
