#include "bench/shape_list.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
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

}  // namespace sru::bench
