#include "models/decoding/stop_strings.h"

namespace sru::models {

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  size_t bytes = 0;
  for (const std::string& string : strings) bytes += string.size();
  nodes_.reserve(1 + bytes);
  nodes_.emplace_back();
  root_.fill(kNone);
  for (const std::string& string : strings) Insert(string);
  LinkFailures();
}

int32_t StopStrings::Child(State state, unsigned char byte) const {
  if (state == kStart) return root_[byte];
  // Nodes with several children are fewer than there are strings.
  int32_t child = nodes_[state].child;
  while (child != kNone && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void StopStrings::Insert(const std::string& string) {
  State at = kStart;
  for (const char c : string) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = Child(at, byte);
    if (child == kNone) {
      child = static_cast<int32_t>(nodes_.size());
      Node node;
      node.byte = byte;
      node.depth = nodes_[at].depth + 1;
      if (at == kStart) {
        root_[byte] = child;
      } else {
        node.sibling = nodes_[at].child;
        nodes_[at].child = child;
      }
      nodes_.push_back(node);
    }
    at = child;
  }
  nodes_[at].match = nodes_[at].depth;
}

// Breadth first, so that the shorter nodes that one falls back to are complete.
void StopStrings::LinkFailures() {
  std::vector<State> queue;
  queue.reserve(nodes_.size());
  for (const int32_t child : root_) {
    if (child != kNone) queue.push_back(child);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const State at = queue[i];
    for (int32_t child = nodes_[at].child; child != kNone; child = nodes_[child].sibling) {
      Node& node = nodes_[child];
      node.failure = Next(nodes_[at].failure, node.byte);
      if (node.match == 0) node.match = nodes_[node.failure].match;
      queue.push_back(child);
    }
  }
}

StopStrings::State StopStrings::Next(State state, unsigned char byte) const {
  int32_t child = Child(state, byte);
  while (child == kNone && state != kStart) {
    state = nodes_[state].failure;
    child = Child(state, byte);
  }
  return child == kNone ? kStart : child;
}

}  // namespace sru::models
