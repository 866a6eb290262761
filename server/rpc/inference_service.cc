#include "server/rpc/inference_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpc/support/time.h"
#include "grpcpp/support/proto_buffer_writer.h"
#include "server/base/protobuf_compat.h"
#include "server/batching/answer_group.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/request_outline.h"
#include "server/rpc/response_writer.h"

namespace sru::server {
namespace {

// By `clock`, which is another than that of gRPC: what is left of the call's time is the same by
// both. (call.deadline() would be a date, and wrong once the system's is set.)
absl::Time DeadlineOf(const grpc::CallbackServerContext& call, const Clock& clock) {
  const gpr_timespec deadline = call.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return absl::InfiniteFuture();
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return clock.Now() + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

absl::Status Serialize(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bool own_buffer = false;
  const grpc::Status status =
      grpc::SerializationTraits<google::protobuf::Message>::Serialize(message, bytes, &own_buffer);
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot serialise ", message.GetTypeName(), ": ", status.error_message()));
}

ModelInput InputOf(const models::Model& model) {
  ModelInput input;
  input.tokenizer = model.tokenizer();
  input.vocabulary_size = model.spec().vocabulary_size;
  input.input_size = model.spec().input_size;
  return input;
}

// The state of one Classify or Encode call, made once per call.
//
// Lifetime: gRPC calls OnDone(), which deletes the call, only after the handler has returned the
// reactor, after Finish(), and after a running OnCancel(). So Start() may still use the call when
// the batcher has answered already, and OnCancel() sees the handle that Start() stored.
template <typename Request, typename Response>
class InferenceCall : public grpc::ServerUnaryReactor {
 public:
  InferenceCall(Method method, const ServiceContext& context, grpc::CallbackServerContext* call,
                grpc::ByteBuffer* response_bytes)
      : context_(context),
        arrival_(context.clock->Now()),
        call_(call),
        request_id_(AccessLog::Begin(*call)),
        request_(CreateOnArena<Request>(&arena_)),
        method_(method),
        deadline_(DeadlineOf(*call, *context.clock)),
        response_bytes_(response_bytes) {
    context_.in_flight->Enter();
  }
  InferenceCall(const InferenceCall&) = delete;
  InferenceCall& operator=(const InferenceCall&) = delete;

  // Runs on the handler's thread, before it returns the reactor.
  void Start(const grpc::ByteBuffer& bytes) {
    context_.received_bytes->fetch_add(static_cast<int64_t>(bytes.Length()),
                                       std::memory_order_relaxed);
    if (absl::Status status = Submit(bytes); !status.ok()) FinishWith(status);
  }

 protected:
  ~InferenceCall() override { context_.in_flight->Leave(); }

  // Checks the fields that only this method has.
  virtual absl::Status ParseParameters() = 0;
  // Floats of output that a sequence needs.
  virtual size_t OutputSize(int num_tokens) const = 0;
  // Points `output` into the OutputSize() floats at `values`.
  virtual void SetOutput(float* values, kernels::SequenceOutput* output) const = 0;
  // Writes the answer of one sequence.
  virtual void WriteSequence(int num_tokens, bool truncated, float* values,
                             Response* response) const = 0;

  const Request& request() const { return *request_; }
  const models::Model& model() const { return *served_->model; }

 private:
  // Holds the messages of a call with one short text and a few labels.
  static constexpr size_t kArenaBlock = 1536;

  struct SequenceResult {
    size_t offset = 0;  // of its floats in outputs_
    int num_tokens = 0;
  };

  // Refuses what the batcher would refuse anyway, from an outline of the bytes. Whatever else is
  // wrong with the request is left to the full parser.
  absl::Status RefuseEarly(const grpc::ByteBuffer& bytes) {
    RequestOutline outline;
    if (!ReadOutline<Request>(bytes, &outline)) return absl::OkStatus();
    absl::StatusOr<std::shared_ptr<ServedModel>> served =
        context_.registry->Find(outline.model, outline.version);
    const absl::StatusOr<Priority> priority = ParsePriority(outline.priority);
    if (!served.ok() || !priority.ok() || outline.num_sequences == 0) return absl::OkStatus();
    served_ = *std::move(served);
    absl::Duration retry_after = absl::ZeroDuration();
    absl::Status status = served_->engine->batcher().CheckAdmission(
        std::min(outline.num_sequences, context_.limits.max_sequences), *priority, deadline_,
        &retry_after);
    if (!status.ok()) retry_after_ = retry_after;
    return status;
  }

  absl::Status Submit(const grpc::ByteBuffer& bytes) {
    if (absl::Status status = RefuseEarly(bytes); !status.ok()) return status;
    if (absl::Status status = ParseMessage(bytes, request_); !status.ok()) return status;
    if (served_ == nullptr) {
      absl::StatusOr<std::shared_ptr<ServedModel>> served =
          context_.registry->Find(request_->model(), request_->version());
      if (!served.ok()) return served.status();
      served_ = *std::move(served);
    }
    if (absl::Status status = ParseParameters(); !status.ok()) return status;
    absl::StatusOr<Priority> priority = ParsePriority(request_->priority());
    if (!priority.ok()) return priority.status();
    absl::StatusOr<ParsedSequences> parsed = ParseSequences(
        request_->sequences(), request_->truncate(), InputOf(model()), context_.limits);
    if (!parsed.ok()) return parsed.status();

    size_t output_size = 0;
    results_.reserve(parsed->tasks.size());
    for (const SequenceTask& task : parsed->tasks) {
      results_.push_back({output_size, task.num_tokens});
      output_size += OutputSize(task.num_tokens);
    }
    outputs_.resize(output_size);
    for (size_t i = 0; i < parsed->tasks.size(); ++i) {
      SetOutput(outputs_.data() + results_[i].offset, &parsed->tasks[i].output);
    }
    truncated_ = std::move(parsed->truncated);
    times_.tokenize = context_.clock->Now() - arrival_;

    BatchRequest batch_request;
    batch_request.sequences = std::move(parsed->tasks);
    batch_request.priority = *priority;
    batch_request.deadline = deadline_;
    batch_request.done = [this](const absl::Status& status, const RequestTimes& times) {
      times_.queue = times.queue;
      times_.compute = times.compute;
      FinishWith(status);
    };
    absl::Duration retry_after = absl::ZeroDuration();
    absl::StatusOr<RequestHandle> handle =
        served_->engine->batcher().Submit(std::move(batch_request), &retry_after);
    if (!handle.ok()) {
      retry_after_ = retry_after;
      return handle.status();
    }
    handle_ = *std::move(handle);
    return absl::OkStatus();
  }

  absl::Status WriteResponse() {
    auto* response = CreateOnArena<Response>(&arena_);
    response->set_model(model().name());
    response->set_version(model().version());
    for (size_t i = 0; i < results_.size(); ++i) {
      WriteSequence(results_[i].num_tokens, truncated_[i], outputs_.data() + results_[i].offset,
                    response);
    }
    times_.total = context_.clock->Now() - arrival_;
    WriteTimes(times_, response->mutable_times());
    return Serialize(*response, response_bytes_);
  }

  // The only place that answers; called exactly once. The call may be gone when it returns.
  void FinishWith(absl::Status status) {
    if (status.ok()) status = WriteResponse();
    if (absl::IsCancelled(status) && IsAboutDeadline(context_.clock->Now())) {
      status = absl::DeadlineExceededError("the deadline passed before the answer was ready");
    }
    if (served_ != nullptr) {
      served_->metrics->OnCall(method_, status.code(), times_);
    } else {
      context_.metrics->OnCallWithoutModel(method_, status.code());
    }
    LogCall(status);
    AnswerGroup* const group = AnswerGroup::Current();
    if (group != nullptr) group->Hold(Socket());
    if (absl::IsResourceExhausted(status) && context_.read_pause != nullptr) {
      context_.read_pause->Start(Socket());
    }
    Finish(ToGrpcStatus(status, retry_after_));
  }

  // Of the call's connection; -1 if it is not known.
  int Socket() const {
    return context_.listener == nullptr ? -1 : context_.listener->FindConnection(call_->peer());
  }

  void LogCall(const absl::Status& status) {
    if (!context_.access_log->Wants(status, request_id_)) return;
    CallRecord record;
    record.method = MethodName(method_);
    record.status = &status;
    if (served_ != nullptr) {
      record.model = model().name();
      record.version = model().version();
    }
    record.sequences = request_->sequences_size();
    for (const SequenceResult& result : results_) record.tokens += result.num_tokens;
    times_.total = context_.clock->Now() - arrival_;
    record.times = times_;
    record.request = request_;
    context_.access_log->End(call_, std::move(request_id_), record);
  }

  // A caller whose deadline passes cancels the call, and may do so a little before the server sees
  // the deadline pass: the wire carries a timeout that gRPC rounds up by at most 1%.
  bool IsAboutDeadline(absl::Time now) const {
    if (deadline_ == absl::InfiniteFuture()) return false;
    return now + std::max(absl::Milliseconds(5), (deadline_ - arrival_) / 50) >= deadline_;
  }

  void OnCancel() override {
    // Also how a call whose deadline passes leaves the queue while all workers are busy: gRPC
    // cancels it then.
    if (handle_ != nullptr) served_->engine->batcher().Cancel(handle_);
  }

  void OnDone() override { delete this; }

  // OnCancel() and OnDone() never block, so gRPC may run them where it is instead of handing each
  // to a thread of its executor. gRPC's own default reactor says the same of itself in this way.
  bool InternalInlineable() override { return true; }

  const ServiceContext& context_;
  const absl::Time arrival_;
  grpc::CallbackServerContext* const call_;
  std::string request_id_;
  alignas(8) char arena_block_[kArenaBlock];
  google::protobuf::Arena arena_{arena_block_, kArenaBlock};
  Request* const request_;
  const Method method_;
  const absl::Time deadline_;
  grpc::ByteBuffer* const response_bytes_;

  std::shared_ptr<ServedModel> served_;
  std::vector<SequenceResult> results_;
  std::vector<bool> truncated_;
  std::vector<float> outputs_;  // written by the engine until `done`
  CallTimes times_;
  std::optional<absl::Duration> retry_after_;
  RequestHandle handle_;
};

class ClassifyCall final : public InferenceCall<v1::ClassifyRequest, v1::ClassifyResponse> {
 public:
  ClassifyCall(const ServiceContext& context, grpc::CallbackServerContext* call,
               grpc::ByteBuffer* response_bytes)
      : InferenceCall(Method::kClassify, context, call, response_bytes) {}

 private:
  absl::Status ParseParameters() override {
    if (model().labels().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("model: '", model().name(), "' has no classifier (no labels); use Encode"));
    }
    absl::StatusOr<int> top_k =
        ParseTopK(request().top_k(), static_cast<int>(model().labels().size()));
    if (!top_k.ok()) return top_k.status();
    top_k_ = *top_k;
    return absl::OkStatus();
  }

  size_t OutputSize(int /*num_tokens*/) const override { return 2 * model().labels().size(); }

  void SetOutput(float* values, kernels::SequenceOutput* output) const override {
    output->pooling = model().spec().pooling;
    output->logits = values;
    output->probabilities = values + model().labels().size();
  }

  void WriteSequence(int num_tokens, bool truncated, float* values,
                     v1::ClassifyResponse* response) const override {
    v1::Classification* classification = response->add_classifications();
    WriteLabels(model().labels(), values, values + model().labels().size(), top_k_, classification);
    classification->set_token_count(num_tokens);
    classification->set_truncated(truncated);
  }

  int top_k_ = 0;
};

class EncodeCall final : public InferenceCall<v1::EncodeRequest, v1::EncodeResponse> {
 public:
  EncodeCall(const ServiceContext& context, grpc::CallbackServerContext* call,
             grpc::ByteBuffer* response_bytes)
      : InferenceCall(Method::kEncode, context, call, response_bytes) {}

