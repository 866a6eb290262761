// MachineSpeed: what a capacity plan has to know of a machine and a model, and its file.
//
// The time of a batch of T tokens in S sequences, of which the longest has L, is
//
//   fixed + per_token * T + per_sequence * S + per_step * L
//
// (a recurrent layer takes L steps whatever else is in the batch). All other work is processor time of
// the calls: each time that a thread takes up work which has come meanwhile, a turn, and for each call and
// each sequence of that work. A call costs more the more others are open, whose memory takes turns with its
// own in the caches: without that a plan would be far too hopeful about load that comes near saturation.
// `pauses` are times in which a core does nothing for the server, because
// somebody else has it: on a virtual machine they decide the p99 at light load.
#ifndef SRU_BENCH_CAPACITY_SPEED_H_
#define SRU_BENCH_CAPACITY_SPEED_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sru::bench {

// Microseconds of one core.
struct BatchTime {
  double fixed_us = 0;
  double token_us = 0;
  double sequence_us = 0;
  double step_us = 0;

  double Us(int64_t tokens, int64_t sequences, int64_t longest) const {
    return fixed_us + token_us * static_cast<double>(tokens) +
           sequence_us * static_cast<double>(sequences) + step_us * static_cast<double>(longest);
  }
};

// A measured batch.
struct BatchSample {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t longest = 0;
  double us = 0;
};

// The BatchTime, without negative parts, with the least sum of squares of relative errors.
// kInvalidArgument unless there is a sample and all are positive.
absl::StatusOr<BatchTime> FitBatchTime(const std::vector<BatchSample>& samples);

// The largest relative error, such as 0.1 for 10%.
double LargestError(const BatchTime& time, const std::vector<BatchSample>& samples);

// A call that is open together with so many others, or more, costs crowd_us more; with fewer, in proportion.
inline constexpr int kCrowdCalls = 512;

// Microseconds of processor time, `wake_us` apart.
struct CallCost {
  double wake_us = 0;      // from waking a thread until it runs on an idle core: a delay, no work
  double turn_us = 0;      // of each turn of a thread
  double call_us = 0;      // of each call
  double sequence_us = 0;  // of each sequence, outside of its batch
  double crowd_us = 0;     // of each call besides, while kCrowdCalls are open

  // Of a call while `open` calls are.
  double CallUs(int64_t open) const {
    return call_us + crowd_us * std::min(1.0, static_cast<double>(open) / kCrowdCalls);
  }
};

// Of each core.
struct Pauses {
  double per_s = 0;
  std::vector<double> us;  // the lengths that were seen
};

// 0 if there is none.
double MeanPauseUs(const Pauses& pauses);

struct MachineSpeed {
  std::string machine;
  std::string model;
  std::string backend;
  std::string dtype;
  int cores = 1;
  BatchTime batch;
  double batch_error = 0;  // LargestError() of the fit
  CallCost call;
  // Of the load generator, when it runs on the machine that it measures; without a wake_us, a sequence_us
  // and a crowd_us of its own.
  CallCost client;
  Pauses pauses;
};

// As JSON. Errors name the file, and the field that is missing or out of range.
absl::Status SaveSpeed(const MachineSpeed& speed, const std::string& path);
absl::StatusOr<MachineSpeed> LoadSpeed(const std::string& path);

// kInvalidArgument names the field that no machine can have.
absl::Status CheckSpeed(const MachineSpeed& speed);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_SPEED_H_
