#include "server/open_inference/infer_stream_call.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "inference/open_inference.pb.h"
#include "server/base/metadata_value.h"
#include "server/base/passed_peer.h"
#include "server/open_inference/infer_request.h"
#include "server/open_inference/message_bytes.h"
#include "server/rpc/response_writer.h"
#include "server/rpc/stream_call.h"

namespace sru::server::open_inference {
namespace {

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr absl::string_view kFinalWanted = "triton_enable_empty_final_response";
constexpr char kFinal[] = "triton_final_response";

// Requests of a stream that are worked on at a time; the next one is read when the first of them is answered.
constexpr size_t kWindow = 16;
// Of a request besides its bytes: what both ends of its call take.
constexpr int64_t kRequestBytes = 4096;

// Headers that the calls have from the stream: who called, and what refers to the call.
constexpr const char* kPassedOn[] = {"authorization", "traceparent", "x-request-id"};

// One request, from its arrival until its answer has left.
struct Request {
  explicit Request(rpc::ByteBudget* budget) : held(budget) {}

  grpc::ByteBuffer bytes;
  grpc::ByteBuffer answer;
  std::unique_ptr<grpc::ClientContext> call;  // null: it was refused before its call
  grpc::Status status;
  bool is_done = false;
  rpc::ByteReservation held;
};
using RequestPtr = std::unique_ptr<Request>;

class InferStreamCall final : public rpc::StreamCall<Reactor> {
 public:
  InferStreamCall(const rpc::ServiceContext& context, grpc::CallbackServerContext* call)
      : StreamCall(telemetry::Method::kModelStreamInfer, context, call) {}

  void Start(const std::shared_ptr<grpc::Channel>& channel) {
    stub_ = std::make_unique<grpc::GenericStub>(channel);
    absl::Status status = TakeMessage([this] { return Open(); });
    if (status.ok()) {
      StartRead(&incoming_);
      return;
    }
    {
      MutexLock lock(&mutex_);
      has_ended_ = true;
    }
    End(std::move(status));
  }

 private:
  // noexcept as in StreamCall::Ending().
  void OnReadDone(bool ok) noexcept override {
    Request* request = nullptr;
    {
      MutexLock lock(&mutex_);
      if (has_ended_ || is_closed_) return;
      if (!ok) is_closed_ = true;
    }
    if (ok) request = Take();
    if (request != nullptr) {
      stub_->UnaryCall(
          request->call.get(), kMethod, grpc::StubOptions(), &request->bytes, &request->answer,
          [this, request](grpc::Status status) { OnAnswer(request, std::move(status)); });
    }
    Go();
  }

  // The request that was read, if its call is to be started: it stays until that is answered. Null if it is refused: it is done
  // already, and another thread may send its answer and free it. Null if memory for it cannot be allocated: the stream ends then. Null as
  // well if the stream was closed meanwhile: it may have ended, and then nobody would wait for the request's call.
  Request* Take() {
    RequestPtr request;
    const absl::Status status = TakeMessage([&] {
      const auto size = static_cast<int64_t>(incoming_.Length());
      // The call of its own adds it to all that was received, but does not know the connection.
      if (context_.listener != nullptr) context_.listener->NoteDelivered(call_->peer(), size);
      request = std::make_unique<Request>(context_.budget);
      request->bytes.Swap(&incoming_);
      if (!request->held.Grow(kRequestBytes + size)) {
        context_.metrics->OnRefusalWithoutModel(batching::RejectReason::kMemory);
        request->status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                       rpc::NoMemoryLeft(*context_.budget, kRequestBytes + size));
        request->is_done = true;
        return absl::OkStatus();
      }
      // With its deadline and its end.
      request->call = grpc::ClientContext::FromCallbackServerContext(*call_);
      request->call->AddMetadata(kPassedPeerHeader, PassPeer(call_->peer()));
      for (const char* const header : kPassedOn) {
        const auto [begin, end] = call_->client_metadata().equal_range(header);
        for (auto it = begin; it != end; ++it) {
          const absl::string_view value(it->second.data(), it->second.size());
          if (IsMetadataValue(value)) request->call->AddMetadata(header, std::string(value));
        }
      }
      return absl::OkStatus();
    });
    MutexLock lock(&mutex_);
    is_reading_ = false;
    if (!status.ok()) Close(status);
    if (is_closed_) return nullptr;
    Request* const to_call = request->is_done ? nullptr : request.get();
    requests_.push_back(std::move(request));
    ++num_sequences_;
    return to_call;
  }

  void OnAnswer(Request* request, grpc::Status status) {
    const Reference keep(this);
    {
      MutexLock lock(&mutex_);
      request->status = std::move(status);
      request->is_done = true;
      request->call.reset();
    }
    Go();
  }

  void OnSent(bool ok) override {
    {
      MutexLock lock(&mutex_);
      is_sending_ = false;
      sent_.reset();
      if (!ok) Close(absl::CancelledError("the caller is gone"));
    }
    Go();
  }

  void OnCancel() override {
    {
      MutexLock lock(&mutex_);
      Close(absl::CancelledError("the caller cancelled the stream"));
    }
    Go();
  }

