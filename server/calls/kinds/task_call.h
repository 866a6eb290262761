// TaskCall: what every call that computes sequences and is answered at once does, from the bytes of
// its request to those of its answer. A call derives from it and says what its request asks for and
// what its answer is made of: from SequenceCall if its request has `sequences`. It goes through the
// batcher unless it says otherwise.
#ifndef SRU_SERVER_CALLS_KINDS_TASK_CALL_H_
#define SRU_SERVER_CALLS_KINDS_TASK_CALL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/status.h"
#include "google/protobuf/arena.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/message_form.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/messages/response_writer.h"

namespace sru::server::calls {

// Results larger than this, and messages than kLargeMessageBytes, are freed as soon as they are not
// needed; smaller ones are freed with their call, which is cheaper.
inline constexpr int64_t kLargeOutputBytes = 64 << 10;

// Whether a request has a field that lets sequences be cut.
template <typename Request, typename = void>
struct HasTruncate : std::false_type {};
template <typename Request>
struct HasTruncate<Request, std::void_t<decltype(std::declval<Request>().truncate())>>
    : std::true_type {};

// Whether calls of a request wait for others, and so have a priority and times.
template <typename Request, typename = void>
struct HasPriority : std::false_type {};
template <typename Request>
struct HasPriority<Request, std::void_t<decltype(std::declval<Request>().priority())>>
    : std::true_type {};

// The state of one call that computes, made once per call. `Task` is its sequences' type.
template <typename Request, typename Response, typename Task>
class TaskCall : public Call {
 public:
  using RequestType = Request;
  using ResponseType = Response;

  // The messages are `Request` and `Response`, or what `form` makes of them; then `method` is that
  // of the form.
  TaskCall(MethodId method, const ServiceContext& context, Exchange* exchange, MessageFormPtr form)
      : Call(method, context, exchange),
        request_(google::protobuf::Arena::CreateMessage<Request>(&arena_)),
        form_(std::move(form)) {
    times_.emplace();
    context_.in_flight->Enter();
  }

  // With a form, the message is in that.
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    if (!message.has_value() && exchange_.is_cancelled()) {
      return FinishWith(absl::CancelledError("the caller cancelled the call before its message"));
    }
    // A call without a message has an empty one.
    absl::Cord bytes = message.has_value() ? *std::move(message) : absl::Cord();
    *context_.received_bytes += static_cast<int64_t>(bytes.size());
    absl::Status status = TakeMessage([&] { return RefuseEarly(bytes); });
    if (!status.ok()) return FinishWith(std::move(status));
    if (!IsLongText(served_.get(), message_bytes_)) return Take(std::move(bytes));
    RunOn(context_.readers, [this, bytes = std::move(bytes)] {
      if (exchange_.is_cancelled()) {
        return FinishWith(absl::CancelledError("the caller cancelled the call"));
      }
      Take(bytes);
    });
  }

 protected:
  ~TaskCall() override = default;

  // The following are called in this order; a sequence is one of those that ParseInput() has made.

  // Checks the fields that only this method has, and keeps what it needs. The model has a task of
  // the method.
  virtual absl::Status ParseParameters(const Request& request) = 0;
  // Turns what is asked about into `tasks`, whose outputs are left null.
  virtual absl::StatusOr<ParsedSequences> ParseInput(const Request& request,
                                                     std::vector<Task>* tasks) = 0;
  // Whether the answer is made of parts of the request, which therefore has to stay.
  virtual bool NeedsRequest() const { return false; }
  // The number of output floats that a sequence needs.
  virtual size_t OutputSize(int /*num_tokens*/) const { return 0; }
  // At least the bytes of its answer, both as a message and serialized.
  virtual int64_t AnswerBytes(size_t index, int num_tokens) const = 0;
  // At least the bytes that the answer takes beyond those, if it has a form.
  virtual int64_t FormBytes(const std::vector<TokenCounts>& /*sequences*/) const { return 0; }
  // Says what to compute of sequence `index`, into the OutputSize() floats at `values`.
  virtual void SetOutput(size_t /*index*/, float* /*values*/, Task* /*task*/) {}
  // Writes the answer of sequence `index`.
  virtual void WriteSequence(size_t index, const TokenCounts& counts, float* values,
                             Response* response) const = 0;
  // Frees what ParseInput() has kept besides the tasks, if that may be large; called once the
  // answer is serialized.
  virtual void FreeInput() {}
  // Tokens that have been computed besides those of the sequences, for the log.
  virtual int64_t ComputedTokens() const { return 0; }