 private:
  absl::Status ParseParameters() override {
    absl::StatusOr<kernels::Pooling> pooling =
        ParsePooling(request().pooling(), model().spec().pooling);
    if (!pooling.ok()) return pooling.status();
    pooling_ = *pooling;
    absl::StatusOr<v1::OutputFormat> format = ParseOutputFormat(request().output_format());
    if (!format.ok()) return format.status();
    format_ = *format;
    return absl::OkStatus();
  }

  bool has_token_vectors() const { return pooling_ == kernels::Pooling::kNone; }
  int width() const { return model().spec().output_size(); }

  size_t OutputSize(int num_tokens) const override {
    return static_cast<size_t>(has_token_vectors() ? num_tokens : 1) * width();
  }

  void SetOutput(float* values, kernels::SequenceOutput* output) const override {
    output->pooling = pooling_;
    (has_token_vectors() ? output->token_vectors : output->pooled) = values;
  }

  void WriteSequence(int num_tokens, bool truncated, float* values,
                     v1::EncodeResponse* response) const override {
    v1::Encoding* encoding = response->add_encodings();
    const int64_t rows = has_token_vectors() ? num_tokens : 1;
    if (request().normalize()) {
      for (int64_t row = 0; row < rows; ++row) Normalize(values + row * width(), width());
    }
    if (has_token_vectors()) encoding->add_shape(rows);
    encoding->add_shape(width());
    WriteValues(values, rows, width(), format_, encoding);
    encoding->set_token_count(num_tokens);
    encoding->set_truncated(truncated);
  }

