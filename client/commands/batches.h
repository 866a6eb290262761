// Shared by commands that make many calls: patience with an overloaded server, and a line that shows progress.
#ifndef SRU_CLIENT_COMMANDS_BATCHES_H_
#define SRU_CLIENT_COMMANDS_BATCHES_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::client {

// Makes a call, and repeats it while the server refuses it as too much, at most five times and each
// time after the delay that the server asked for.
absl::Status CallPatiently(absl::FunctionRef<absl::Status()> call);

// Returns true if one item of a call may be to blame for the error: the server refuses an item, or
// the call or its answer has too many bytes. An overload carries a delay (RetryDelay()), so it blames
// no item.
bool MayBlameAnItem(const absl::Status& status);

// Says on standard error how far the work is, once it takes more than two seconds, unless the
// answers themselves show it.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Add(size_t texts);

 private:
  const bool enabled_;
  const absl::Time start_ = absl::Now();
  absl::Time last_ = absl::InfinitePast();
  int64_t done_ = 0;
  bool printed_ = false;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_BATCHES_H_
