#include "client/commands/batches.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "client/calls.h"

namespace sru::client {
namespace {

constexpr int kMaxOverloadRetries = 5;  // of a call that the server refused as too much
constexpr absl::Duration kProgressAfter = absl::Seconds(2);

}  // namespace

absl::Status CallPatiently(absl::FunctionRef<absl::Status()> call) {
  for (int retry = 0;; ++retry) {
    absl::Status status = call();
    if (status.ok() || retry == kMaxOverloadRetries) return status;
    const auto delay = RetryDelay(status);
    if (status.code() != absl::StatusCode::kResourceExhausted || !delay.has_value()) return status;
    absl::SleepFor(std::clamp(*delay, absl::Milliseconds(1), absl::Seconds(5)));
  }
}

bool MayBlameAnItem(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         (status.code() == absl::StatusCode::kResourceExhausted && !RetryDelay(status).has_value());
}

ProgressLine::ProgressLine() : enabled_(isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) == 0) {}

ProgressLine::~ProgressLine() {
  if (printed_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::Add(size_t texts) {
  done_ += static_cast<int64_t>(texts);
  const absl::Time now = absl::Now();
  if (!enabled_ || now - start_ < kProgressAfter || now - last_ < absl::Milliseconds(200)) return;
  last_ = now;
  printed_ = true;
  absl::FPrintF(stderr, "\r\x1b[K%d texts, %.0f per second", done_,
                done_ / absl::ToDoubleSeconds(now - start_));
  std::fflush(stderr);
}

}  // namespace sru::client
