#include "server/callers/caller.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/retry.h"

namespace sru::server::callers {
namespace {

// When a call that ends may have made room.
constexpr absl::Duration kRetryCalls = absl::Milliseconds(100);
constexpr absl::Duration kRetryStreams = absl::Seconds(1);
// A call counts as much as so many tokens where it is asked how busy a caller is.
constexpr int64_t kTokensOfCall = 16;

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsStream(calls::MethodId method) { return calls::Describe(method).is_stream(); }

// In whole milliseconds, as OpenAI writes it: "6m0.5s".
std::string FormatReset(double seconds) {
  if (seconds <= 0) return "0s";
  return absl::FormatDuration(absl::Milliseconds(std::ceil(seconds * 1e3)));
}

}  // namespace

Caller::Caller(std::string id, std::string name, bool proven, CallerLimits limits,
               std::shared_ptr<CallerCounts> others, const Clock* clock)
    : Flow(std::move(id), limits.weight),
      name_(std::move(name)),
      proven_(proven),
      clock_(*clock),
      others_(std::move(others)),
      counts_in_(others_.get()),
      balance_at_(clock->Now()) {
  balance_ = static_cast<double>(limits.most_tokens());
  limits_ = std::move(limits);
}

void Caller::SetLimits(CallerLimits limits) {
  MutexLock lock(&mutex_);
  const bool had_balance = LimitsTokens();
  Add(0);
  set_weight(limits.weight);
  limits_ = std::move(limits);
  const auto most = static_cast<double>(limits_.most_tokens());
  balance_ = had_balance ? std::min(balance_, most) : most;
  balance_at_ = clock_.Now();
}

double Caller::Balance(absl::Time now) const {
  const double earned =
      absl::ToDoubleSeconds(now - balance_at_) * static_cast<double>(limits_.tokens_per_second);
  return std::min(balance_ + earned, static_cast<double>(limits_.most_tokens()));
}

void Caller::Add(double tokens) {
  if (!LimitsTokens()) return;
  const absl::Time now = clock_.Now();
  balance_ = std::min(Balance(now) + tokens, static_cast<double>(limits_.most_tokens()));
  balance_at_ = now;
}

absl::Status Caller::CheckBalance() const {
  if (!LimitsTokens()) return absl::OkStatus();
  const double balance = Balance(clock_.Now());
  if (balance > 0) return absl::OkStatus();
  const absl::Duration wait =
      absl::Milliseconds(1) +
      absl::Seconds(-balance / static_cast<double>(limits_.tokens_per_second));
  return RetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "the caller '", name_, "' has used its tokens: it has ", limits_.tokens_per_second,
          " a second, and ", limits_.most_tokens(), " at once")),
      wait);
}

absl::Status Caller::CheckLocked(calls::MethodId method) const {
  if (!calls::IsLimited(method)) return absl::OkStatus();
  if (!limits_.methods.empty() && !Contains(limits_.methods, calls::MethodName(method))) {
    return absl::PermissionDeniedError(
        absl::StrCat("method: the caller '", name_, "' may not call ", calls::MethodName(method),
                     "; it may call ", absl::StrJoin(limits_.methods, ", ")));
  }
  if (limits_.calls_in_flight > 0 && in_flight_ >= limits_.calls_in_flight) {
    return RetryAfter(absl::ResourceExhaustedError(
                          absl::StrCat("the caller '", name_, "' has ", in_flight_,
                                       " calls in flight, which is the most that it may have")),
                      kRetryCalls);
  }
  if (IsStream(method) && limits_.open_streams > 0 && streams_ >= limits_.open_streams) {
    return RetryAfter(absl::ResourceExhaustedError(
                          absl::StrCat("the caller '", name_, "' has ", streams_,
                                       " open streams, which is the most that it may have")),
                      kRetryStreams);
  }
  return CheckBalance();
}

absl::Status Caller::Check(calls::MethodId method) const {
  MutexLock lock(&mutex_);
  return CheckLocked(method);
}

