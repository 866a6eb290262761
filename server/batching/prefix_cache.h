// PrefixCache: states after the beginnings of prompts, so that a prompt that begins as an earlier
// one did is computed from there on only.
//
// The state of a recurrent model after some tokens is one slot of its StateArena, whatever the
// number of tokens, and equal to the bit however these were divided into steps. So a prompt may go
// on from any kept state whose tokens it begins with, and nothing shows in its results.
//
// It is a radix tree over token ids: an edge is a run of tokens, nodes are the ends of kept
// prefixes and the places where these part. A lookup walks down it, in time proportional to the
// prompt. What two prompts have in common and nobody has kept, such as the instructions before a
// question, shows as Match::branch: a state that is kept there serves the next one.
//
// Each owner has a tree of its own: a caller whose prompts went on from another's would learn, by
// their times, how that one's begin. The budget is one for all, so owners learn of each other how
// much is kept, and nothing of what.
//
// A kept state is a copy of a slot, which shares its memory with the original until one of them
// goes on. The budget counts each state as if it shared nothing, and the tree itself. Over the
// budget, or when the arena is full (Evict()), the state that has not been used for longest goes
// first.
//
// One of a model on a device. Thread-safe.
#ifndef SRU_SERVER_BATCHING_PREFIX_CACHE_H_
#define SRU_SERVER_BATCHING_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"

namespace sru::server::batching {

// Of the rows of fields that do not grow.
size_t BytesOfState(const std::vector<kernels::FieldSpec>& fields);

class PrefixCache {
 public:
  struct Match {
    // Tokens of the prompt after which `slot` is; 0 = no kept prefix.
    size_t length = 0;
    // A copy of the kept slot, which is the caller's to free; kNoSlot with length = 0.
    kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
    // Tokens of the prompt that some kept prefix begins with as well; at least `length`. If it is
    // more, and not the whole prompt, the prompt parts there from what others have asked: a good
    // place to keep a state.
    size_t branch = 0;
  };

  struct Stats {
    int64_t hits = 0;        // lookups that found a kept prefix
    int64_t misses = 0;      // lookups that found none
    int64_t hit_tokens = 0;  // tokens of the prefixes that were found
    int64_t evictions = 0;
    int64_t states = 0;  // that are kept now
    int64_t bytes = 0;   // that they take, with the tree
  };

  // `state_bytes` is what the pages of one slot take.
  PrefixCache(std::shared_ptr<kernels::StateArena> arena, size_t state_bytes, size_t budget_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The owner's longest kept prefix of the prompt, which may be all of it.
  Match Lookup(const std::string& owner, absl::Span<const int32_t> prompt);

  // Keeps a copy of `slot`, the state after exactly these tokens, of which there is at least one,
  // from a fresh start. False if it is not kept: alone it is over the budget, or there is no
  // memory. One that is kept already counts as used.
  bool Insert(const std::string& owner, absl::Span<const int32_t> prefix,
              kernels::StateArena::Slot slot);

  // Gives up the states that have not been used for longest, up to that many. False if there is
  // none.
  bool Evict(size_t count);

  Stats stats() const;

 private:
  struct Node;
  using Children = absl::flat_hash_map<int32_t, std::unique_ptr<Node>>;

  // Where a sequence of tokens leaves the tree.
  struct Place {
    Node* node = nullptr;  // the last one whose edge it has, from the root on; null without a root
    size_t matched = 0;    // tokens of the sequence up to there
    Node* next = nullptr;  // the child with whose edge it goes on, if any
    size_t in_edge = 0;    // tokens of that edge that it has; 0 without `next`
    Node* kept = nullptr;  // the deepest one on the way that has a state
  };

  Place Find(const std::string& owner, absl::Span<const int32_t> tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The node at the end of `tokens`, made if there is none.
  Node* MakeNode(absl::Span<const int32_t> tokens, const Place& place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Node* SplitEdge(Node* child, size_t tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out a node that is neither the end of a prefix nor a place where prefixes part, and its
  // parent if that is so then; at last a root without children.
  void Prune(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EvictOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is the one that has been used last.
  void Touch(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<kernels::StateArena> arena_;
  const size_t state_bytes_;
  const size_t budget_bytes_;

  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Node>> roots_ ABSL_GUARDED_BY(mutex_);  // by owner
  // Nodes with a state; the one that was used last stands last.
  std::list<Node*> by_use_ ABSL_GUARDED_BY(mutex_);
  size_t num_nodes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_tokens_ ABSL_GUARDED_BY(mutex_) = 0;  // of all edges
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_PREFIX_CACHE_H_
