#include "base/similar_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace sru {
namespace {

// The time is the product of two lengths, and strangers send names.
constexpr size_t kLongestName = 100;

int Distance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

absl::string_view SimilarName(absl::string_view name, absl::Span<const absl::string_view> names) {
  absl::string_view nearest;
  if (name.size() > kLongestName) return nearest;
  int least = std::max<int>(2, static_cast<int>(name.size()) / 3) + 1;
  for (const absl::string_view other : names) {
    const int distance = Distance(name, other);
    if (distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest;
}

}  // namespace sru