  kernels::Pooling pooling_ = kernels::Pooling::kNone;
  v1::OutputFormat format_ = v1::OUTPUT_FORMAT_FLOATS;
};

template <typename Call>
grpc::ServerUnaryReactor* StartCall(const ServiceContext& context,
                                    grpc::CallbackServerContext* call,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* reactor = new Call(context, call, response);
  reactor->Start(*request);
  return reactor;
}

// Answers a call that was worked off in its handler.
grpc::ServerUnaryReactor* Answer(const ServiceContext& context, Method method,
                                 const ServedModel* served, const absl::Status& status,
                                 grpc::CallbackServerContext* call) {
  CallRecord record;
  record.method = MethodName(method);
  record.status = &status;
  if (served != nullptr) {
    record.model = served->model->name();
    record.version = served->model->version();
    served->metrics->OnCall(method, status.code(), CallTimes());
  } else {
    context.metrics->OnCallWithoutModel(method, status.code());
  }
  context.access_log->End(call, AccessLog::Begin(*call), record);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

void WriteServedModel(const ServedModel& served, const RequestLimits& limits, v1::ModelInfo* info) {
  WriteModelInfo(*served.model, served.engine->instances(), limits.max_sequence_tokens, info);
}

}  // namespace

grpc::ServerUnaryReactor* Service::Classify(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return StartCall<ClassifyCall>(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::Encode(grpc::CallbackServerContext* call,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) {
  return StartCall<EncodeCall>(context_, call, request, response);
}

grpc::ServerUnaryReactor* Service::ListModels(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  v1::ListModelsRequest list_request;
  absl::Status status = ParseMessage(*request, &list_request);
  if (status.ok()) {
    v1::ListModelsResponse list_response;
    for (const std::shared_ptr<ServedModel>& served : context_.registry->List()) {
      WriteServedModel(*served, context_.limits, list_response.add_models());
    }
    for (const ModelStatus& model : context_.manager->Statuses()) {
      WriteModelStatus(model, list_response.add_statuses());
    }
    status = Serialize(list_response, response);
  }
  return Answer(context_, Method::kListModels, /*served=*/nullptr, status, call);
}

grpc::ServerUnaryReactor* Service::GetModel(grpc::CallbackServerContext* call,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  v1::GetModelRequest get_request;
  absl::Status status = ParseMessage(*request, &get_request);
  std::shared_ptr<ServedModel> served;
  if (status.ok()) {
    absl::StatusOr<std::shared_ptr<ServedModel>> found =
        context_.registry->Find(get_request.model(), get_request.version());
    status = found.status();
    if (found.ok()) {
      served = *std::move(found);
      v1::GetModelResponse get_response;
      WriteServedModel(*served, context_.limits, get_response.mutable_model());
      status = Serialize(get_response, response);
    }
  }
  return Answer(context_, Method::kGetModel, served.get(), status, call);
}

}  // namespace sru::server
