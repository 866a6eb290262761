#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "inference/open_inference.pb.h"
#include "server/base/clock.h"
#include "server/calls/kinds/call.h"
#include "server/calls/local_calls.h"
#include "server/calls/messages/response_writer.h"
#include "server/open_inference/model_infer.h"
#include "server/open_inference/tensors/infer_request.h"
#include "server/open_inference/tensors/message_bytes.h"

namespace sru::server::open_inference {
namespace {

constexpr absl::string_view kFinalWanted = "triton_enable_empty_final_response";
constexpr char kFinal[] = "triton_final_response";

// Requests of a stream that are worked on at a time; the next one is read when the first of them is
// answered.
constexpr size_t kWindow = 16;
// Of a request besides its bytes: what both ends of its call take.
constexpr int64_t kRequestBytes = 4096;

// Headers that the calls have from the stream: who called, and what refers to the call.
constexpr const char* kPassedOn[] = {"authorization", "traceparent", "tracestate", "x-request-id"};

// One request, from its arrival until its answer has left.
struct Request {
  Request(calls::ByteBudget* budget, calls::ByteShare* share) : held(budget, share) {}

  absl::Cord bytes;
  // The response has these besides the answer.
  std::string id;            // if the request fails
  bool wants_final = false;  // the mark of a last answer
  absl::Cord answer;
  std::shared_ptr<calls::LocalCall> call;  // null: not yet, or no more
  absl::Status status;
  bool is_done = false;
  calls::ByteReservation held;
};
using RequestPtr = std::unique_ptr<Request>;

class InferStreamCall final : public calls::Call {
 public:
  InferStreamCall(const calls::ServiceContext& context, calls::Exchange* exchange,
                  const calls::Method& infer)
      : Call(calls::MethodId::kModelStreamInfer, context, exchange), infer_(infer) {
    times_.emplace();
  }

  void Start() {
    absl::Status status = TakeMessage([this] { return Open(); });
    if (status.ok()) return exchange_.Read();
    {
      MutexLock lock(&mutex_);
      has_ended_ = true;
    }
    End(std::move(status));
  }

 private:
  // noexcept as in Call::Ending().
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    {
      MutexLock lock(&mutex_);
      if (has_ended_ || is_closed_) return;
      if (!message.has_value()) is_closed_ = true;
    }
    if (message.has_value()) {
      if (Request* const request = Take(*std::move(message)); request != nullptr) Ask(request);
    }
    Go();
  }

