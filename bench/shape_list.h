// Lists of numbers on the command line, and the progress of a long measurement.
#ifndef SRU_BENCH_SHAPE_LIST_H_
#define SRU_BENCH_SHAPE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/backend.h"

namespace sru::bench {

// "8,32,128" -> {8, 32, 128}. kInvalidArgument names `flag` unless there is at least one whole
// number and all are in low..high.
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag, absl::string_view text,
                                              int low, int high);

// A name of kernels/data_type.h; kInvalidArgument names --dtype.
absl::StatusOr<kernels::DataType> ParseDataType(absl::string_view name);

// Reports the progress of a measurement on standard error once it has run for two seconds: on a
// terminal in one line that it overwrites, else in a line every ten seconds. Not thread-safe.
class MeasureProgress {
 public:
  explicit MeasureProgress(int steps);
  // Clears the line on a terminal.
  ~MeasureProgress();

  // Call it before each step.
  void Begin(const std::string& what);
  // Clears the line on a terminal; call it before something else is printed.
  void Clear();

 private:
  const int steps_;
  const bool terminal_;
  const absl::Time start_;
  int begun_ = 0;
  absl::Time last_;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_SHAPE_LIST_H_
