#include "server/calls/kinds/call.h"

#include <algorithm>
#include <utility>

#include "server/callers/callers.h"
#include "server/calls/kinds/end_call.h"
#include "server/tracing/tracer.h"

namespace sru::server::calls {
namespace {

// At least the memory of an open stream besides its state: the call and the transport's part of it.
constexpr int64_t kStreamBytes = 16384;

}  // namespace

Call::Call(MethodId method, const ServiceContext& context, Exchange* exchange)
    : context_(context),
      exchange_(*exchange),
      arrival_(context.clock->Now()),
      deadline_(arrival_ + exchange->time_left()),
      caller_(exchange->caller()),
      held_(context.budget, share()),
      method_(method),
      trace_(tracing::BeginTrace(context.tracer, *exchange, arrival_)),
      request_id_(telemetry::AccessLog::Begin(*exchange)) {}

absl::Status Call::Open() {
  // Callers without a name, a certificate or an address cannot be told apart, so they have no
  // share.
  const bool is_known = caller_ != nullptr && caller_->id() != callers::kAnonymous;
  if (absl::Status status = context_.streams->Add(this, is_known ? caller_->id() : "");
      !status.ok()) {
    absl::Status refusal = Refuse(*batching::GetRejectReason(status), status.message());
    return absl::IsResourceExhausted(refusal) ? RetryAfter(std::move(refusal), kStreamRetryAfter)
                                              : refusal;
  }
  is_open_stream_ = true;
  return Reserve(&held_, kStreamBytes);
}

absl::Status Call::FindModel(const std::string& name, int64_t version) {
  const MethodInfo info = Describe(method_);
  SRU_ASSIGN_OR_RETURN(
      std::shared_ptr<lifecycle::ServedModel> served,
      context_.registry->Find(name, version, info.tasks, info.one_direction, info.vocabulary));
  SRU_RETURN_UNLESS_OK(CheckModel(served->name));
  SetModel(std::move(served));
  return absl::OkStatus();
}

absl::Status Call::CheckModel(absl::string_view name) const {
  return caller_ == nullptr ? absl::OkStatus() : caller_->CheckModel(name);
}

absl::StatusOr<batching::Priority> Call::PriorityOf(v1::Priority asked) const {
  SRU_ASSIGN_OR_RETURN(const batching::Priority priority, ParsePriority(asked));
  if (caller_ == nullptr) return priority;
  if (asked == v1::PRIORITY_UNSPECIFIED) return std::min(priority, caller_->highest_priority());
  SRU_RETURN_UNLESS_OK(caller_->CheckPriority(priority));
  return priority;
}

absl::Status Call::Charge(int64_t tokens) {
  if (caller_ == nullptr) return absl::OkStatus();
  if (exchange_.goes_on()) {
    caller_->Settle(tokens);
  } else {
    SRU_RETURN_UNLESS_OK(caller_->Charge(tokens));
  }
  charged_ += tokens;
  ++num_charges_;
  return absl::OkStatus();
}

void Call::ChargeBesides(int64_t tokens) {
  if (caller_ == nullptr || tokens == 0) return;
  caller_->Settle(tokens);
  charged_ += tokens;
}

void Call::GiveBack(int64_t tokens) {
  if (caller_ == nullptr) return;
  charged_ -= tokens;
  --num_charges_;
  caller_->Settle(-tokens);
}

void Call::SetModel(std::shared_ptr<lifecycle::ServedModel> served) {
  logged_model_ = served->name;
  logged_version_ = served->version;
  if (auto* const taken = crash::InFlight::innermost)
    taken->NameModel(logged_model_, logged_version_);
  metrics_ = served->metrics;
  served_ = std::move(served);
}

absl::Status Call::Reserve(ByteReservation* held, int64_t bytes) {
  if (held->Grow(bytes)) return absl::OkStatus();
  const int64_t wanted = held->bytes() + bytes;
  absl::Status refusal =
      Refuse(batching::RejectReason::kMemory, NoMemoryLeft(*context_.budget, wanted));
  return wanted <= context_.budget->most_of_caller()
             ? RetryAfter(std::move(refusal), kMemoryRetryAfter)
             : refusal;
}

absl::Status Call::Refuse(batching::RejectReason reason, absl::string_view message) {
  if (metrics_ != nullptr) {
    metrics_->OnRefusal(reason);
  } else {
    context_.metrics->OnRefusalWithoutModel(reason);
  }
  return batching::MakeRefusal(reason, message);
}

void Call::End(absl::Status status, std::optional<absl::Cord> message) {
  CallEnd end = Ending(std::move(status));
  if (message.has_value()) return exchange_.WriteAndFinish(*std::move(message), std::move(end));
  exchange_.Finish(std::move(end));
}

CallEnd Call::Ending(absl::Status status) noexcept {
  const absl::Time now = context_.clock->Now();
  if (times_.has_value()) times_->total = now - arrival_;
  if (absl::IsCancelled(status) && IsAboutDeadline(deadline_, arrival_, now)) {
    status = DeadlinePassed();
  }
  EndedCall ended(exchange_, std::move(request_id_), status);
  ended.method = method_;
  ended.model_metrics = metrics_.get();
  ended.trace = std::move(trace_);
  telemetry::CallRecord& record = ended.record;
  record.model = logged_model_;
  record.version = logged_version_;
  record.sequences = num_sequences_;
  record.tokens = num_tokens_;
  record.times = times_;
  record.request = logged_request_;
  // Nothing was charged to a call that was refused.
  ended.used_tokens = status.ok()         ? num_tokens_
                      : num_charges_ == 0 ? 0
                                          : std::max(num_tokens_, charged_.load());
  if (num_charges_ > 0) caller_->Settle(ended.used_tokens - charged_);
  CallEnd end = EndCall(context_.metrics, context_.access_log, std::move(ended));
  if (is_open_stream_) context_.streams->Leave(this);
  return end;
}

void Call::OnDone() {
  if (is_open_stream_) context_.streams->Remove(this);
  Unref();
}

}  // namespace sru::server::calls