  // What Batcher::CheckAdmission() says.
  virtual absl::Status CheckAdmission(int64_t num_tokens, int num_sequences,
                                      batching::Priority priority) {
    return CheckQueue(engine().batcher(), num_tokens, num_sequences, priority, deadline());
  }
  // Has the sequences computed; unless it returns an error, FinishWork() is called once, maybe
  // before it returns. Nothing is thrown then.
  virtual absl::Status SubmitWork(batching::Priority priority) {
    batching::BatchRequest batch_request;
    batch_request.sequences.reserve(tasks_.size());
    for (const Task& task : tasks_) {
      // Those without tokens are answered without a batch.
      if (task.num_tokens > 0) batch_request.sequences.push_back(&task);
    }
    if (batch_request.sequences.empty()) {
      FinishWork(absl::OkStatus(), batching::RequestTimes());
      return absl::OkStatus();
    }
    batch_request.priority = priority;
    batch_request.deadline = deadline();
    batch_request.flow = caller_;
    batch_request.done = [this](const absl::Status& status, const batching::RequestTimes& times) {
      FinishWork(status, times);
    };
    SRU_ASSIGN_OR_RETURN(handle_, engine().batcher().Submit(std::move(batch_request)));
    return absl::OkStatus();
  }
  // The caller is gone. Called once the handler has returned.
  virtual void CancelWork() { engine().batcher().Cancel(handle_); }

  // Answers the call, which may be gone when it returns.
  void FinishWork(const absl::Status& status, const batching::RequestTimes& times) {
    times_->Take(times, context_.clock->Now());
    FinishWith(status);
  }

  const models::Model& model() const { return *served_->model; }
  batching::Engine& engine() const { return *served_->engine; }
  absl::Time deadline() const {
    return form_ == nullptr ? deadline_ : std::min(deadline_, arrival_ + form_->timeout());
  }
  bool has_form() const { return form_ != nullptr; }
  const RequestLimits& limits() const { return context_.limits; }
  const Request& request() const { return *request_; }  // until the answer is written, if needed
  // From ParseInput() until the answer is written.
  std::vector<Task>& tasks() { return tasks_; }
  const std::vector<Task>& tasks() const { return tasks_; }

  // Of memory that the message's size does not tell: ParseInput() reserves it before it takes it,
  // and returns what it did not need.
  absl::Status Reserve(int64_t bytes) { return Call::Reserve(&held_, bytes); }
  void ReturnReserved(int64_t bytes) { held_.ShrinkTo(held_.bytes() - bytes); }

 private:
  // Holds the messages of a call with one short text and a few labels.
  static constexpr size_t kArenaBlock = 1536;

  struct SequenceResult {
    size_t offset = 0;  // of its floats in outputs_
    TokenCounts counts;
  };

  // Refuses, from an outline of the bytes, a request that would be refused anyway, and reserves the
  // memory for parsing it. Other faults of the request are left to the parser.
  absl::Status RefuseEarly(const absl::Cord& bytes) {
    RequestOutline outline;
    if (form_ != nullptr) {
      SRU_RETURN_UNLESS_OK(CheckModel(form_->served()->name));
      SetModel(form_->served());
      SRU_RETURN_UNLESS_OK(form_->ReadOutline(&outline));
    } else if (!ReadOutline<Request>(bytes, &outline)) {
      return ExplainParseFailure(*Request::descriptor(), bytes);
    }
    num_sequences_ = outline.num_sequences;
    message_bytes_ = outline.message_bytes;
    if (form_ == nullptr && !outline.long_model_name) {
      // If there is no such model, the parsed request gives the better error.
      FindModel(outline.model, outline.version).IgnoreError();
    }
    SRU_RETURN_UNLESS_OK(CheckOutline(outline, context_.limits));
    const absl::StatusOr<batching::Priority> priority = PriorityOf(outline.priority);
    // If the model does not answer the call, ParseParameters() gives the better error.
    const bool answers = served_ != nullptr && (form_ != nullptr || Answers(model(), method_));
    if (answers && priority.ok() && outline.num_sequences > 0) {
      SRU_RETURN_UNLESS_OK(
          CheckAdmission(outline.least_tokens(), outline.least_tasks(), *priority));
    }
    return Reserve(EstimateCallBytes(outline));
  }

  // The call may be cancelled meanwhile.
  void Take(absl::Cord bytes) noexcept {
    const Reference alive(this);
    absl::Status status = TakeMessage([&] { return Submit(&bytes); });
    if (!status.ok()) return FinishWith(std::move(status));
    if ((progress_.fetch_or(kSubmitted) & kCancelled) != 0) CancelWork();
  }

