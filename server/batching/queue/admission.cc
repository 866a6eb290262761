#include "server/batching/queue/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/retry.h"

namespace sru::server::batching {
namespace {

constexpr absl::Duration kMinRetry = absl::Milliseconds(1);
constexpr absl::Duration kMaxRetry = absl::Seconds(10);
constexpr absl::Duration kUnknownRetry = absl::Milliseconds(100);
// The reserve beyond a bound is one part in so many of it.
constexpr int64_t kReserveParts = 2;
// An outcome far inside the deadline says little about whether deadlines are kept under load.
constexpr double kTellingShareOfBudget = 0.25;

// In an overload most calls are refused, so a text has nothing that differs from call to call: each
// connection sends it once and refers to it afterwards (HPACK).
std::string RefusalText(const Verdict& v) {
  const AdmissionOptions& options = *v.options;
  switch (*v.refusal) {
    case RejectReason::kNoWorker:
      return std::string(v.stopped.message());
    case RejectReason::kDraining:
      return "the server is shutting down and takes no new requests";
    case RejectReason::kStreams:
      return "as many texts of this model are being generated as may be (--max_streams); retry "
             "later";
    case RejectReason::kQueueFull:
      return absl::StrCat("the queue is full: at most ", options.most.tokens, " tokens and ",
                          options.most.sequences,
                          " sequences may wait (--max_queue_tokens, --max_queue_sequences); "
                          "retry later");
    case RejectReason::kDeadline:
      return "the deadline cannot be kept: by the measured speed of the model the answer would "
             "come too late; retry later, or with a later deadline";
    case RejectReason::kMemory:
      break;  // only the service refuses for this, before it submits
  }
  return "";
}

// The next power of two of milliseconds: few values, as of RefusalText().
absl::Duration RetryDelay(absl::Duration backlog) {
  absl::Duration delay = kMinRetry;
  while (delay < backlog && delay < kMaxRetry) delay *= 2;
  return std::min(delay, kMaxRetry);
}

}  // namespace

absl::Status Verdict::ToStatus() const {
  if (expired) {
    return absl::DeadlineExceededError("the deadline had passed when the request was queued");
  }
  if (!refusal.has_value()) return absl::OkStatus();
  absl::Status status = MakeRefusal(*refusal, RefusalText(*this));
  return absl::IsResourceExhausted(status) ? RetryAfter(std::move(status), retry_after) : status;
}

absl::Status Admission::CheckSize(const AdmissionOptions& options, const OrderWeight& size) {
  const OrderWeight& most = options.most;
  if (size.tokens <= most.tokens && size.sequences <= most.sequences) return absl::OkStatus();
  if (!options.in_steps) {
    return InvalidArgument(
        options.field, ": expected at most ", most.tokens, " tokens and ", most.sequences,
        " sequences in all (max_queue_tokens, max_queue_sequences), ", "found ", size.tokens,
        " tokens in ", size.sequences, " sequences; split the request");
  }
  if (size.tokens > most.tokens) {
    return InvalidArgument(options.field, ": expected at most ", most.tokens,
                           " tokens (max_queue_tokens), found ", size.tokens);
  }
  return InvalidArgument(options.field, ": expected at most ", most.sequences,
                         " (max_queue_sequences), found ", size.sequences);
}

Verdict Admission::Judge(const AdmissionRequest& request, absl::Time now,
                         const AdmissionLoad& load) {
  Verdict v;
  v.options = &options_;
  v.now = now;
  v.key = {Rank(now, request.priority), request.deadline, next_number_};
  const absl::Duration budget = request.deadline - now;
  const AdmissionLoad::Levels levels = load.levels(request.flow, now);
  const OrderWeight& most = options_.most;
  // True if `size` more is allowed.
  const auto fits = [&](int64_t there, int64_t own, int64_t size, int64_t bound) {
    if (there <= bound - size) return true;
    const int64_t reserve = bound / kReserveParts;
    return there - reserve <= bound - size &&
           static_cast<double>(own + size) <= levels.share * static_cast<double>(reserve);
  };
  if (!stopped_.ok()) {
    v.refusal = RejectReason::kNoWorker;
    v.stopped = stopped_;
  } else if (closed_) {
    v.refusal = RejectReason::kDraining;
  } else if (budget <= absl::ZeroDuration()) {
    v.expired = true;
  } else if (!fits(levels.streams, levels.own_streams, request.size.sequences,
                   options_.max_streams)) {
    v.refusal = RejectReason::kStreams;
  } else if (!fits(levels.waiting.tokens, levels.own.tokens, request.size.tokens, most.tokens) ||
             !fits(levels.waiting.sequences, levels.own.sequences, request.size.sequences,
                   most.sequences)) {
    v.refusal = RejectReason::kQueueFull;
  } else if (request.deadline != absl::InfiniteFuture() && speed_.known()) {
    const AdmissionLoad::Prediction prediction = load.Predict(v.key, request, now);
    v.predicted_seconds = prediction.outcome;
    const bool late = absl::Seconds(prediction.deadline * speed_.margin()) > budget;
    const absl::Duration ahead = absl::Seconds(prediction.ahead * speed_.margin());
    const bool waits_long = levels.stands && ahead > kStandingPatience * budget;
    if (options_.by_deadline && !levels.idle && (late || waits_long)) {
      v.refusal = RejectReason::kDeadline;
    }
  }
  if (v.refusal.has_value()) ++rejected_[*v.refusal];
  if (v.accepted()) return v;
  v.retry_after = kUnknownRetry;
  if (speed_.known()) v.retry_after = RetryDelay(absl::Seconds(load.BacklogSeconds(now)));
  // Nobody knows when a stream ends.
  if (v.refusal == RejectReason::kStreams) v.retry_after = std::max(v.retry_after, kUnknownRetry);
  return v;
}

void Admission::AddOutcome(double predicted_seconds, absl::Time arrival, absl::Time deadline,
                           absl::Time now) {
  if (predicted_seconds <= 0) return;
  const double actual = absl::ToDoubleSeconds(now - arrival);
  const double budget = absl::ToDoubleSeconds(deadline - arrival);
  if (std::max(actual, predicted_seconds) < kTellingShareOfBudget * budget) return;
  worst_ratio_ = std::max(worst_ratio_, actual / predicted_seconds);
}

void Admission::LearnOutcomes() {
  if (worst_ratio_ > 0) speed_.AddOutcome(1, worst_ratio_);
  worst_ratio_ = 0;
}

absl::Status CheckLeast(std::initializer_list<LeastOption> options,
                        absl::Duration ageing_interval) {
  for (const LeastOption& option : options) {
    if (option.found >= option.least) continue;
    return InvalidArgument(
        option.name, ": expected ",
        option.least == 0 ? "0 or more" : absl::StrCat("at least ", option.least), ", found ",
        option.found);
  }
  if (ageing_interval > absl::ZeroDuration()) return absl::OkStatus();
  return InvalidArgument("ageing_interval: expected more than 0, found ",
                         absl::FormatDuration(ageing_interval));
}

}  // namespace sru::server::batching
