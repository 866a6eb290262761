// ComputeCall: what every call that computes sequences and is answered at once does, from the bytes of its
// request to those of its answer. A call derives from it and says what its request asks for and what its
// answer is made of: from SequenceCall if its request has `sequences`. It goes through the batcher unless
// it says otherwise.
#ifndef SRU_SERVER_RPC_COMPUTE_CALL_H_
#define SRU_SERVER_RPC_COMPUTE_CALL_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/batching/answer_group.h"
#include "server/batching/reject_reason.h"
#include "server/compat/protobuf_compat.h"
#include "server/rpc/call_basics.h"
#include "server/rpc/end_call.h"
#include "server/rpc/message_form.h"
#include "server/rpc/request_outline.h"
#include "server/rpc/request_parser.h"
#include "server/rpc/response_writer.h"
#include "server/rpc/service_context.h"

namespace sru::server::rpc {

// Messages and results larger than this are freed as soon as they are not needed; smaller ones are
// freed with their call, which is cheaper.
inline constexpr size_t kLargeMessageBytes = 4096;
inline constexpr int64_t kLargeOutputBytes = 64 << 10;

// The state of one call that computes, made once per call.
//
// Lifetime: gRPC calls OnDone(), which deletes the call, only after the handler has returned the
// reactor, after Finish(), and after a running OnCancel(). So Start() may still use the call even
// if the batcher has answered already, and OnCancel() sees the handle that Start() stored.
//
// Memory: a call reserves memory from the budget before it takes it. If the memory for its request
// cannot be allocated nevertheless, the call ends with RESOURCE_EXHAUSTED.
template <typename Request, typename Response>
class ComputeCall : public grpc::ServerUnaryReactor, private UnsentAnswer {
 public:
  using Form = MessageFormPtr<Request, Response>;

  // The messages are `Request` and `Response`, or what `form` makes of them; then `method` is that of the form.
  ComputeCall(telemetry::Method method, const ServiceContext& context,
              grpc::CallbackServerContext* call, grpc::ByteBuffer* response_bytes, Form form)
      : context_(context),
        arrival_(context.clock->Now()),
        call_(call),
        request_id_(telemetry::AccessLog::Begin(*call)),
        request_(CreateOnArena<Request>(&arena_)),
        method_(form == nullptr ? method : form->method()),
        deadline_(std::min(DeadlineOf(*call, *context.clock),
                           form == nullptr ? absl::InfiniteFuture() : arrival_ + form->timeout())),
        response_bytes_(response_bytes),
        held_(context.budget),
        form_(std::move(form)) {
    context_.in_flight->Enter();
  }
  ComputeCall(const ComputeCall&) = delete;
  ComputeCall& operator=(const ComputeCall&) = delete;

  // Runs on the handler's thread, before the handler returns the reactor. Clears a large `bytes`.
  void Start(grpc::ByteBuffer* bytes) {
    context_.received->Note(context_.listener, *call_, static_cast<int64_t>(bytes->Length()));
    absl::Status status;
    try {
      status = Submit(bytes);
    } catch (const std::bad_alloc&) {
      retry_after_ = kMemoryRetryAfter;
      status = Refuse(batching::RejectReason::kMemory, kNoMemory);
    }
    if (status.ok()) return;
    if (bytes->Length() > kLargeMessageBytes) bytes->Clear();
    FinishWith(std::move(status));
  }

 protected:
  ~ComputeCall() override = default;

  // The following are called in this order; a sequence is one of those that ParseInput() has made.

