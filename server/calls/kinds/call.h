// Call: what all calls have in common, whatever their shape: how they begin, reserve memory, are
// refused, write messages, end, and are counted and logged. A call derives from it and reacts to
// messages (server/calls/exchange.h); TaskCall (task_call.h) is one that computes sequences and is
// answered at once.
#ifndef SRU_SERVER_CALLS_KINDS_CALL_H_
#define SRU_SERVER_CALLS_KINDS_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "server/base/crash_report.h"
#include "server/base/interruption.h"
#include "server/base/retry.h"
#include "server/batching/queue/order_tree.h"
#include "server/batching/queue/reject_reason.h"
#include "server/callers/caller.h"
#include "server/calls/byte_budget.h"
#include "server/calls/exchange.h"
#include "server/calls/kinds/call_basics.h"
#include "server/calls/kinds/open_streams.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/messages/request_parser.h"
#include "server/calls/method_info.h"
#include "server/lifecycle/model_registry.h"
#include "server/telemetry/access_log.h"
#include "server/tracing/call_trace.h"

namespace sru::server::calls {

// A message that has come before a drain is answered, if it is read in this time.
inline constexpr absl::Duration kLongParsing = absl::Milliseconds(200);

// Lifetime: the transport holds the call until OnDone(), and a Reference wherever the call may end
// meanwhile.
//
// Memory: a call reserves memory from the budget before it takes it. If the memory for a message
// that it receives cannot be allocated nevertheless, the call ends with RESOURCE_EXHAUSTED
// (TakeMessage()).
//
// The functions are called by one thread at a time, except those that say otherwise.
class Call : public CallHandler, protected OpenStream {
 public:
  Call(MethodId method, const ServiceContext& context, Exchange* exchange);
  // Called once the call is made, before anything else. Calls that read by themselves have one of
  // their own.
  void Start() {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 protected:
  virtual ~Call() = default;

  // Keeps the call alive where it may end meanwhile, outside of its reactions.
  class Reference {
   public:
    explicit Reference(Call* call) : call_(*call) { call_.Ref(); }
    ~Reference() { call_.Unref(); }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;

   private:
    Call& call_;
  };
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Runs `work` on `threads`, in the caller's turn, and keeps the call alive meanwhile; here if
  // there are none, or no memory to ask them.
  template <typename Work>
  void RunOn(SideThreads* threads, const Work& work) {
    if (threads != nullptr) {
      try {
        threads->Post(SideThreads::KeyOf(caller_.get()),
                      [work, alive = std::make_shared<const Reference>(this)] { work(); });
        return;
      } catch (const std::bad_alloc&) {  // what holds up others is better than no answer
      }
    }
    work();
  }

  // For a call that stays open: takes a place among the open streams. After an error, End() with
  // it.
  absl::Status Open();

  // Runs `take`, which takes a message that has arrived, and returns its status, or an error if
  // there is no memory. Parsing ends early if the caller leaves, or if a drain begins that would
  // have to wait for it (kLongParsing). After an error, End() with it.
  template <typename Take>
  absl::Status TakeMessage(const Take& take) {
    const crash::InFlight taken(Describe(method_).name, logged_model_, logged_version_);
    const absl::Time end = context_.clock->Now() + kLongParsing;
    const auto ends_for_drain = [this, end] {
      return context_.streams != nullptr && context_.streams->draining() &&
             context_.clock->Now() >= end;
    };
    const Interruption interruption(
        [this, ends_for_drain] { return exchange_.is_cancelled() || ends_for_drain(); });
    try {
      absl::Status status = take();
      if (!absl::IsCancelled(status) || exchange_.is_cancelled() || !ends_for_drain())
        return status;
      return Refuse(batching::RejectReason::kDraining, "the server is shutting down");
    } catch (const std::bad_alloc&) {
      return RetryAfter(Refuse(batching::RejectReason::kMemory, kNoMemory), kMemoryRetryAfter);
    }
  }

  // The caller's share of the memory of all calls; null without a caller.
  ByteShare* share() const { return caller_ == nullptr ? nullptr : &caller_->memory(); }

  // Finds the model that a call of this method without a name may mean as well, and that the caller
  // may use.
  absl::Status FindModel(const std::string& name, int64_t version);
  // kPermissionDenied for what the caller may not use or ask for.
  absl::Status CheckModel(absl::string_view name) const;
  // Takes tokens that the work turned out to need, of which `num_tokens_` has more at the end.
  // Thread-safe.
  void ChargeBesides(int64_t tokens);
  // A caller who asks for none has the normal one, or the highest that it may have.
  absl::StatusOr<batching::Priority> PriorityOf(v1::Priority asked) const;
  // Notes which model the call is of.
  void SetModel(std::shared_ptr<lifecycle::ServedModel> served);

  // Asks a Batcher or a StepService whether it would take such work.
  template <typename Queue>
  absl::Status CheckQueue(Queue& queue, int64_t num_tokens, int64_t num_sequences,
                          batching::Priority priority, absl::Time deadline) {
    absl::Status status =
        queue.CheckAdmission(num_tokens, num_sequences, priority, deadline, caller_.get());
    if (!status.ok()) context_.overload.Note(arrival_);
    return status;
  }
  // Takes the tokens of work from the caller's, and has submit() submit it. They are given back if
  // the work is refused. What the call has needed besides is taken at its end (`num_tokens_`), or
  // before by ChargeBesides().
  template <typename Submit>
  absl::Status SubmitCharged(int64_t tokens, const Submit& submit) {
    SRU_RETURN_UNLESS_OK(Charge(tokens));
    absl::Status status = submit();
    if (!status.ok()) GiveBack(tokens);
    return status;
  }

  // Reserves memory, or refuses the call.
  absl::Status Reserve(ByteReservation* held, int64_t bytes);
  // Counts a refusal that the batcher does not count.
  absl::Status Refuse(batching::RejectReason reason, absl::string_view message);

  // Ends the call, which may be gone then, maybe with a last message. Once, and not while a message
  // is on its way.
  void End(absl::Status status, std::optional<absl::Cord> message = std::nullopt);

  // Counts and logs the end of the call, and gives what the transport is to send. noexcept: the
  // transport would lose the exception, and the caller would wait for ever.
  CallEnd Ending(absl::Status status) noexcept;

  // OpenStream:
  void OnDrain() override {}

  void OnDone() override;

  const ServiceContext& context_;
  Exchange& exchange_;
  const absl::Time arrival_;
  const absl::Time deadline_;
  const callers::CallerPtr caller_;  // may be null; the flow of its work
  ByteReservation held_;
  std::shared_ptr<lifecycle::ServedModel> served_;  // null: no model is in use

  // For the metrics and the access log.
  MethodId method_;
  int64_t num_sequences_ = 0;
  int64_t num_tokens_ = 0;
  std::optional<telemetry::CallTimes> times_;
  const google::protobuf::Message* logged_request_ = nullptr;
  std::unique_ptr<tracing::CallTrace> trace_;  // null: the call is not sampled, or has ended
  std::string logged_model_;                   // empty: none was found
  int64_t logged_version_ = 0;

 private:
  absl::Status Charge(int64_t tokens);
  void GiveBack(int64_t tokens);

  std::string request_id_;
  std::shared_ptr<telemetry::ModelMetrics> metrics_;  // of the model
  std::atomic<int64_t> charged_{0};                   // of the caller's tokens
  int num_charges_ = 0;  // that stand; of 0 tokens, too, for a text that goes on from a state
  std::atomic<int> references_{1};  // the transport's
  bool is_open_stream_ = false;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_CALL_H_
