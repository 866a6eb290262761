// EncodeStream: token vectors of a sequence that comes in chunks. A chunk is a sequence of the
// batcher like any other, which goes on from the state of the stream.
//
// The next message is read when the answer to the last one has left: a client that does not read
// its answers is not read either, and a stream holds one chunk at most. Between chunks it holds its
// state and little else, and not its model.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "kernels/state_arena.h"
#include "models/state_codec.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/kinds/call.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/messages/response_writer.h"
#include "server/tasks/encode/encoding.h"
#include "server/tasks/stacks/stack_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

class EncodeStreamCall final : public calls::Call {
 public:
  using RequestType = v1::EncodeStreamRequest;
  using ResponseType = v1::EncodeStreamResponse;

  EncodeStreamCall(calls::MethodId method, const calls::ServiceContext& context,
                   calls::Exchange* exchange, calls::MessageFormPtr /*form*/)
      : Call(method, context, exchange), chunk_held_(context.budget, share()) {
    times_.emplace();
  }

  void Start() {
    absl::Status status = TakeMessage([this] { return Open(); });
    if (status.ok()) return ReadNext();  // or it ends here, if a drain has begun meanwhile
    SetPhase(Phase::kEnded);
    End(std::move(status));
  }

 private:
  enum class Phase {
    kReading,    // a message is read; all before it are answered
    kComputing,  // until the answer to the message is ready
    kSending,
    kEnded
  };

  // Takes the stream from one phase to another. False when it was in another one.
  bool Move(Phase from, Phase to) {
    MutexLock lock(&mutex_);
    if (phase_ != from) return false;
    phase_ = to;
    return true;
  }

  void SetPhase(Phase phase) {
    MutexLock lock(&mutex_);
    phase_ = phase;
  }

