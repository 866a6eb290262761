// A picture of an alignment in characters: which tokens of the source each token of a translation
// was made from.
#ifndef SRU_CLIENT_ALIGNMENT_VIEW_H_
#define SRU_CLIENT_ALIGNMENT_VIEW_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace sru::client {

// A row for each token of `target`, a column for each token of `source`, whose name is written
// downward above it; the shade of a cell is its weight, by AlignmentLegend(). `weights` has
// target.size() * source.size() values in [0, 1], row by row. Lines have at most `columns`
// characters, if that is enough for one cell: what does not fit beside each other comes one below
// the other.
std::string AlignmentGrid(const std::vector<std::string>& source,
                          const std::vector<std::string>& target, absl::Span<const float> weights,
                          int columns);

// What the shades mean, in one line.
std::string AlignmentLegend();

}  // namespace sru::client

#endif  // SRU_CLIENT_ALIGNMENT_VIEW_H_
