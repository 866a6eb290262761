// StreamCall: what the calls that stay open have in common: how they begin, write one message at a time and
// end. A call derives from it with gRPC's reactor of its kind.
#ifndef SRU_SERVER_RPC_STREAM_CALL_H_
#define SRU_SERVER_RPC_STREAM_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/batching/answer_group.h"
#include "server/batching/reject_reason.h"
#include "server/rpc/call_basics.h"
#include "server/rpc/end_call.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/service_context.h"

namespace sru::server::rpc {

// At least the memory of an open stream besides its state: the call and gRPC's part of it.
inline constexpr int64_t kStreamBytes = 16384;

// Lifetime: gRPC calls OnDone() only after Finish(), when no reaction runs any more. UnsentAnswers may need
// the call a moment longer, so the call counts who refers to it.
//
// Memory: a call reserves memory from the budget before it takes it. If the memory for a message that it
// receives cannot be allocated nevertheless, the call ends with RESOURCE_EXHAUSTED.
//
// A message that its client does not take within --send_timeout_s costs the client its connection, as an
// answer does (unsent_answers.h).
//
// The functions are called by one thread at a time, but for those that say otherwise. After SendMessage(),
// SendAndEnd() and End() the call may be gone.
template <typename Reactor>
class StreamCall : public Reactor, protected OpenStream {
 public:
  StreamCall(telemetry::Method method, const ServiceContext& context,
             grpc::CallbackServerContext* call)
      : context_(context),
        arrival_(context.clock->Now()),
        call_(call),
        request_id_(telemetry::AccessLog::Begin(*call)),
        method_(method),
        deadline_(DeadlineOf(*call, *context.clock)),
        held_(context.budget) {}
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;

 protected:
  ~StreamCall() override = default;

  // Keeps the call alive where End() may be called meanwhile, outside of gRPC's reactions.
  class Reference {
   public:
    explicit Reference(StreamCall* call) : call_(*call) { call_.Ref(); }
    ~Reference() { call_.Unref(); }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;

   private:
    StreamCall& call_;
  };

  // The message that SendMessage() took has left, or never will: then no more can be sent.
  virtual void OnSent(bool ok) = 0;

  // To be called first: takes a place among the open streams. After an error, End() with it.
  absl::Status Open() {
    if (absl::Status status = context_.streams->Add(this); !status.ok()) {
      if (absl::IsResourceExhausted(status)) retry_after_ = kStreamRetry;
      CountRefusal(*batching::GetRejectReason(status));
      return status;
    }
    return Reserve(&held_, kStreamBytes);
  }

  // What `take` returns, which begins the call or takes a message that has arrived; an error if it has no
  // memory for that. After an error, End() with it.
  template <typename Take>
  absl::Status TakeMessage(const Take& take) {
    try {
      return take();
    } catch (const std::bad_alloc&) {
      retry_after_ = kMemoryRetryAfter;
      CountRefusal(batching::RejectReason::kMemory);
      return batching::MakeRefusal(batching::RejectReason::kMemory, kNoMemory);
    }
  }

  // Notes which model the call is of.
  void SetModel(const lifecycle::ServedModel& served) {
    model_ = served.name;
    version_ = served.version;
    metrics_ = served.metrics;
  }

  absl::Status Reserve(ByteReservation* held, int64_t bytes) {
    if (held->Grow(bytes)) return absl::OkStatus();
    const int64_t wanted = held->bytes() + bytes;
    if (wanted <= context_.budget->limit()) retry_after_ = kMemoryRetryAfter;
    CountRefusal(batching::RejectReason::kMemory);
    return batching::MakeRefusal(batching::RejectReason::kMemory,
                                 NoMemoryLeft(*context_.budget, wanted));
  }

  void CountRefusal(batching::RejectReason reason) {
    if (metrics_ != nullptr) {
      metrics_->OnRefusal(reason);
    } else {
      context_.metrics->OnRefusalWithoutModel(reason);
    }
  }

  // Hands a message to gRPC; OnSent() follows. `bytes` stays as it is until then.
  void SendMessage(const grpc::ByteBuffer* bytes) {
    HoldSocket();
    Ref();
    context_.unsent->Add(&unsent_message_);
    this->StartWrite(bytes);
  }

  // Ends the call. Exactly once, and not while a message is on its way.
  void End(absl::Status status) {
    grpc::Status answer = Ending(std::move(status));
    this->Finish(std::move(answer));
  }

