// SimilarName: what a misspelt name was meant to be. Pure function.
#ifndef SRU_BASE_SIMILAR_NAME_H_
#define SRU_BASE_SIMILAR_NAME_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sru {

// The most similar of the names by Levenshtein's distance, of equals the first. Empty if more than
// a third of `name` (of a short name, two letters) differs, or if `name` is long.
absl::string_view SimilarName(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace sru

#endif  // SRU_BASE_SIMILAR_NAME_H_