  // Clears `bytes` when they are parsed.
  absl::Status Submit(absl::Cord* bytes) {
    const bool large = bytes->size() > kLargeMessageBytes;
    SRU_RETURN_UNLESS_OK(form_ == nullptr ? ParseMessage(*bytes, request_)
                                          : form_->Parse(request_));
    bytes->Clear();
    if (served_ == nullptr) {
      SRU_RETURN_UNLESS_OK(FindModel(request_->model(), request_->version()));
    }
    if (form_ == nullptr) SRU_RETURN_UNLESS_OK(CheckTask(model(), method_));
    SRU_RETURN_UNLESS_OK(ParseParameters(*request_));
    v1::Priority asked = v1::PRIORITY_UNSPECIFIED;
    if constexpr (HasPriority<Request>::value) asked = request_->priority();
    SRU_ASSIGN_OR_RETURN(const batching::Priority priority, PriorityOf(asked));
    SRU_ASSIGN_OR_RETURN(ParsedSequences parsed, ParseInput(*request_, &tasks_));
    if (large && !context_.access_log->content() && !NeedsRequest()) FreeMessages();
    served_->metrics->OnWords(parsed.words.words, parsed.words.unknown);
    SRU_RETURN_UNLESS_OK(MakeOutputs(priority, parsed.counts));
    times_->tokenize = context_.clock->Now() - arrival_;
    int64_t num_tokens = 0;
    for (const Task& task : tasks_) num_tokens += task.num_tokens;
    return SubmitCharged(num_tokens, [&]() { return SubmitWork(priority); });
  }

  // Allocates the results of the tasks and points the tasks at them. If they are large, asks the
  // batcher first.
  absl::Status MakeOutputs(batching::Priority priority, const std::vector<TokenCounts>& counts) {
    size_t output_size = 0;
    int64_t answer_bytes = 0;
    int64_t num_tokens = 0;
    int num_computed = 0;
    results_.reserve(tasks_.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const int tokens = tasks_[i].num_tokens;
      results_.push_back({output_size, counts[i]});
      output_size += OutputSize(tokens);
      answer_bytes += AnswerBytes(i, tokens);
      num_tokens += tokens;
      if (tokens > 0) ++num_computed;
    }
    const auto output_bytes = static_cast<int64_t>(output_size * sizeof(float));
    const int64_t form_bytes = form_ == nullptr ? 0 : FormBytes(counts);
    answer_bytes += form_bytes + exchange_.answer_expansion() * (output_bytes + form_bytes);
    has_long_answer_ = answer_bytes > kLongAnswerBytes;
    if (output_bytes + answer_bytes > context_.budget->most_of_caller()) {
      const bool has_queries = Request::descriptor()->FindFieldByName("queries") != nullptr;
      return Refuse(
          batching::RejectReason::kMemory,
          AnswerTooLarge(*context_.budget, answer_bytes, has_queries ? "queries" : "sequences"));
    }
    if (output_bytes + answer_bytes > kLargeOutputBytes && num_computed > 0) {
      SRU_RETURN_UNLESS_OK(CheckAdmission(num_tokens, num_computed, priority));
    }
    SRU_RETURN_UNLESS_OK(Reserve(output_bytes + answer_bytes));
    outputs_.reset(new float[output_size]);  // not initialized: the engine writes all of it
    for (size_t i = 0; i < tasks_.size(); ++i) {
      SetOutput(i, outputs_.get() + results_[i].offset, &tasks_[i]);
    }
    return absl::OkStatus();
  }

  absl::Status WriteResponse(absl::Cord* answer) {
    auto* response = google::protobuf::Arena::CreateMessage<Response>(&arena_);
    response->set_model(model().name());
    response->set_version(model().version());
    for (size_t i = 0; i < results_.size(); ++i) {
      WriteSequence(i, results_[i].counts, outputs_.get() + results_[i].offset, response);
    }
    if (form_ != nullptr) return form_->Write(*response, answer);
    times_->total = context_.clock->Now() - arrival_;
    if constexpr (HasPriority<Request>::value) WriteTimes(*times_, response->mutable_times());
    return SerializeMessage(*response, answer);
  }

  // Answers the call; nothing else does. Called exactly once. The call may be gone when it returns.
  void FinishWith(absl::Status status) noexcept {
    if (!status.ok() || !has_long_answer_) return Answer(std::move(status));
    RunOn(context_.writers, [this] {
      Answer(exchange_.is_cancelled() ? absl::CancelledError("the caller cancelled the call")
                                      : absl::OkStatus());
    });
  }

