#include "bench/shape_list.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace sru::bench {

absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag, absl::string_view text,
                                              int low, int high) {
  std::vector<int> numbers;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < low || number > high) {
      return InvalidArgument("--", flag, ": expected numbers from ", low, " to ", high,
                             " with commas between them, such as 8,32, found '", text, "'");
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<kernels::DataType> ParseDataType(absl::string_view name) {
  kernels::DataType dtype = kernels::DataType::kFloat32;
  if (kernels::ParseDataType({name.data(), name.size()}, &dtype)) return dtype;
  return InvalidArgument("--dtype: expected ", kernels::ListNames<kernels::DataTypeName>(),
                         ", found '", name, "'");
}

MeasureProgress::MeasureProgress(int steps)
    : steps_(steps), terminal_(isatty(STDERR_FILENO) != 0), start_(absl::Now()), last_(start_) {}

MeasureProgress::~MeasureProgress() { Clear(); }

void MeasureProgress::Begin(const std::string& what) {
  const absl::Time now = absl::Now();
  const absl::Duration pause = terminal_ || last_ == start_ ? absl::Seconds(2) : absl::Seconds(10);
  ++begun_;
  if (now - (terminal_ ? start_ : last_) < pause) return;
  last_ = now;
  absl::FPrintF(stderr, "%s[%d/%d, %.0f s] %s%s", terminal_ ? "\r\x1b[K" : "", begun_, steps_,
                absl::ToDoubleSeconds(now - start_), what, terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void MeasureProgress::Clear() {
  if (!terminal_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace sru::bench