  // noexcept as in Ending().
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    if (!Move(Phase::kReading, Phase::kComputing)) return;  // it has ended meanwhile
    context_.in_flight->Enter();
    if (!message.has_value()) {
      Fail(EndOfMessages());
      return;
    }
    incoming_ = *std::move(message);
    // Which model the first message is for is not known yet.
    const auto bytes = static_cast<int64_t>(incoming_.size());
    const bool is_long = has_started_ ? calls::IsLongText(idle_model_.lock().get(), bytes)
                                      : incoming_.size() > calls::kLargeMessageBytes;
    RunOn(is_long ? context_.readers : nullptr, [this] {
      absl::Status status = TakeMessage([this] { return Take(); });
      if (!status.ok()) Fail(std::move(status));
    });
  }

  absl::Status EndOfMessages() const {
    if (exchange_.is_cancelled()) return absl::CancelledError("the caller cancelled the stream");
    if (has_started_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "start: expected in the first message of the stream, found the end of the stream");
  }

  // Begins to answer the message that was read.
  absl::Status Take() {
    message_arrival_ = context_.clock->Now();
    *context_.received_bytes += static_cast<int64_t>(incoming_.size());
    calls::RequestOutline outline;
    if (!calls::ReadOutline<v1::EncodeStreamRequest>(incoming_, &outline)) {
      return calls::ExplainParseFailure(*v1::EncodeStreamRequest::descriptor(), incoming_);
    }
    if (outline.extra_fields > calls::kMaxExtraFields) return calls::TooManyFields();
    SRU_RETURN_UNLESS_OK(Reserve(&chunk_held_, calls::EstimateCallBytes(outline)));
    v1::EncodeStreamRequest request;
    SRU_RETURN_UNLESS_OK(calls::ParseMessage(incoming_, &request));
    incoming_.Clear();
    const bool is_first = !has_started_;
    if (is_first != request.has_start()) {
      return absl::InvalidArgumentError(
          is_first ? "start: absent, expected in the first message of the stream"
                   : "start: expected in the first message of the stream only");
    }
    if (is_first) {
      SRU_RETURN_UNLESS_OK(Begin(request.start()));
    } else
      SRU_RETURN_UNLESS_OK(FindModelAgain());
    return_state_ = request.return_state();
    if (request.has_chunk()) return Submit(request.chunk());
    if (!return_state_) {
      if (!is_first) {
        return absl::InvalidArgumentError(
            "chunk: absent, expected what comes next, or return_state");
      }
      Continue();
      return absl::OkStatus();
    }
    SRU_RETURN_UNLESS_OK(Reserve(&chunk_held_, StateAnswerBytes()));
    v1::EncodeStreamResponse response;
    SRU_RETURN_UNLESS_OK(WriteResponse(&response));
    Answer();
    return absl::OkStatus();
  }

  absl::Status Begin(const v1::EncodeStreamStart& start) {
    SRU_RETURN_UNLESS_OK(FindModel(start.model(), start.version()));
    idle_model_ = served_;
    SRU_RETURN_UNLESS_OK(CheckModel(model()));
    const absl::Status status = ReadStart(start);
    if (!absl::IsInvalidArgument(status)) return status;
    return InvalidArgument("start.", status.message());
  }

  absl::Status ReadStart(const v1::EncodeStreamStart& start) {
    SRU_ASSIGN_OR_RETURN(format_, ParseOutputFormat(start.output_format()));
    SRU_ASSIGN_OR_RETURN(priority_, PriorityOf(start.priority()));
    SRU_ASSIGN_OR_RETURN(unknown_, calls::ParseUnknown(start.unknown(), model()));
    normalize_ = start.normalize();
    layers_ = static_cast<int>(model().spec().layers.size());
    width_ = model().spec().output_size();
    // The state between chunks, and the one that a chunk makes.
    SRU_RETURN_UNLESS_OK(Reserve(&held_, StateBytes()));
    if (!start.state().empty()) {
      models::SequenceState sequence;
      const absl::Status status = model().state_codec().Decode(start.state(), &sequence);
      if (absl::IsInvalidArgument(status)) return InvalidArgument("state: ", status.message());
      if (!status.ok()) return status;
      const std::vector<float>& values = sequence.state.values;
      if (!values.empty()) {
        state_ = NewState();
        std::copy(values.begin(), values.end(), state_.get());
      }
    }
    has_started_ = true;
    return absl::OkStatus();
  }

  static absl::Status CheckModel(const models::Model& model) {
    constexpr calls::MethodId kId = calls::MethodId::kEncodeStream;
    SRU_RETURN_UNLESS_OK(calls::CheckTask(model, kId));
    if (model.is_unidirectional()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "model: '", model.name(), "' is a bidirectional ", models::TaskName(model.task()), ", ",
        calls::MethodName(kId), " needs ", calls::Describe(kId).needs));
  }

  // A stream must not keep a model in memory while it waits for its client.
  absl::Status FindModelAgain() {
    served_ = idle_model_.lock();
    if (served_ != nullptr) return absl::OkStatus();
    return absl::UnavailableError(
        "model: it was unloaded or replaced since the last chunk; begin a new stream");
  }

  absl::Status Submit(const v1::Sequence& chunk) {
    batching::BatchRequest batch;
    task_ = StackTask();
    StackTask& task = task_;
    batch.sequences = {&task};
    if (form_ != v1::Sequence::INPUT_NOT_SET && chunk.input_case() != form_ &&
        chunk.input_case() != v1::Sequence::INPUT_NOT_SET) {
      return InvalidArgument("chunk.", FormName(chunk.input_case()), ": expected ", FormName(form_),
                             " as in the chunks before it");
    }
    calls::TokenCounts counts;
    calls::ModelInput input = calls::InputOf(model());
    input.unknown = unknown_;
    absl::Status status =
        calls::ParseSequence(chunk, "chunk", input, context_.limits, &task, &counts);
    if (!status.ok()) return status;
    form_ = chunk.input_case();
    unknown_tokens_ = counts.unknown;
    calls::WordCounts words;
    calls::AddWords(form_, counts, &words);
    served_->metrics->OnWords(words.words, words.unknown);
    const int64_t values = int64_t{task.num_tokens} * width_;
    // The values, in the message and on the wire.
    status = Reserve(&chunk_held_, 3 * values * static_cast<int64_t>(sizeof(float)) + StateBytes() +
                                       (return_state_ ? StateAnswerBytes() : 0));
    if (!status.ok()) return status;
    outputs_.reset(new float[values]);  // not initialized: the engine writes all of it
    next_state_ = NewState();
    chunk_tokens_ = task.num_tokens;
    task.output.pooling = kernels::Pooling::kNone;
    task.output.token_vectors = outputs_.get();
    task.output.final_state = next_state_.get();
    task.initial_state = state_.get();
    batch.priority = priority_;
    batch.flow = caller_;
    batch.deadline = deadline_;
    batch.done = [this](const absl::Status& done, const batching::RequestTimes& times) {
      OnComputed(done, times);
    };
    chunk_times_.tokenize = context_.clock->Now() - message_arrival_;
    int64_t submitted = 0;
    {
      MutexLock lock(&mutex_);
      submitted = ++chunks_submitted_;
    }
    const std::shared_ptr<lifecycle::ServedModel> served = served_;
    batching::RequestHandle handle;
    SRU_RETURN_UNLESS_OK(SubmitCharged(task.num_tokens, [&]() -> absl::Status {
      SRU_ASSIGN_OR_RETURN(handle, served->engine->batcher().Submit(std::move(batch)));
      return absl::OkStatus();
    }));
    // From here on the answer may be on its way, and even the next chunk.
    {
      MutexLock lock(&mutex_);
      if (chunks_submitted_ == submitted) handle_ = handle;
    }
    if (exchange_.is_cancelled()) served->engine->batcher().Cancel(handle);
    return absl::OkStatus();
  }

  static std::string FormName(v1::Sequence::InputCase form) {
    return std::string(v1::Sequence::descriptor()->FindFieldByNumber(form)->name());
  }

  // On a worker's thread, or that of a Cancel().
  // noexcept, as in Call::Ending(), what follows once a message is accepted: a handler above would
  // end the call twice.
  void OnComputed(const absl::Status& done, const batching::RequestTimes& times) noexcept {
    chunk_times_.Take(times, context_.clock->Now());
    const int64_t bytes = int64_t{chunk_tokens_} * width_ * static_cast<int64_t>(sizeof(float));
    RunOn(bytes > calls::kLongAnswerBytes ? context_.writers : nullptr,
          [this, done] { AnswerChunk(done); });
  }

  void AnswerChunk(absl::Status status) noexcept {
    if (status.ok()) {
      state_ = std::move(next_state_);
      status = WriteEncoding();
    }
    if (status.ok()) {
      Answer();
    } else {
      Fail(std::move(status));
    }
  }

  absl::Status WriteEncoding() {
    v1::EncodeStreamResponse response;
    v1::Encoding* const encoding = response.mutable_encoding();
    if (normalize_) {
      for (int64_t row = 0; row < chunk_tokens_; ++row) {
        Normalize(outputs_.get() + row * width_, width_);
      }
    }
    encoding->add_shape(chunk_tokens_);
    encoding->add_shape(width_);
    WriteValues(outputs_.get(), chunk_tokens_, width_, format_, encoding);
    encoding->set_token_count(chunk_tokens_);
    encoding->set_unknown_tokens(unknown_tokens_);
    outputs_ = nullptr;
    return WriteResponse(&response);
  }

  // Adds what every answer has, and serializes it.
  absl::Status WriteResponse(v1::EncodeStreamResponse* response) {
    if (return_state_) response->set_state(EncodedState());
    chunk_times_.total = context_.clock->Now() - message_arrival_;
    calls::WriteTimes(chunk_times_, response->mutable_times());
    return calls::SerializeMessage(*response, &outgoing_);
  }

  void Answer() noexcept {
    if (chunk_tokens_ > 0) ++num_sequences_;
    num_tokens_ += chunk_tokens_;
    times_->tokenize += chunk_times_.tokenize;
    times_->queue += chunk_times_.queue;
    times_->compute += chunk_times_.compute;
    if (trace_ != nullptr && chunk_tokens_ > 0) {
      trace_->OnStages({message_arrival_, chunk_times_});
    }
    Rest();
    SetPhase(Phase::kSending);
    context_.in_flight->Leave();
    exchange_.Write(std::move(outgoing_));
  }

  // Gives up what only a chunk that is computed needs.
  void Rest() {
    chunk_tokens_ = 0;
    chunk_times_ = telemetry::CallTimes();
    task_ = StackTask();
    outputs_ = nullptr;
    next_state_ = nullptr;
    served_ = nullptr;
    chunk_held_.ShrinkTo(static_cast<int64_t>(outgoing_.size()));
  }

  // A first message without a chunk has no answer.
  void Continue() noexcept {
    Rest();
    context_.in_flight->Leave();
    ReadNext();
  }

  void OnWritten(bool ok) noexcept override {
    chunk_held_.ShrinkTo(0);
    if (ok) {
      ReadNext();
      return;
    }
    SetPhase(Phase::kEnded);
    End(absl::CancelledError("the client is gone, or does not take its answers"));
  }

  void ReadNext() {
    const Reference alive(this);  // the stream may end before Read() returns
    bool draining = false;
    {
      MutexLock lock(&mutex_);
      draining = draining_;
      phase_ = Phase::kReading;
      ++asking_;
    }
    if (!draining) exchange_.Read();
    {
      MutexLock lock(&mutex_);
      --asking_;
    }
    EndIfDraining();
  }

  // Ends a stream that waits for its client. A thread that is in ReadNext() uses the exchange, and
  // ends the stream itself.
  void EndIfDraining() {
    {
      MutexLock lock(&mutex_);
      if (!draining_ || phase_ != Phase::kReading || asking_ > 0) return;
      phase_ = Phase::kComputing;
    }
    context_.in_flight->Enter();
    Fail(Draining());
  }

  static absl::Status Draining() {
    return absl::UnavailableError("the server is shutting down; go on at another replica");
  }

  // Ends the stream in phase kComputing. What another server may do better begins with the state
  // that this one has reached.
  void Fail(absl::Status status) noexcept {
    SetPhase(Phase::kEnded);
    const bool can_go_on = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
    std::optional<absl::Cord> last;
    if (can_go_on && state_ != nullptr && FindModelAgain().ok()) {
      v1::EncodeStreamResponse response;
      response.set_state(EncodedState());
      if (calls::SerializeMessage(response, &outgoing_).ok()) last = std::move(outgoing_);
    }
    Rest();
    context_.in_flight->Leave();
    End(std::move(status), std::move(last));
  }

  // OpenStream:
  void OnDrain() override {
    {
      MutexLock lock(&mutex_);
      draining_ = true;
    }
    EndIfDraining();
  }

  void OnCancel() noexcept override {
    batching::RequestHandle handle;
    {
      MutexLock lock(&mutex_);
      handle = handle_;
    }
    if (handle == nullptr) return;
    const std::shared_ptr<lifecycle::ServedModel> served = idle_model_.lock();
    if (served != nullptr) served->engine->batcher().Cancel(handle);
  }

  const models::Model& model() const { return *served_->model; }
  size_t state_size() const { return static_cast<size_t>(layers_) * width_; }
  int64_t StateBytes() const { return static_cast<int64_t>(state_size() * sizeof(float)); }
  // As it is taken out, in the message and on the wire.
  int64_t StateAnswerBytes() const {
    return 3 * static_cast<int64_t>(model().state_codec().bytes());
  }
  std::unique_ptr<float[]> NewState() const {
    return std::unique_ptr<float[]>(new float[state_size()]);
  }

  std::string EncodedState() const {
    kernels::StateArena::State state;
    state.rows = {state_ == nullptr ? 0 : 1};
    if (state_ != nullptr) state.values.assign(state_.get(), state_.get() + state_size());
    return model().state_codec().Encode(state, models::DecodingMemo());
  }

  // Of the thread that takes the stream from phase to phase.
  absl::Cord incoming_;
  absl::Cord outgoing_;
  calls::ByteReservation chunk_held_;
  bool has_started_ = false;
  std::weak_ptr<lifecycle::ServedModel> idle_model_;  // set before there is a handle_
  v1::OutputFormat format_ = v1::OUTPUT_FORMAT_FLOATS;
  batching::Priority priority_ = batching::Priority::kNormal;
  bool normalize_ = false;
  int layers_ = 0;
  int width_ = 0;
  v1::Sequence::InputCase form_ = v1::Sequence::INPUT_NOT_SET;  // of the chunks so far
  std::unique_ptr<float[]> state_;  // after the chunks so far; null: none
  // Of the message that is answered.
  absl::Time message_arrival_;
  bool return_state_ = false;
  int chunk_tokens_ = 0;
  int unknown_tokens_ = 0;  // of the chunk
  models::UnknownUse unknown_ = models::UnknownUse::kDefault;
  StackTask task_;
  telemetry::CallTimes chunk_times_;
  std::unique_ptr<float[]> outputs_;
  std::unique_ptr<float[]> next_state_;

  Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kComputing;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int asking_ ABSL_GUARDED_BY(mutex_) = 0;                  // threads in ReadNext()
  batching::RequestHandle handle_ ABSL_GUARDED_BY(mutex_);  // of the last chunk, which may be done
  int64_t chunks_submitted_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Task EncodeStream() { return TaskOf<EncodeStreamCall>(calls::MethodId::kEncodeStream); }

}  // namespace sru::server::tasks
