// NearestName: what a user who misspelt a name has meant.
#ifndef SRU_BASE_NEAREST_NAME_H_
#define SRU_BASE_NEAREST_NAME_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sru {

// The first of `names` with the least Levenshtein distance to `name`; empty if all are farther than
// `max_distance`.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> names,
                              int max_distance);

}  // namespace sru

#endif  // SRU_BASE_NEAREST_NAME_H_
