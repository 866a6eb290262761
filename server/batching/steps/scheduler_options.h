// SchedulerOptions: what the scheduler of steps (sequence_scheduler.h) and its parts are made with.
#ifndef SRU_SERVER_BATCHING_STEPS_SCHEDULER_OPTIONS_H_
#define SRU_SERVER_BATCHING_STEPS_SCHEDULER_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/time/time.h"

namespace sru::server::batching {

inline constexpr double kSlowestStep = 3;
inline constexpr int kLeastPortion = 32;
inline constexpr absl::Duration kStepPiece = absl::Milliseconds(2);
// When a sequence whose state found no memory asks again.
inline constexpr absl::Duration kAllocationRetry = absl::Milliseconds(10);
inline constexpr absl::Duration kLoneWait = absl::Seconds(1);

// How messages call things.
struct SchedulerWords {
  const char* fed = "prompt";  // the field that is fed
  const char* before_result = "before the first token";
  const char* after_result = "between two tokens";
};

struct SchedulerOptions {
  int max_step_tokens = 4096;        // at least 1
  int max_step_sequences = 256;      // at least 1
  int rows_per_step = 64;            // at least 1
  int max_streams = 1024;            // sequences that are there at a time; at least 1
  int64_t max_waiting_rows = 65536;  // to be fed, of all sequences; at least 1
  // Sequences that have not begun; at least 1.
  int64_t max_waiting_sequences = std::numeric_limits<int64_t>::max();
  // SequenceRequest::branches of the sequences that have begun on a device; a single one may have
  // more. At least 1.
  int64_t max_begun_branches = std::numeric_limits<int64_t>::max();
  bool result_at_end = false;
  SchedulerWords words;
  bool admission_by_deadline = true;
  absl::Duration ageing_interval = absl::Milliseconds(500);
  std::vector<int> workers = {1};  // [device]; at least one in all
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_SCHEDULER_OPTIONS_H_
