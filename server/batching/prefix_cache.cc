#include "server/batching/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace sru::server::batching {

using kernels::StateArena;

size_t BytesOfState(const std::vector<kernels::FieldSpec>& fields) {
  size_t values = 0;
  for (const kernels::FieldSpec& field : fields) {
    if (!field.grows) values += static_cast<size_t>(field.width);
  }
  return values * sizeof(float);
}

struct PrefixCache::Node {
  Node* parent = nullptr;
  const std::string* owner = nullptr;  // of a root, which has no parent
  std::vector<int32_t> edge;           // that leads here; empty for roots only
  Children children;                   // by the first token of their edges
  StateArena::Slot slot = StateArena::kNoSlot;
  std::list<Node*>::iterator use;  // its place in by_use_, if it has a state
};

namespace {

// A node, its part of a root, its entry in its parent's table and what the allocator adds to them.
constexpr size_t kNodeBytes = 256;

size_t CommonTokens(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  const size_t size = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + size, b.begin()).first -
                             a.begin());
}

}  // namespace

PrefixCache::PrefixCache(std::shared_ptr<StateArena> arena, size_t state_bytes, size_t budget_bytes)
    : arena_(std::move(arena)), state_bytes_(state_bytes), budget_bytes_(budget_bytes) {}

// One by one: the destructor of a deep tree would overflow the thread's stack.
PrefixCache::~PrefixCache() {
  const MutexLock lock(&mutex_);
  while (EvictOldest()) {
  }
}

PrefixCache::Match PrefixCache::Lookup(const std::string& owner, absl::Span<const int32_t> prompt) {
  const MutexLock lock(&mutex_);
  const Place place = Find(owner, prompt);
  Match match;
  match.branch = place.matched + place.in_edge;
  if (place.kept != nullptr && arena_->Copy(place.kept->slot, &match.slot).ok()) {
    for (const Node* node = place.kept; node != nullptr; node = node->parent) {
      match.length += node->edge.size();
    }
    Touch(place.kept);
    ++stats_.hits;
    stats_.hit_tokens += static_cast<int64_t>(match.length);
  } else {
    ++stats_.misses;
  }
  return match;
}

bool PrefixCache::Insert(const std::string& owner, absl::Span<const int32_t> prefix,
                         StateArena::Slot slot) {
  if (prefix.empty() || kNodeBytes + prefix.size() * sizeof(int32_t) + state_bytes_ > budget_bytes_)
    return false;
  const MutexLock lock(&mutex_);
  Place place = Find(owner, prefix);
  if (place.kept != nullptr && place.kept == place.node && place.matched == prefix.size()) {
    Touch(place.kept);
    return true;
  }
  StateArena::Slot copy = StateArena::kNoSlot;
  if (!arena_->Copy(slot, &copy).ok()) return false;
  if (place.node == nullptr) {
    const auto root = roots_.emplace(owner, std::make_unique<Node>()).first;
    root->second->owner = &root->first;
    place.node = root->second.get();
  }
  Node* const node = MakeNode(prefix, place);
  node->slot = copy;
  node->use = by_use_.insert(by_use_.end(), node);
  ++stats_.states;
  while (bytes() > budget_bytes_ && EvictOldest()) {
  }
  return true;
}

bool PrefixCache::Evict(size_t count) {
  const MutexLock lock(&mutex_);
  size_t evicted = 0;
  while (evicted < count && EvictOldest()) ++evicted;
  return evicted > 0;
}

PrefixCache::Stats PrefixCache::stats() const {
  const MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.bytes = static_cast<int64_t>(bytes());
  return stats;
}

size_t PrefixCache::bytes() const {
  return num_nodes_ * kNodeBytes + num_tokens_ * sizeof(int32_t) +
         static_cast<size_t>(stats_.states) * state_bytes_;
}

PrefixCache::Place PrefixCache::Find(const std::string& owner,
                                     absl::Span<const int32_t> tokens) const {
  Place place;
  const auto root = roots_.find(owner);
  if (root == roots_.end()) return place;
  place.node = root->second.get();
  while (place.matched < tokens.size()) {
    const auto it = place.node->children.find(tokens[place.matched]);
    if (it == place.node->children.end()) break;
    Node* const child = it->second.get();
    const size_t common = CommonTokens(child->edge, tokens.subspan(place.matched));
    if (common < child->edge.size()) {
      place.next = child;
      place.in_edge = common;
      break;
    }
    place.node = child;
    place.matched += common;
    if (child->slot != StateArena::kNoSlot) place.kept = child;
  }
  return place;
}

PrefixCache::Node* PrefixCache::MakeNode(absl::Span<const int32_t> tokens, const Place& place) {
  Node* at = place.node;
  if (place.next != nullptr) at = SplitEdge(place.next, place.in_edge);
  const absl::Span<const int32_t> rest = tokens.subspan(place.matched + place.in_edge);
  if (rest.empty()) return at;
  std::unique_ptr<Node>& leaf = at->children[rest[0]];
  leaf = std::make_unique<Node>();
  leaf->parent = at;
  leaf->edge.assign(rest.begin(), rest.end());
  ++num_nodes_;
  num_tokens_ += rest.size();
  return leaf.get();
}

PrefixCache::Node* PrefixCache::SplitEdge(Node* child, size_t tokens) {
  auto middle = std::make_unique<Node>();
  middle->parent = child->parent;
  middle->edge.assign(child->edge.begin(), child->edge.begin() + tokens);
  std::unique_ptr<Node>& place = child->parent->children.find(child->edge[0])->second;
  std::unique_ptr<Node> lower = std::exchange(place, std::move(middle));
  lower->edge = std::vector<int32_t>(lower->edge.begin() + tokens, lower->edge.end());
  lower->parent = place.get();
  place->children.try_emplace(lower->edge[0], std::move(lower));
  ++num_nodes_;
  return place.get();
}

void PrefixCache::Prune(Node* node) {
  while (node->parent != nullptr && node->slot == StateArena::kNoSlot &&
         node->children.size() < 2) {
    Node* const parent = node->parent;
    if (node->children.empty()) {
      num_tokens_ -= node->edge.size();
      --num_nodes_;
      const int32_t first = node->edge[0];
      parent->children.erase(first);
      node = parent;
      continue;
    }
    // The edges before and after it become one.
    std::unique_ptr<Node> child = std::move(node->children.begin()->second);
    child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
    child->parent = parent;
    --num_nodes_;
    parent->children.find(node->edge[0])->second = std::move(child);  // frees the node
    return;
  }
  if (node->parent == nullptr && node->children.empty()) roots_.erase(roots_.find(*node->owner));
}

bool PrefixCache::EvictOldest() {
  if (by_use_.empty()) return false;
  Node* const node = by_use_.front();
  by_use_.pop_front();
  arena_->Free(std::exchange(node->slot, StateArena::kNoSlot));
  --stats_.states;
  ++stats_.evictions;
  Prune(node);
  return true;
}

void PrefixCache::Touch(Node* node) { by_use_.splice(by_use_.end(), by_use_, node->use); }

}  // namespace sru::server::batching