  // noexcept: the transport would lose the exception, and the caller would wait for ever.
  void Answer(absl::Status status) noexcept {
    const crash::InFlight answered(Describe(method_).name, logged_model_, logged_version_);
    absl::Cord answer;
    // Its caller has given it up.
    if (status.ok() && context_.clock->Now() >= deadline()) status = DeadlinePassed();
    if (status.ok()) status = WriteResponse(&answer);
    if (form_ != nullptr && !status.ok()) {
      if (absl::IsCancelled(status) &&
          IsAboutDeadline(deadline(), arrival_, context_.clock->Now())) {
        status = DeadlinePassed();
      }
      status = form_->Explain(status);
    }
    num_tokens_ = ComputedTokens();
    for (const SequenceResult& result : results_) num_tokens_ += result.counts.computed;
    logged_request_ = request_;
    CallEnd end = Ending(status);
    if (held_.bytes() > kLargeOutputBytes) {
      FreeMessages();
      FreeInput();
      tasks_ = {};
      outputs_.reset();
      held_.ShrinkTo(kLargeOutputBytes / 2 + static_cast<int64_t>(answer.size()));
    }
    InFlight& in_flight = *context_.in_flight;
    if (status.ok()) {
      exchange_.WriteAndFinish(std::move(answer), std::move(end));
    } else {
      exchange_.Finish(std::move(end));
    }
    // Last, so that a drain waits for the answer to leave once the call is no longer in flight.
    in_flight.Leave();
  }

  // Frees the request and the answer; called once the answer is serialized.
  void FreeMessages() {
    request_ = nullptr;
    arena_.Reset();
  }

  void OnCancel() noexcept override {
    // This also removes a call whose deadline passes while all workers are busy: the transport
    // cancels it then.
    if ((progress_.fetch_or(kCancelled) & kSubmitted) != 0) CancelWork();
  }

  // The bits of progress_.
  static constexpr int kSubmitted = 1;
  static constexpr int kCancelled = 2;

  alignas(8) char arena_block_[kArenaBlock];
  google::protobuf::Arena arena_{arena_block_, kArenaBlock};
  Request* request_;           // null after it was freed
  const MessageFormPtr form_;  // null: the messages are those of sru.v1

  std::vector<Task> tasks_;  // [sequence]; computed until `done`
  std::vector<SequenceResult> results_;
  std::unique_ptr<float[]> outputs_;  // written by the engine until `done`
  batching::RequestHandle handle_;
  int64_t message_bytes_ = 0;
  bool has_long_answer_ = false;
  std::atomic<int> progress_{0};  // what came second, the work or its end, cancels it
};

// A call whose request has `sequences`.
template <typename Request, typename Response, typename Task>
class SequenceCall : public TaskCall<Request, Response, Task> {
 public:
  using TaskCall<Request, Response, Task>::TaskCall;

 protected:
  ~SequenceCall() override = default;

  // Called once all sequences are parsed: checks what the request says of each of them.
  virtual absl::Status ParseSequenceParameters(const Request& /*request*/,
                                               std::vector<Task>* /*tasks*/) {
    return absl::OkStatus();
  }
  // Gets the places of the tokens of texts; null: the answer does not have them.
  virtual std::vector<std::vector<models::TextSpan>>* Spans() { return nullptr; }

 private:
  absl::StatusOr<ParsedSequences> ParseInput(const Request& request,
                                             std::vector<Task>* tasks) final {
    ModelInput input = InputOf(this->model());
    SRU_ASSIGN_OR_RETURN(input.unknown, ParseUnknown(request.unknown(), this->model()));
    input.spans = Spans();
    if (input.spans != nullptr) {
      SRU_RETURN_UNLESS_OK(
          this->Reserve(SpanBytes(request.sequences(), this->limits().max_sequence_tokens)));
    }
    input.may_be_empty = request.skip_empty();
    input.empty_advice = this->has_form()
                             ? "with the parameter skip_empty such a row gets an empty answer"
                             : "with skip_empty such a sequence gets an empty answer";
    bool truncate = false;
    if constexpr (HasTruncate<Request>::value) truncate = request.truncate();
    SRU_ASSIGN_OR_RETURN(ParsedSequences parsed, ParseSequences(request.sequences(), truncate,
                                                                input, this->limits(), tasks));
    SRU_RETURN_UNLESS_OK(ParseSequenceParameters(request, tasks));
    return parsed;
  }
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_TASK_CALL_H_
