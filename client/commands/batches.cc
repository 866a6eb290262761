#include "client/commands/batches.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "absl/strings/str_format.h"
#include "client/calls.h"

namespace sru::client {
namespace {

constexpr int kMaxOverloadRetries = 5;  // of a call that the server refused as too much
constexpr absl::Duration kProgressAfter = absl::Seconds(2);

// Says on standard error how far the work is, once it takes more than two seconds, unless the
// answers themselves show it.
class ProgressLine {
 public:
  ProgressLine() : enabled_(isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) == 0) {}
  ~ProgressLine() {
    if (printed_) std::fputs("\r\x1b[K", stderr);
  }

  void Add(size_t sequences) {
    done_ += static_cast<int64_t>(sequences);
    const absl::Time now = absl::Now();
    if (!enabled_ || now - start_ < kProgressAfter || now - last_ < absl::Milliseconds(200)) return;
    last_ = now;
    printed_ = true;
    absl::FPrintF(stderr, "\r\x1b[K%d texts, %.0f per second", done_,
                  done_ / absl::ToDoubleSeconds(now - start_));
    std::fflush(stderr);
  }

 private:
  const bool enabled_;
  const absl::Time start_ = absl::Now();
  absl::Time last_ = absl::InfinitePast();
  int64_t done_ = 0;
  bool printed_ = false;
};

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

int RunBatches(const Command& command, const CommonFlags& flags, int batch, TextInput* input,
               const SendBatch& send) {
  int exit_code = kExitOk;
  ProgressLine progress;
  for (;;) {
    const std::vector<TextInput::Item> items = input->Next(batch);
    if (items.empty()) return exit_code;
    absl::Status status = send(items);
    if (status.code() == absl::StatusCode::kInvalidArgument && items.size() > 1) {
      for (const TextInput::Item& item : items) {
        status = send({item});
        if (status.ok()) continue;
        std::cerr << "sru_client " << command.name << ": "
                  << (input->from_stdin() ? "line " : "text ") << item.line << ": "
                  << flags.Explain(status) << "\n";
        exit_code = kExitFailed;
        if (status.code() != absl::StatusCode::kInvalidArgument) return exit_code;
      }
    } else if (!status.ok()) {
      std::cerr << "sru_client " << command.name << ": ";
      if (input->from_stdin()) std::cerr << "line " << items.front().line << ": ";
      std::cerr << flags.Explain(status) << "\n";
      exit_code = kExitFailed;
      // The next batch can succeed only if the texts of this one were to blame.
      if (status.code() != absl::StatusCode::kInvalidArgument) return exit_code;
    }
    progress.Add(items.size());
    if (!std::cout) return kExitFailed;
  }
}

}  // namespace sru::client