  // The same with a last message before it, which stays as it is until the call is gone.
  void SendAndEnd(const grpc::ByteBuffer* bytes, absl::Status status) {
    grpc::Status answer = Ending(std::move(status));
    if (IsOverNetwork()) {
      this->StartWriteAndFinish(bytes, grpc::WriteOptions(), std::move(answer));
      return;
    }
    // On a channel within the process, gRPC drops a last message that comes together with the status unless the
    // client is reading at that moment.
    last_status_ = std::move(answer);
    this->StartWrite(bytes);
  }

  // The socket of the call's connection; -1 if it is not known.
  int Socket() const {
    return context_.listener == nullptr ? -1 : context_.listener->FindConnection(call_->peer());
  }

  const ServiceContext& context_;
  const absl::Time arrival_;
  grpc::CallbackServerContext* const call_;
  std::string request_id_;
  const telemetry::Method method_;
  const absl::Time deadline_;
  ByteReservation held_;

  // For the metrics and the access log.
  int64_t num_sequences_ = 0;
  int64_t num_tokens_ = 0;
  telemetry::CallTimes times_;
  std::optional<absl::Duration> retry_after_;

 private:
  // When to come back after a refusal because all streams are taken.
  static constexpr absl::Duration kStreamRetry = absl::Seconds(1);

  class Unsent final : public UnsentAnswer {
   public:
    explicit Unsent(StreamCall* call) : call_(*call) {}
    void Abandon() override { call_.Abandon(); }
    void Release() override { call_.Unref(); }

   private:
    StreamCall& call_;
  };

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Counts and logs the end of the call, and gives what gRPC is to send. noexcept: gRPC would swallow the
  // exception, and the caller would wait for ever.
  grpc::Status Ending(absl::Status status) noexcept {
    const absl::Time now = context_.clock->Now();
    times_.total = now - arrival_;
    if (absl::IsCancelled(status) && IsAboutDeadline(deadline_, arrival_, now)) {
      status = DeadlinePassed();
    }
    EndedCall ended;
    ended.call = call_;
    ended.request_id = std::move(request_id_);
    ended.method = method_;
    ended.model_metrics = metrics_.get();
    ended.retry_after = retry_after_;
    ended.record.status = &status;
    ended.record.model = model_;
    ended.record.version = version_;
    ended.record.sequences = num_sequences_;
    ended.record.tokens = num_tokens_;
    ended.record.times = times_;
    grpc::Status answer = EndCall(context_.metrics, context_.access_log, std::move(ended));
    context_.streams->Leave(this);
    HoldSocket();
    if (absl::IsResourceExhausted(status) && context_.read_pause != nullptr) {
      context_.read_pause->Start(Socket());
    }
    Ref();
    context_.unsent->Add(&unsent_end_);
    return answer;
  }

  // Lets what a batch gives leave together.
  void HoldSocket() {
    if (batching::AnswerGroup* const group = batching::AnswerGroup::Current())
      group->Hold(Socket());
  }

  bool IsOverNetwork() const {
    const std::string peer = call_->peer();
    return absl::StartsWith(peer, "ipv") || absl::StartsWith(peer, "unix");
  }

  // noexcept as in Ending().
  void OnWriteDone(bool ok) noexcept final {
    if (last_status_.has_value()) return this->Finish(*std::move(last_status_));
    if (context_.unsent->Remove(&unsent_message_)) Unref();
    OnSent(ok && !abandoned_.load());
  }

  void OnDone() final {
    context_.streams->Remove(this);
    if (context_.unsent->Remove(&unsent_end_)) Unref();
    Unref();
  }

  void Abandon() {
    abandoned_ = true;
    context_.access_log->OnAnswerNotTaken(telemetry::MethodName(method_), call_->peer(),
                                          context_.send_timeout);
    if (context_.listener == nullptr || !context_.listener->Close(call_->peer())) {
      call_->TryCancel();
    }
  }

  std::atomic<int> references_{1};  // gRPC's, and one for each that UnsentAnswers knows of
  std::atomic<bool> abandoned_{false};
  Unsent unsent_message_{this};
  Unsent unsent_end_{this};
  std::optional<grpc::Status> last_status_;  // what follows the last message
  std::string model_;                        // empty: none was found
  int64_t version_ = 0;
  std::shared_ptr<telemetry::ModelMetrics> metrics_;
};

// Makes a `Call`, which ends by itself, and starts it.
template <typename Call, typename Reactor, typename... Args>
Reactor* StartStream(const ServiceContext& context, grpc::CallbackServerContext* call,
                     const Args&... args) {
  auto* const reactor = new Call(context, call);
  reactor->Start(args...);
  return reactor;
}

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_STREAM_CALL_H_
