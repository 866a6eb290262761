// Shapes and data types on the command line.
#ifndef SRU_BENCH_SHAPE_LIST_H_
#define SRU_BENCH_SHAPE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace sru::bench {

// "8,32,128" -> {8, 32, 128}. kInvalidArgument names `flag` unless there is at least one whole
// number and all are in low..high.
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag, absl::string_view text,
                                              int low, int high);

// A name of kernels/data_type.h; kInvalidArgument names --dtype.
absl::StatusOr<kernels::DataType> ParseDataType(absl::string_view name);

}  // namespace sru::bench

#endif  // SRU_BENCH_SHAPE_LIST_H_
