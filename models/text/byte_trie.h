// A set of byte strings, each with a value, that is searched for all that begin at a place of a
// text.
#ifndef SRU_MODELS_TEXT_BYTE_TRIE_H_
#define SRU_MODELS_TEXT_BYTE_TRIE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sru::models {

// Immutable and thread-safe.
class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  // Strings that differ and are not empty, in any order, with values from 0.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return nodes_.size() == 1; }

  // Calls visit(length, value) for each string of the set that `text` starts with, the shortest
  // first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value != kNone) visit(i + 1, nodes_[node].value);
    }
  }

  // Length of the longest of them; 0 when there is none.
  size_t LongestPrefix(std::string_view text) const {
    size_t longest = 0;
    ForEachPrefix(text, [&](size_t length, int32_t) { longest = length; });
    return longest;
  }

 private:
  struct Node {
    uint32_t first_child = 0;  // children are neighbors, in the order of their labels
    int32_t value = kNone;
    uint16_t num_children = 0;
    uint8_t label = 0;  // the byte that leads here
  };

  // 0, which is the root and nobody's child, when there is none.
  uint32_t Child(uint32_t node, uint8_t label) const {
    if (node == 0) return root_children_[label];
    const auto begin = nodes_.begin() + nodes_[node].first_child;
    const auto end = begin + nodes_[node].num_children;
    const auto child = std::lower_bound(
        begin, end, label, [](const Node& n, uint8_t wanted) { return n.label < wanted; });
    return child != end && child->label == label ? static_cast<uint32_t>(child - nodes_.begin())
                                                 : 0;
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> root_children_;  // by label
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_BYTE_TRIE_H_