  // Checks the fields that only this method has, and keeps what it needs.
  virtual absl::Status ParseParameters(const Request& request) = 0;
  // Turns what is asked about into sequences, whose outputs are left null.
  virtual absl::StatusOr<ParsedSequences> ParseInput(const Request& request) = 0;
  // Whether the answer is made of parts of the request, which therefore has to stay.
  virtual bool NeedsRequest() const { return false; }
  // The number of output floats that a sequence needs.
  virtual size_t OutputSize(int num_tokens) const = 0;
  // At least the bytes of its answer, both as a message and serialized.
  virtual int64_t AnswerBytes(size_t index, int num_tokens) const = 0;
  // Says what to compute of sequence `index`, into the OutputSize() floats at `values`.
  virtual void SetOutput(size_t index, float* values, batching::SequenceTask* task) = 0;
  // Writes the answer of sequence `index`.
  virtual void WriteSequence(size_t index, const TokenCounts& counts, float* values,
                             Response* response) const = 0;
  // Frees what ParseInput() has kept, if that may be large; called once the answer is serialized.
  virtual void FreeInput() {}
  // Tokens that have been computed besides those of the sequences, for the log.
  virtual int64_t ComputedTokens() const { return 0; }

  // What Batcher::CheckAdmission() says.
  virtual absl::Status CheckAdmission(int64_t num_tokens, int num_sequences,
                                      batching::Priority priority) {
    absl::Duration retry_after = absl::ZeroDuration();
    absl::Status status = served_->engine->batcher().CheckAdmission(
        num_tokens, num_sequences, priority, deadline_, &retry_after);
    return Refused(std::move(status), retry_after);
  }
  // Has the sequences computed; unless it returns an error, FinishWork() is called once, maybe before it
  // returns. Nothing is thrown then.
  virtual absl::Status SubmitWork(std::vector<batching::SequenceTask> tasks,
                                  batching::Priority priority) {
    // Those without tokens are answered without a batch.
    tasks.erase(
        std::remove_if(tasks.begin(), tasks.end(),
                       [](const batching::SequenceTask& task) { return task.num_tokens == 0; }),
        tasks.end());
    if (tasks.empty()) {
      FinishWork(absl::OkStatus(), batching::RequestTimes());
      return absl::OkStatus();
    }
    batching::BatchRequest batch_request;
    batch_request.sequences = std::move(tasks);
    batch_request.priority = priority;
    batch_request.deadline = deadline_;
    batch_request.done = [this](const absl::Status& status, const batching::RequestTimes& times) {
      FinishWork(status, times);
    };
    absl::Duration retry_after = absl::ZeroDuration();
    absl::StatusOr<batching::RequestHandle> handle =
        served_->engine->batcher().Submit(std::move(batch_request), &retry_after);
    if (!handle.ok()) return Refused(handle.status(), retry_after);
    handle_ = *std::move(handle);
    return absl::OkStatus();
  }
  // The caller is gone. Called once the handler has returned.
  virtual void CancelWork() {
    if (handle_ != nullptr) served_->engine->batcher().Cancel(handle_);
  }

  // Answers the call, which may be gone when it returns.
  void FinishWork(const absl::Status& status, const batching::RequestTimes& times) {
    times_.queue = times.queue;
    times_.compute = times.compute;
    FinishWith(status);
  }
  // Remembers when the caller should come back if `status` is not OK, and returns it.
  absl::Status Refused(absl::Status status, absl::Duration retry_after) {
    if (!status.ok()) retry_after_ = retry_after;
    return status;
  }

  const models::Model& model() const { return *served_->model; }
  batching::Engine& engine() const { return *served_->engine; }
  absl::Time deadline() const { return deadline_; }
  const RequestLimits& limits() const { return context_.limits; }
  const Request& request() const { return *request_; }  // until the answer is written, if needed

  // Of memory that the message's size does not tell: ParseInput() reserves it before it takes it, and
  // returns what it did not need.
  absl::Status Reserve(int64_t bytes) {
    if (held_.Grow(bytes)) return absl::OkStatus();
    const int64_t wanted = held_.bytes() + bytes;
    if (wanted <= context_.budget->limit()) retry_after_ = kMemoryRetryAfter;
    return Refuse(batching::RejectReason::kMemory, NoMemoryLeft(*context_.budget, wanted));
  }
  void ReturnReserved(int64_t bytes) { held_.ShrinkTo(held_.bytes() - bytes); }