absl::Status Caller::Enter(calls::MethodId method) {
  MutexLock lock(&mutex_);
  absl::Status status = CheckLocked(method);
  if (status.ok()) {
    ++in_flight_;
    if (IsStream(method)) ++streams_;
  }
  return status;
}

void Caller::Leave(bool is_stream) {
  MutexLock lock(&mutex_);
  --in_flight_;
  if (is_stream) --streams_;
}

absl::Status Caller::CheckPriority(batching::Priority priority) const {
  MutexLock lock(&mutex_);
  if (priority <= limits_.highest_priority) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "priority: the caller '", name_, "' may ask for ", PriorityName(limits_.highest_priority),
      " at most, found ", PriorityName(priority),
      "; highest_priority in --auth_tokens_file or --caller_limits allows more"));
}

batching::Priority Caller::highest_priority() const {
  MutexLock lock(&mutex_);
  return limits_.highest_priority;
}

absl::Status Caller::CheckModel(absl::string_view model) const {
  MutexLock lock(&mutex_);
  if (limits_.models.empty() || Contains(limits_.models, model)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("model: the caller '", name_, "' may not use '",
                                                  model, "'; it may use ",
                                                  absl::StrJoin(limits_.models, ", ")));
}

absl::Status Caller::Charge(int64_t tokens) {
  MutexLock lock(&mutex_);
  absl::Status status = CheckBalance();
  if (status.ok()) Add(-static_cast<double>(tokens));
  return status;
}

void Caller::Settle(int64_t tokens) {
  if (tokens == 0) return;
  MutexLock lock(&mutex_);
  Add(-static_cast<double>(tokens));
}

void Caller::OnEnd(const absl::Status& status, int64_t tokens) {
  CallerCounts& counts = *counts_in_.load(std::memory_order_acquire);
  counts.calls.fetch_add(1, std::memory_order_relaxed);
  counts.tokens.fetch_add(tokens, std::memory_order_relaxed);
  if (absl::IsResourceExhausted(status) || absl::IsPermissionDenied(status)) {
    counts.refused.fetch_add(1, std::memory_order_relaxed);
  }
  activity_.fetch_add(kTokensOfCall + tokens, std::memory_order_relaxed);
}

std::vector<std::pair<std::string, std::string>> Caller::RateLimitHeaders() const {
  std::vector<std::pair<std::string, std::string>> headers;
  const auto add = [&headers](absl::string_view what, int64_t limit, int64_t remaining,
                              double reset) {
    headers.emplace_back(absl::StrCat("x-ratelimit-limit-", what), absl::StrCat(limit));
    headers.emplace_back(absl::StrCat("x-ratelimit-remaining-", what),
                         absl::StrCat(std::max<int64_t>(remaining, 0)));
    headers.emplace_back(absl::StrCat("x-ratelimit-reset-", what), FormatReset(reset));
  };
  MutexLock lock(&mutex_);
  if (limits_.calls_in_flight > 0) {
    const int64_t left = limits_.calls_in_flight - in_flight_;
    add("requests", limits_.calls_in_flight, left,
        left > 0 ? 0 : absl::ToDoubleSeconds(kRetryCalls));
  }
  if (LimitsTokens()) {
    const double balance = Balance(clock_.Now());
    const auto most = static_cast<double>(limits_.most_tokens());
    add("tokens", limits_.most_tokens(), static_cast<int64_t>(balance),
        (most - balance) / static_cast<double>(limits_.tokens_per_second));
  }
  return headers;
}

void Caller::CountApart(bool apart) {
  counts_in_.store(apart ? &own_ : others_.get(), std::memory_order_release);
}

int64_t Caller::in_flight() const {
  MutexLock lock(&mutex_);
  return in_flight_;
}

absl::Status Lease::Enter(CallerPtr caller, calls::MethodId method) {
  if (caller == nullptr || !calls::IsLimited(method)) return absl::OkStatus();
  absl::Status status = caller->Enter(method);
  if (status.ok()) {
    caller_ = std::move(caller);
    is_stream_ = IsStream(method);
  }
  return status;
}

void Lease::Leave() {
  if (caller_ == nullptr) return;
  caller_->Leave(is_stream_);
  caller_.reset();
}

}  // namespace sru::server::callers