  void OnDrain() override {
    {
      MutexLock lock(&mutex_);
      Close(absl::UnavailableError("the server is draining, ask another one"));
    }
    Go();
  }

  // No more is read; once all that was read is answered, the stream ends with `status`.
  void Close(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_closed_ = true;
    if (end_.ok()) end_ = std::move(status);
    if (!absl::IsCancelled(end_)) return;
    for (const RequestPtr& request : requests_) {
      if (request->call != nullptr) request->call->TryCancel();
    }
  }

  // Does what can be done next. noexcept as above.
  void Go() noexcept {
    const Reference keep(this);
    while (Step()) {
    }
  }

  // True if there may be more to do.
  bool Step() {
    bool reads = false;
    bool ends = false;
    bool sends = false;
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (has_ended_) return false;
      const bool is_gone = absl::IsCancelled(end_);
      // Nobody waits for these.
      while (is_gone && !requests_.empty() && requests_.front()->is_done) requests_.pop_front();
      if (!is_sending_ && !requests_.empty() && requests_.front()->is_done) {
        sent_ = std::move(requests_.front());
        requests_.pop_front();
        is_sending_ = sends = true;
      }
      if (!is_closed_ && !is_reading_ && requests_.size() < kWindow) {
        is_reading_ = is_starting_read_ = reads = true;
      }
      if (is_closed_ && !is_sending_ && !is_starting_read_ && requests_.empty()) {
        has_ended_ = ends = true;
        status = end_;
      }
    }
    if (sends) Send();
    if (reads) StartRead(&incoming_);
    if (ends) End(std::move(status));
    if (!reads) return false;
    MutexLock lock(&mutex_);
    is_starting_read_ = false;
    return is_closed_;
  }

  void Send() {
    MakeMessage(sent_.get());
    SendMessage(&outgoing_);
  }

  // Makes the message with the answer, of which nothing is copied.
  void MakeMessage(Request* request) {
    outgoing_.Clear();
    const auto size = static_cast<int64_t>(request->answer.Length());
    if (request->status.ok() && !request->held.Grow(size)) {
      request->status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                     rpc::NoMemoryLeft(*context_.budget, size));
    }
    const inference::ModelInferResponse beside = AnswerBeside(*request);
    if (!request->status.ok()) {
      inference::ModelStreamInferResponse message;
      message.set_error_message(request->status.error_message().empty()
                                    ? std::string("no memory is left for the answer; retry later")
                                    : request->status.error_message());
      *message.mutable_infer_response() = beside;
      // What can fail of this is memory.
      static_cast<void>(rpc::SerializeMessage(message, &outgoing_));
      return;
    }
    // Messages one after the other are merged.
    const std::string more = beside.SerializeAsString();
    constexpr int kTag = inference::ModelStreamInferResponse::kInferResponseFieldNumber << 3 | 2;
    uint8_t head[11] = {kTag};
    const uint8_t* const end =
        google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(size + more.size(), head + 1);
    std::vector<grpc::Slice> slices = {grpc::Slice(head, end - head)};
    std::vector<grpc::Slice> answer;
    if (request->answer.Dump(&answer).ok()) {
      slices.insert(slices.end(), answer.begin(), answer.end());
    }
    if (!more.empty()) slices.emplace_back(more);
    outgoing_ = grpc::ByteBuffer(slices.data(), slices.size());
  }

  // What is in a response besides the answer: the mark of a last answer where the request wants it, and the id of a request
  // that failed.
  inference::ModelInferResponse AnswerBeside(const Request& request) const {
    inference::ModelInferResponse beside;
    MessageBytes bytes(context_.budget);
    InferRequest read;
    if (!bytes.Read(request.bytes)) return beside;
    if (!ReadInferRequest(bytes.view(), &read).ok()) return beside;
    if (!request.status.ok()) beside.set_id(std::string(read.id));
    for (const InferParameter& parameter : read.parameters) {
      if (parameter.name != kFinalWanted) continue;
      const bool* const wanted = std::get_if<bool>(&parameter.value);
      if (wanted == nullptr || !*wanted) continue;
      (*beside.mutable_parameters())[kFinal].set_bool_param(true);
    }
    return beside;
  }

  std::unique_ptr<grpc::GenericStub> stub_;  // constant once the stream is open
  grpc::ByteBuffer incoming_;                // while a message is read
  grpc::ByteBuffer outgoing_;                // while a message is sent

  Mutex mutex_;
  std::deque<RequestPtr> requests_ ABSL_GUARDED_BY(mutex_);  // in the order of their arrival
  RequestPtr sent_;  // while is_sending_; of the thread that set that, then of OnSent()
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = true;
  // The end waits for it: after the end, gRPC's part of the stream may be gone.
  bool is_starting_read_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_sending_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartModelStreamInfer(
    const rpc::ServiceContext& context, grpc::CallbackServerContext* call,
    const std::shared_ptr<grpc::Channel>& channel) {
  return rpc::StartStream<InferStreamCall, Reactor>(context, call, channel);
}

}  // namespace sru::server::open_inference