 private:
  // Holds the messages of a call with one short text and a few labels.
  static constexpr size_t kArenaBlock = 1536;

  struct SequenceResult {
    size_t offset = 0;  // of its floats in outputs_
    TokenCounts counts;
  };

  void CountRefusal(batching::RejectReason reason) {
    if (served_ != nullptr) {
      served_->metrics->OnRefusal(reason);
    } else {
      context_.metrics->OnRefusalWithoutModel(reason);
    }
  }

  // For every refusal before the batcher, which counts its own refusals.
  absl::Status Refuse(batching::RejectReason reason, absl::string_view message) {
    absl::Status status = batching::MakeRefusal(reason, message);
    CountRefusal(reason);
    return status;
  }

  // Refuses, from an outline of the bytes, a request that would be refused anyway, and reserves the
  // memory for parsing it. Other faults of the request are left to the parser.
  absl::Status RefuseEarly(const grpc::ByteBuffer& bytes) {
    RequestOutline outline;
    if (form_ != nullptr) {
      served_ = form_->served();
      if (absl::Status status = form_->ReadOutline(&outline); !status.ok()) return status;
    } else if (!ReadOutline<Request>(bytes, &outline)) {
      return ExplainParseFailure(*Request::descriptor(), bytes);
    }
    num_sequences_ = outline.num_sequences;
    if (form_ == nullptr && !outline.long_model_name) {
      absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> served =
          context_.registry->Find(outline.model, outline.version, AnswersOf(method_));
      if (served.ok()) served_ = *std::move(served);
    }
    if (absl::Status status = CheckOutline(outline, context_.limits); !status.ok()) return status;
    const absl::StatusOr<batching::Priority> priority = ParsePriority(outline.priority);
    if (served_ != nullptr && priority.ok() && outline.num_sequences > 0) {
      absl::Status status =
          CheckAdmission(outline.least_tokens(), outline.least_tasks(), *priority);
      if (!status.ok()) return status;
    }
    return Reserve(EstimateCallBytes(outline));
  }

  absl::Status Submit(grpc::ByteBuffer* bytes) {
    if (absl::Status status = RefuseEarly(*bytes); !status.ok()) return status;
    absl::Status read = form_ == nullptr ? ParseMessage(*bytes, request_) : form_->Parse(request_);
    if (!read.ok()) return read;
    const bool large = bytes->Length() > kLargeMessageBytes;
    if (large) bytes->Clear();
    if (served_ == nullptr) {
      absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> served =
          context_.registry->Find(request_->model(), request_->version(), AnswersOf(method_));
      if (!served.ok()) return served.status();
      served_ = *std::move(served);
    }
    if (absl::Status status = ParseParameters(*request_); !status.ok()) return status;
    absl::StatusOr<batching::Priority> priority = ParsePriority(request_->priority());
    if (!priority.ok()) return priority.status();
    absl::StatusOr<ParsedSequences> parsed = ParseInput(*request_);
    if (!parsed.ok()) return parsed.status();
    if (large && !context_.access_log->content() && !NeedsRequest()) FreeMessages();
    served_->metrics->OnWords(parsed->words.words, parsed->words.unknown);
    if (absl::Status status = MakeOutputs(*priority, &*parsed); !status.ok()) return status;
    times_.tokenize = context_.clock->Now() - arrival_;
    return SubmitWork(std::move(parsed->tasks), *priority);
  }

