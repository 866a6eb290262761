#include "models/text/byte_trie.h"

#include <algorithm>
#include <deque>

namespace sru::models {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries)
    : nodes_(1), root_children_(256, 0) {
  std::sort(entries.begin(), entries.end());
  struct Range {
    size_t begin, end;  // the entries that go through the node
    size_t depth;
    uint32_t node;
  };
  // Breadth first, so that the children of a node are neighbors.
  std::deque<Range> ranges = {{0, entries.size(), 0, 0}};
  for (; !ranges.empty(); ranges.pop_front()) {
    Range range = ranges.front();
    if (range.begin < range.end && entries[range.begin].first.size() == range.depth) {
      nodes_[range.node].value = entries[range.begin].second;
      ++range.begin;
    }
    nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
    while (range.begin < range.end) {
      const auto label = static_cast<uint8_t>(entries[range.begin].first[range.depth]);
      size_t end = range.begin + 1;
      while (end < range.end && static_cast<uint8_t>(entries[end].first[range.depth]) == label) {
        ++end;
      }
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back().label = label;
      ++nodes_[range.node].num_children;
      if (range.node == 0) root_children_[label] = child;
      ranges.push_back({range.begin, end, range.depth + 1, child});
      range.begin = end;
    }
  }
}

}  // namespace sru::models
