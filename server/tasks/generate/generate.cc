// Generate: a text that goes on from a prompt, as it is made.
//
// One message is on its way at a time. What the generator adds meanwhile is merged, by sample, into
// the next ones. A call with more than kMostWaitingTokens that wait for its client is paused until
// they have left: a client that reads slowly slows its own text down, and what it makes the server
// hold is bounded.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "models/language_model.h"
#include "models/state_codec.h"
#include "server/batching/engine.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/messages/response_writer.h"
#include "server/tasks/generate/generate_parser.h"
#include "server/tasks/generate/generate_sequence.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

// Of one sample.
constexpr size_t kMostWaitingTokens = 64;
// A message with more tokens and candidates, which only an echo has, does not hold up others'
// tokens.
constexpr size_t kMostTokensAtOnce = 1000;

class GenerateCall final : public calls::Call, private GenerateSink {
 public:
  using RequestType = v1::GenerateRequest;
  using ResponseType = v1::GenerateResponse;

  GenerateCall(calls::MethodId method, const calls::ServiceContext& context,
               calls::Exchange* exchange, calls::MessageFormPtr /*form*/)
      : Call(method, context, exchange) {
    times_.emplace();
    context_.in_flight->Enter();
  }

  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    const absl::Cord bytes = message.value_or(absl::Cord());
    // Which model it is for is not known yet.
    RunOn(bytes.size() > calls::kLargeMessageBytes ? context_.readers : nullptr, [this, bytes] {
      absl::Status status = TakeMessage([&] {
        absl::Status opened = Open();
        return opened.ok() ? Submit(bytes) : opened;
      });
      if (status.ok()) return;
      context_.in_flight->Leave();
      End(std::move(status));
    });
  }

 private:
  absl::Status Submit(const absl::Cord& bytes) {
    *context_.received_bytes += static_cast<int64_t>(bytes.size());
    calls::RequestOutline outline;
    if (!calls::ReadOutline<v1::GenerateRequest>(bytes, &outline)) {
      return calls::ExplainParseFailure(*v1::GenerateRequest::descriptor(), bytes);
    }
    if (outline.extra_fields > calls::kMaxExtraFields) return calls::TooManyFields();
    if (!outline.long_model_name) {
      absl::Status status = FindModel(outline.model, outline.version);
      const absl::StatusOr<batching::Priority> priority = PriorityOf(outline.priority);
      // Of an error the rest of the request may say more.
      if (status.ok() && priority.ok() && generates()) {
        SRU_RETURN_UNLESS_OK(
            CheckQueue(*steps(), /*num_tokens=*/1, /*num_sequences=*/1, *priority, deadline_));
      }
    }
    SRU_RETURN_UNLESS_OK(Reserve(&held_, calls::EstimateCallBytes(outline)));
    v1::GenerateRequest request;
    SRU_RETURN_UNLESS_OK(calls::ParseMessage(bytes, &request));
    if (context_.access_log->content()) {
      request_for_log_ = std::make_unique<v1::GenerateRequest>(request);
      logged_request_ = request_for_log_.get();
    }
    if (served_ == nullptr) {
      SRU_RETURN_UNLESS_OK(FindModel(request.model(), request.version()));
    }
    if (!generates()) return calls::WrongTask(model(), method_);
    GenerateTask& task = task_;
    SRU_RETURN_UNLESS_OK(ParseTask(request, &task));
    SRU_ASSIGN_OR_RETURN(task.priority, PriorityOf(request.priority()));
    token_texts_ = request.token_texts();
    SRU_RETURN_UNLESS_OK(Reserve(&held_, AnswerBytes(task)));
    num_sequences_ = task.num_samples;
    num_tokens_ = static_cast<int64_t>(task.prompt.size());
    num_candidates_ = static_cast<size_t>(task.num_candidates);
    if (task.echo) echoed_tokens_ = num_tokens_ * task.num_samples;
    most_waiting_tokens_ = kMostWaitingTokens * static_cast<size_t>(task.num_samples);
    {
      MutexLock lock(&mutex_);
      samples_.resize(task.num_samples);
    }
    task.deadline = deadline_;
    task.sink = this;
    task.flow = caller_;
    if (context_.prefix_owner != nullptr) task.prefix_owner = context_.prefix_owner(exchange_);
    times_->tokenize = context_.clock->Now() - arrival_;
    const int64_t prompt_tokens = num_tokens_;  // it may grow as soon as the task is submitted
    batching::SequenceHandle handle;
    SRU_RETURN_UNLESS_OK(SubmitCharged(prompt_tokens, [&]() -> absl::Status {
      SRU_ASSIGN_OR_RETURN(handle, SubmitGenerate(model(), *steps(), task));
      return absl::OkStatus();
    }));
    // From here on there may be text, and even its end.
    bool cancel = false;
    bool pause = false;
    {
      MutexLock lock(&mutex_);
      handle_ = handle;
      cancel = !failure_.ok();
      pause = paused_;
    }
    if (cancel) {
      steps()->Cancel(handle);
    } else if (pause) {
      ApplyPause();
    }
    return absl::OkStatus();
  }

  absl::Status ParseTask(const v1::GenerateRequest& request, GenerateTask* task) {
    calls::ModelInput input = calls::InputOf(model());
    SRU_ASSIGN_OR_RETURN(input.unknown, calls::ParseUnknown(request.unknown(), model()));
    calls::WordCounts words;
    absl::Status status =
        ParseGenerate(request, input, model().As<models::LanguageModel>()->max_candidates,
                      context_.limits, task, &words);
    if (!status.ok()) return status;
    unknown_tokens_ = static_cast<int32_t>(words.unknown);
    served_->metrics->OnWords(words.words, words.unknown);
    if (!request.state().empty()) {
      auto state = std::make_shared<models::SequenceState>();
      status = model().state_codec().Decode(request.state(), state.get());
      if (!status.ok()) return InvalidArgument("state: ", status.message());
      task->state = std::move(state);
    }
    if (!request.sampling().has_seed()) {
      std::random_device random;
      task->seed = uint64_t{random()} << 32 | random();
    }
    return absl::OkStatus();
  }

  // At least the bytes of what waits for the client, as messages and on the wire, of the states,
  // and of what samples remember.
  int64_t AnswerBytes(const GenerateTask& task) const {
    const int64_t echoed = task.echo ? static_cast<int64_t>(task.prompt.size()) : 0;
    const int64_t tokens = 2 * static_cast<int64_t>(kMostWaitingTokens) + echoed;
    const int64_t per_token =
        32 + (task.num_candidates == 0 ? 0 : 64 + int64_t{160} * task.num_candidates) +
        (token_texts_ ? 160 : 0);
    // A sample's picker remembers so much of each token (token_picker.h), in memory that may have
    // doubled, and so much stands in the memo of its state. A state may bring as many tokens as the
    // vocabulary has.
    constexpr int64_t kPickerBytes = 32;
    constexpr int64_t kMemoBytes = 12;
    auto picked = static_cast<int64_t>(task.sampling.logit_bias.size());
    if (task.state != nullptr) {
      const models::DecodingMemo& memo = task.state->memo;
      picked += static_cast<int64_t>(memo.counts.size() + memo.prompt_ids.size());
    }
    if (task.sampling.penalizes_repetition()) picked += static_cast<int64_t>(task.prompt.size());
    if (task.sampling.has_penalties()) picked += task.max_new_tokens;
    const int64_t state_bytes =
        static_cast<int64_t>(model().state_codec().bytes()) + kMemoBytes * picked;
    return task.num_samples * (512 + per_token * tokens + kPickerBytes * picked +
                               (task.return_state ? 3 * state_bytes : 0));
  }

  void OnChunk(GeneratedChunk&& chunk) noexcept override {
    const Reference alive(this);
    const auto tokens = static_cast<int64_t>(chunk.token_ids.size());
    const int64_t echoed = std::min(echoed_tokens_, tokens);
    echoed_tokens_ -= echoed;
    ChargeBesides(tokens - echoed);  // a text may take minutes
    if (trace_ != nullptr) {
      trace_->OnProgress("token", context_.clock->Now(), tokens - echoed);
    }
    {
      MutexLock lock(&mutex_);
      if (failure_.ok()) Merge(std::move(chunk));
    }
    Advance();
  }

  void OnEnd(const absl::Status& status, const batching::RequestTimes& times,
             int64_t generated_tokens) noexcept override {
    const Reference alive(this);
    times_->Take(times, context_.clock->Now());
    {
      MutexLock lock(&mutex_);
      done_ = true;
      generated_tokens_ = generated_tokens;
      failure_.Update(status);
    }
    // Nothing is left to compute: a drain does not wait for a client that does not read.
    context_.in_flight->Leave();
    Advance();
  }

  void Merge(GeneratedChunk&& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_tokens_ += chunk.token_ids.size();
    if (chunk.last) ++ended_samples_;
    const auto sample = static_cast<size_t>(chunk.sample);
    samples_[sample].Append(std::move(chunk));
  }

  // Ends the call with `status` as soon as the service has given it up.
  void Fail(const absl::Status& status) noexcept {
    batching::SequenceHandle handle;
    {
      MutexLock lock(&mutex_);
      failure_.Update(status);
      handle = handle_;
    }
    if (handle != nullptr) steps()->Cancel(handle);
  }

  // Sends the next message, or ends the call, if that can be done now.
  void Advance() {
    enum { kNothing, kSend, kSendLast, kEnd } next = kNothing;
    absl::Status status;
    std::optional<GeneratedChunk> news;
    bool is_last = false;
    bool pause_changes = false;
    {
      MutexLock lock(&mutex_);
      if (!sending_ && !ended_) {
        // A client that is gone gets nothing more.
        const bool has_client = sent_all_ && !absl::IsCancelled(failure_);
        WaitingChunk* const sample = has_client ? NextSample(&is_last) : nullptr;
        if (sample != nullptr && (!is_last || done_)) {
          news = sample->Take();
          waiting_tokens_ -= news->token_ids.size();
          next = is_last ? kSendLast : kSend;
        } else if (sample == nullptr && done_) {
          next = kEnd;
        }
        sending_ = next == kSend;
        ended_ = next == kSendLast || next == kEnd;
      }
      if (next == kSendLast || next == kEnd) {
        status = failure_;
        num_tokens_ += generated_tokens_;
      }
      const bool pause = !done_ && waiting_tokens_ > (paused_ ? 0 : most_waiting_tokens_);
      pause_changes = pause != paused_ && handle_ != nullptr;
      paused_ = pause;
    }
    if (pause_changes) ApplyPause();
    if (next == kNothing) return;
    const bool is_long =
        news.has_value() && news->token_ids.size() + news->candidates.size() > kMostTokensAtOnce;
    RunOn(is_long ? context_.writers : nullptr, [this, next, status, news = std::move(news)] {
      if (next == kSend) {
        Send(*news);
      } else {
        EndWith(status, news);
      }
    });
  }

  // The sample whose turn it is; null when there are no news. Whether nothing can come after them.
  WaitingChunk* NextSample(bool* is_last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    WaitingChunk* found = nullptr;
    size_t count = 0;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const size_t index = (next_sample_ + i) % samples_.size();
      if (!samples_[index].ready) continue;
      if (++count > 1) continue;
      found = &samples_[index];
    }
    *is_last = count == 1 && (done_ || ended_samples_ == samples_.size());
    if (found != nullptr) {
      next_sample_ = (static_cast<size_t>(found - samples_.data()) + 1) % samples_.size();
    }
    return found;
  }

  void Send(const GeneratedChunk& news) {
    const absl::Status status = WriteMessage(news, /*is_last=*/false);
    if (status.ok()) {
      exchange_.Write(std::move(outgoing_));
      return;
    }
    {
      MutexLock lock(&mutex_);
      sending_ = false;
      sent_all_ = false;
    }
    Fail(status);
    Advance();
  }

  void EndWith(absl::Status status, const std::optional<GeneratedChunk>& last) {
    if (!last.has_value()) return End(std::move(status));
    times_->total = context_.clock->Now() - arrival_;
    const absl::Status written = WriteMessage(*last, /*is_last=*/true);
    status.Update(written);
    if (!written.ok()) return End(std::move(status));
    End(std::move(status), std::move(outgoing_));
  }

  absl::Status WriteMessage(const GeneratedChunk& news, bool is_last) {
    v1::GenerateResponse response;
    response.set_model(model().name());
    response.set_version(model().version());
    response.set_sample(news.sample);
    response.set_text(news.text);
    response.mutable_token_ids()->Add(news.token_ids.begin(), news.token_ids.end());
    response.mutable_log_probs()->Add(news.log_probs.begin(), news.log_probs.end());
    if (token_texts_) {
      for (const int32_t id : news.token_ids) {
        response.add_token_texts(model().tokenizer()->TokenName(id));
      }
    }
    if (num_candidates_ > 0) {
      // The first token of an echoed fresh prompt has none.
      const size_t with = news.candidates.size() / num_candidates_;
      for (size_t i = with; i < news.token_ids.size(); ++i) response.add_candidates();
      for (size_t i = 0; i < with; ++i) {
        calls::WriteCandidates(news.candidates.data() + i * num_candidates_, num_candidates_,
                               *model().tokenizer(), response.add_candidates());
      }
    }
    if (news.last) {
      response.set_finish_reason(static_cast<v1::FinishReason>(news.finish));
      response.set_state(news.state);
      response.set_prompt_tokens(news.prompt_tokens);
      response.set_generated_tokens(news.generated_tokens);
      response.set_unknown_tokens(unknown_tokens_);
    }
    if (is_last) calls::WriteTimes(*times_, response.mutable_times());
    return calls::SerializeMessage(response, &outgoing_);
  }

  void OnWritten(bool ok) noexcept override {
    {
      MutexLock lock(&mutex_);
      sending_ = false;
      if (!ok) sent_all_ = false;
    }
    if (!ok) Fail(absl::CancelledError("the client is gone, or does not take its answers"));
    Advance();
  }

  void OnCancel() noexcept override { Fail(absl::CancelledError("the caller cancelled the call")); }

  // At a drain, the service ends these calls itself when its time is over.

  // Tells the service whether the call is paused. Another thread may change that at the same time:
  // what is told last is then what is so.
  void ApplyPause() noexcept {
    MutexLock lock(&pause_mutex_);
    batching::SequenceHandle handle;
    bool paused = false;
    {
      MutexLock state_lock(&mutex_);
      handle = handle_;
      paused = paused_;
    }
    if (paused) {
      steps()->Pause(handle);
    } else {
      steps()->Resume(handle);
    }
  }

  const models::Model& model() const { return *served_->model; }
  batching::StepService* steps() const { return served_->engine->steps(); }
  bool generates() const {
    return model().task() == models::Task::kLanguageModel && steps() != nullptr;
  }

  // Constant once the call is submitted.
  std::unique_ptr<v1::GenerateRequest> request_for_log_;  // null: the log has no contents
  GenerateTask task_;
  size_t num_candidates_ = 0;
  bool token_texts_ = false;
  int32_t unknown_tokens_ = 0;  // of the prompt
  size_t most_waiting_tokens_ = 0;

  absl::Cord outgoing_;  // of the thread that set sending_ or ended_

  Mutex pause_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while the service is told
  Mutex mutex_;
  batching::SequenceHandle handle_ ABSL_GUARDED_BY(mutex_);
  std::vector<WaitingChunk> samples_ ABSL_GUARDED_BY(mutex_);  // what has yet to be sent
  size_t next_sample_ ABSL_GUARDED_BY(mutex_) = 0;             // whose turn it is
  size_t waiting_tokens_ ABSL_GUARDED_BY(mutex_) = 0;          // of all samples
  size_t ended_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t generated_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t echoed_tokens_ = 0;  // that are still to come, of all samples; for one chunk at a time
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  bool sent_all_ ABSL_GUARDED_BY(mutex_) = true;  // no message was lost
  bool done_ ABSL_GUARDED_BY(mutex_) = false;     // the service has ended the call
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // what the call ends with; the first one counts
};

}  // namespace

Task Generate() {
  Task task = TaskOf<GenerateCall>(calls::MethodId::kGenerate);
  task.add_runners = [](batching::TaskRunners* row) {
    row->make_step_runner = [](const models::Model& model, const batching::RunnerPlace& place) {
      return MakeGenerateStepper(model, place);
    };
    row->keeps_states = true;
    row->prefix_fields = [](const models::Model& model) -> const std::vector<kernels::FieldSpec>& {
      return model.As<models::LanguageModel>()->program.fields;
    };
    row->max_cpu_step_tokens = models::kMaxStepTokens;
    row->drained = "the server is shutting down; go on from the state on another replica";
  };
  return task;
}

}  // namespace sru::server::tasks