  // Allocates the results of the tasks and points the tasks at them. If they are large, asks the
  // batcher first.
  absl::Status MakeOutputs(batching::Priority priority, ParsedSequences* parsed) {
    std::vector<batching::SequenceTask>& tasks = parsed->tasks;
    size_t output_size = 0;
    int64_t answer_bytes = 0;
    int64_t num_tokens = 0;
    int num_computed = 0;
    results_.reserve(tasks.size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      const int tokens = tasks[i].num_tokens;
      results_.push_back({output_size, parsed->counts[i]});
      output_size += OutputSize(tokens);
      answer_bytes += AnswerBytes(i, tokens);
      num_tokens += tokens;
      if (tokens > 0) ++num_computed;
    }
    if (form_ != nullptr) answer_bytes += form_->ExtraAnswerBytes(tasks);
    const auto output_bytes = static_cast<int64_t>(output_size * sizeof(float));
    if (output_bytes + answer_bytes > kLargeOutputBytes && num_computed > 0) {
      absl::Status status = CheckAdmission(num_tokens, num_computed, priority);
      if (!status.ok()) return status;
    }
    if (absl::Status status = Reserve(output_bytes + answer_bytes); !status.ok()) return status;
    outputs_.reset(new float[output_size]);  // not initialized: the engine writes all of it
    for (size_t i = 0; i < tasks.size(); ++i) {
      SetOutput(i, outputs_.get() + results_[i].offset, &tasks[i]);
    }
    return absl::OkStatus();
  }

  absl::Status WriteResponse() {
    auto* response = CreateOnArena<Response>(&arena_);
    response->set_model(model().name());
    response->set_version(model().version());
    for (size_t i = 0; i < results_.size(); ++i) {
      WriteSequence(i, results_[i].counts, outputs_.get() + results_[i].offset, response);
    }
    times_.total = context_.clock->Now() - arrival_;
    if (form_ != nullptr) return form_->Write(*response, response_bytes_);
    WriteTimes(times_, response->mutable_times());
    return SerializeMessage(*response, response_bytes_);
  }

  // Answers the call; nothing else does. Called exactly once. The call may be gone when it returns.
  // noexcept: gRPC would swallow the exception, and the caller would wait for ever.
  void FinishWith(absl::Status status) noexcept {
    if (status.ok()) status = WriteResponse();
    if (absl::IsCancelled(status) && IsAboutDeadline(deadline_, arrival_, context_.clock->Now())) {
      status = DeadlinePassed();
    }
    if (form_ != nullptr && !status.ok()) status = form_->Explain(status);
    if (!status.ok()) times_.total = context_.clock->Now() - arrival_;
    grpc::Status answer = EndCall(context_.metrics, context_.access_log, Ended(status));
    HoldSocket(status);
    if (held_.bytes() > kLargeOutputBytes) {
      FreeMessages();
      FreeInput();
      outputs_.reset();
      held_.ShrinkTo(kLargeOutputBytes / 2 + static_cast<int64_t>(response_bytes_->Length()));
    }
    context_.unsent->Add(this);
    context_.in_flight->Leave();
    Finish(std::move(answer));
  }

  // Moves the request's id out of the call.
  EndedCall Ended(const absl::Status& status) {
    EndedCall ended;
    ended.call = call_;
    ended.request_id = std::move(request_id_);
    ended.method = method_;
    ended.retry_after = retry_after_;
    telemetry::CallRecord& record = ended.record;
    record.status = &status;
    if (served_ != nullptr) {
      ended.model_metrics = served_->metrics.get();
      record.model = model().name();
      record.version = model().version();
    }
    record.sequences = num_sequences_;
    record.tokens = ComputedTokens();
    for (const SequenceResult& result : results_) record.tokens += result.counts.computed;
    record.times = times_;
    record.request = request_;
    return ended;
  }

  // Lets the answers of a batch leave together, and stops reading from a connection for a while
  // after it had a call refused.
  void HoldSocket(const absl::Status& status) {
    batching::AnswerGroup* const group = batching::AnswerGroup::Current();
    if (group != nullptr) group->Hold(Socket());
    if (absl::IsResourceExhausted(status) && context_.read_pause != nullptr) {
      context_.read_pause->Start(Socket());
    }
  }