  // The request, if its call is to be started: it stays until that is answered. Null if it is
  // refused: it is done already, and another thread may send its answer and free it. Null if memory
  // for it cannot be allocated: the stream ends then. Null as well if the stream was closed
  // meanwhile: it may have ended, and then nobody would wait for the request's call.
  Request* Take(absl::Cord message) {
    RequestPtr request;
    const absl::Status status = TakeMessage([&] {
      const auto size = static_cast<int64_t>(message.size());
      request = std::make_unique<Request>(context_.budget, share());
      request->bytes = std::move(message);
      if (!request->held.Grow(kRequestBytes + size)) {
        context_.metrics->OnRefusalWithoutModel(batching::RejectReason::kMemory);
        request->status = absl::ResourceExhaustedError(
            calls::NoMemoryLeft(*context_.budget, kRequestBytes + size));
        request->is_done = true;
      }
      ReadWhatComesBack(request.get());
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

  // Calls with the stream's deadline, and ends with it.
  void Ask(Request* request) {
    calls::LocalCallInfo info;
    info.deadline = SteadyNow() + exchange_.time_left();
    info.peer = exchange_.peer();
    info.caller = exchange_.caller();
    for (const char* const header : kPassedOn) {
      const absl::string_view value = exchange_.FindHeader(header);
      if (!value.empty()) info.headers.emplace_back(header, value);
    }
    std::shared_ptr<calls::LocalCall> call = calls_.Unary(
        infer_, request->bytes, std::move(info),
        [this, request](calls::LocalAnswer answer) { OnAnswer(request, std::move(answer)); });
    bool cancel = false;
    {
      MutexLock lock(&mutex_);
      // The request may be done, and gone.
      const bool is_open =
          std::any_of(requests_.begin(), requests_.end(),
                      [request](const RequestPtr& open) { return open.get() == request; });
      if (!is_open || request->is_done) return;
      request->call = call;
      cancel = absl::IsCancelled(end_);
    }
    if (cancel) call->Cancel();
  }

  void OnAnswer(Request* request, calls::LocalAnswer answer) {
    const Reference keep(this);
    {
      MutexLock lock(&mutex_);
      request->status = std::move(answer.end.status);
      request->answer = std::move(answer.message);
      request->is_done = true;
      request->call.reset();
    }
    Go();
  }

  void OnWritten(bool ok) noexcept override {
    {
      MutexLock lock(&mutex_);
      is_sending_ = false;
      sent_.reset();
      if (!ok) Close(absl::CancelledError("the caller is gone"));
    }
    if (!ok) CancelCalls();
    Go();
  }

  void OnCancel() noexcept override {
    {
      MutexLock lock(&mutex_);
      Close(absl::CancelledError("the caller cancelled the stream"));
    }
    CancelCalls();
    Go();
  }

  void OnDrain() override {
    {
      MutexLock lock(&mutex_);
      Close(absl::UnavailableError("the server is draining, ask another one"));
    }
    Go();
  }

  // No more is read; once all that was read is answered, the stream ends with `status`. A caller
  // who is gone waits for no answer.
  void Close(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_closed_ = true;
    if (end_.ok() || absl::IsCancelled(status)) end_ = std::move(status);
  }

  // Ends the calls that nobody waits for any more: not under the lock, as their answers may come at
  // once.
  void CancelCalls() {
    std::vector<std::shared_ptr<calls::LocalCall>> calls;
    {
      MutexLock lock(&mutex_);
      if (!absl::IsCancelled(end_)) return;
      for (const RequestPtr& request : requests_) {
        if (request->call != nullptr) calls.push_back(request->call);
      }
    }
    for (const std::shared_ptr<calls::LocalCall>& call : calls) call->Cancel();
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
    if (sends) exchange_.Write(MakeMessage(sent_.get()));
    if (reads) exchange_.Read();
    if (ends) End(std::move(status));
    if (!reads) return false;
    MutexLock lock(&mutex_);
    is_starting_read_ = false;
    return is_closed_;
  }

  // Makes the message with the answer, of which nothing is copied.
  absl::Cord MakeMessage(Request* request) {
    absl::Cord outgoing;
    const auto size = static_cast<int64_t>(request->answer.size());
    if (request->status.ok() && !request->held.Grow(size)) {
      request->status = absl::ResourceExhaustedError(calls::NoMemoryLeft(*context_.budget, size));
    }
    inference::ModelInferResponse beside;
    if (!request->status.ok()) beside.set_id(request->id);
    if (request->wants_final) (*beside.mutable_parameters())[kFinal].set_bool_param(true);
    if (!request->status.ok()) {
      inference::ModelStreamInferResponse message;
      message.set_error_message(request->status.message().empty()
                                    ? std::string("no memory is left for the answer; retry later")
                                    : std::string(request->status.message()));
      *message.mutable_infer_response() = beside;
      // What can fail of this is memory.
      static_cast<void>(calls::SerializeMessage(message, &outgoing));
      return outgoing;
    }
    // Messages one after the other are merged.
    const std::string more = beside.SerializeAsString();
    constexpr int kTag = inference::ModelStreamInferResponse::kInferResponseFieldNumber << 3 | 2;
    uint8_t head[11] = {kTag};
    const uint8_t* const end =
        google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(size + more.size(), head + 1);
    outgoing.Append(absl::string_view(reinterpret_cast<const char*>(head), end - head));
    outgoing.Append(request->answer);
    outgoing.Append(more);
    return outgoing;
  }

  void ReadWhatComesBack(Request* request) const {
    MessageBytes bytes(context_.budget);
    InferRequest read;
    if (!bytes.Read(request->bytes) || !FindInferFields(bytes.view(), &read)) return;
    const std::string id(read.id.substr(0, kRequestBytes));  // nothing longer is kept
    if (id.size() == read.id.size() && FindInvalidUtf8(id) == id.size()) request->id = id;
    for (const InferParameter& parameter : read.parameters) {
      if (parameter.name != kFinalWanted) continue;
      const bool* const wanted = std::get_if<bool>(&parameter.value);
      request->wants_final |= wanted != nullptr && *wanted;
    }
  }

  const calls::Method& infer_;
  calls::LocalCalls calls_;

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

calls::CallHandler* StartModelStreamInfer(const calls::ServiceContext& context,
                                          calls::Exchange* exchange, const calls::Method& infer) {
  auto* const call = new InferStreamCall(context, exchange, infer);
  call->Start();
  return call;
}

}  // namespace sru::server::open_inference