  // Frees the request and the answer; called once the answer is serialized.
  void FreeMessages() {
    request_ = nullptr;
    arena_.Reset();
  }

  // The socket of the call's connection; -1 if it is not known.
  int Socket() const {
    return context_.listener == nullptr ? -1 : context_.listener->FindConnection(call_->peer());
  }

  void OnCancel() noexcept override {
    // This also removes a call whose deadline passes while all workers are busy: gRPC cancels it
    // then.
    CancelWork();
  }

  void OnDone() override {
    if (context_.unsent->Remove(this)) delete this;
  }

  // UnsentAnswer:
  void Abandon() override {
    context_.access_log->OnAnswerNotTaken(telemetry::MethodName(method_), call_->peer(),
                                          context_.send_timeout);
    if (context_.listener == nullptr || !context_.listener->Close(call_->peer())) {
      call_->TryCancel();
    }
  }
  void Release() override { delete this; }

  // OnCancel() and OnDone() never block, so gRPC may run them where it is instead of handing each
  // to a thread of its executor. gRPC's own default reactor does the same.
  bool InternalInlineable() override { return true; }

  const ServiceContext& context_;
  const absl::Time arrival_;
  grpc::CallbackServerContext* const call_;
  std::string request_id_;
  alignas(8) char arena_block_[kArenaBlock];
  google::protobuf::Arena arena_{arena_block_, kArenaBlock};
  Request* request_;  // null after it was freed
  const telemetry::Method method_;
  const absl::Time deadline_;
  grpc::ByteBuffer* const response_bytes_;
  ByteReservation held_;
  const Form form_;  // null: the messages are those of sru.v1

  std::shared_ptr<lifecycle::ServedModel> served_;
  int num_sequences_ = 0;
  std::vector<SequenceResult> results_;
  std::unique_ptr<float[]> outputs_;  // written by the engine until `done`
  telemetry::CallTimes times_;
  std::optional<absl::Duration> retry_after_;
  batching::RequestHandle handle_;
};

// Whether the caller lets sequences be cut. A score of half a sequence would be of no use.
inline bool MayTruncate(const v1::ClassifyRequest& request) { return request.truncate(); }
inline bool MayTruncate(const v1::EncodeRequest& request) { return request.truncate(); }
inline bool MayTruncate(const v1::ScoreRequest& /*request*/) { return false; }

// A call whose request has `sequences`.
template <typename Request, typename Response>
class SequenceCall : public ComputeCall<Request, Response> {
 public:
  using ComputeCall<Request, Response>::ComputeCall;

 protected:
  ~SequenceCall() override = default;

  // Called once all sequences are parsed: checks what the request says of each of them.
  virtual absl::Status ParseSequenceParameters(const Request& /*request*/, size_t /*sequences*/) {
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<ParsedSequences> ParseInput(const Request& request) final {
    ModelInput input = InputOf(this->model());
    input.may_be_empty = request.skip_empty();
    absl::StatusOr<ParsedSequences> parsed =
        ParseSequences(request.sequences(), MayTruncate(request), input, this->limits());
    if (!parsed.ok()) return parsed;
    absl::Status good = ParseSequenceParameters(request, parsed->tasks.size());
    if (!good.ok()) return good;
    return parsed;
  }
};

// Makes a `Call`, which answers the call whenever that may be.
template <typename Call>
grpc::ServerUnaryReactor* StartCall(const ServiceContext& context,
                                    grpc::CallbackServerContext* call,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                    typename Call::Form form) {
  auto* const reactor = new Call(context, call, response, std::move(form));
  // The object is gRPC's own and nothing else reads it; there is no other way to free it before the
  // call ends.
  reactor->Start(const_cast<grpc::ByteBuffer*>(request));
  return reactor;
}

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_COMPUTE_CALL_H_
