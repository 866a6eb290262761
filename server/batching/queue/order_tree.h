// OrderTree: waiting requests in a fixed order, which knows the sum of the tokens before any point.
//
// An intrusive treap: the nodes are members of the requests, so that nothing is allocated. Insert,
// Erase, Reduce, First, After and Before take O(log n) steps. Keys must differ and must not change
// while a node is in a tree. Not thread-safe.
#ifndef SRU_SERVER_BATCHING_QUEUE_ORDER_TREE_H_
#define SRU_SERVER_BATCHING_QUEUE_ORDER_TREE_H_

#include <cstdint>
#include <tuple>

#include "absl/time/time.h"

namespace sru::server::batching {

class PendingRequest;

enum class Priority { kLow = 0, kNormal = 1, kHigh = 2 };

// Compared field by field; the smaller one goes first.
struct OrderKey {
  int64_t rank = 0;
  absl::Time deadline = absl::InfiniteFuture();
  uint64_t number = 0;  // of the arrival, unique
};

inline bool operator<(const OrderKey& a, const OrderKey& b) {
  return std::tie(a.rank, a.deadline, a.number) < std::tie(b.rank, b.deadline, b.number);
}

// Waiting work, of one request or of many.
struct OrderWeight {
  int64_t tokens = 0;
  int64_t sequences = 0;

  OrderWeight& operator+=(const OrderWeight& other) {
    tokens += other.tokens;
    sequences += other.sequences;
    return *this;
  }
  OrderWeight& operator-=(const OrderWeight& other) {
    tokens -= other.tokens;
    sequences -= other.sequences;
    return *this;
  }
};

struct OrderNode {
  OrderKey key;
  OrderWeight weight;
  PendingRequest* request = nullptr;

  // Used by the tree only.
  uint64_t heap = 0;  // greatest at the root of each subtree
  OrderWeight sum;    // of the subtree
  OrderNode* left = nullptr;
  OrderNode* right = nullptr;
};

class OrderTree {
 public:
  OrderTree() = default;
  OrderTree(const OrderTree&) = delete;
  OrderTree& operator=(const OrderTree&) = delete;

  bool empty() const { return root_ == nullptr; }
  OrderWeight total() const { return root_ == nullptr ? OrderWeight() : root_->sum; }

  void Insert(OrderNode* node) {
    node->heap = Mix(node->key.number);
    OrderNode** link = &root_;
    while (*link != nullptr && (*link)->heap >= node->heap) {
      (*link)->sum += node->weight;
      link = Child(*link, node->key);
    }
    Split(*link, node->key, &node->left, &node->right);
    Update(node);
    *link = node;
  }

  void Erase(OrderNode* node) {
    OrderNode** link = &root_;
    while (*link != node) {
      (*link)->sum -= node->weight;
      link = Child(*link, node->key);
    }
    *link = Merge(node->left, node->right);
    node->left = node->right = nullptr;
  }

  // Subtracts `less` from the weight of a node that is in the tree.
  void Reduce(OrderNode* node, const OrderWeight& less) {
    OrderNode* at = root_;
    while (at != node) {
      at->sum -= less;
      at = *Child(at, node->key);
    }
    node->sum -= less;
    node->weight -= less;
  }

  // Null when empty.
  OrderNode* First() const {
    OrderNode* at = root_;
    while (at != nullptr && at->left != nullptr) at = at->left;
    return at;
  }

  // The first node whose key is greater, or null.
  OrderNode* After(const OrderKey& key) const {
    OrderNode* found = nullptr;
    for (OrderNode* at = root_; at != nullptr;) {
      if (key < at->key) {
        found = at;
        at = at->left;
      } else {
        at = at->right;
      }
    }
    return found;
  }

  // The sum of the nodes whose keys are smaller.
  OrderWeight Before(const OrderKey& key) const {
    OrderWeight sum;
    for (OrderNode* at = root_; at != nullptr;) {
      if (at->key < key) {
        sum += at->weight;
        if (at->left != nullptr) sum += at->left->sum;
        at = at->right;
      } else {
        at = at->left;
      }
    }
    return sum;
  }

 private:
  // splitmix64: arrival numbers become heap values without a pattern.
  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  static OrderNode** Child(OrderNode* parent, const OrderKey& key) {
    return key < parent->key ? &parent->left : &parent->right;
  }

  static void Update(OrderNode* node) {
    node->sum = node->weight;
    if (node->left != nullptr) node->sum += node->left->sum;
    if (node->right != nullptr) node->sum += node->right->sum;
  }

  // Splits `tree` into the nodes before `key` and those after it.
  static void Split(OrderNode* tree, const OrderKey& key, OrderNode** before, OrderNode** after) {
    if (tree == nullptr) {
      *before = *after = nullptr;
    } else if (tree->key < key) {
      Split(tree->right, key, &tree->right, after);
      Update(tree);
      *before = tree;
    } else {
      Split(tree->left, key, before, &tree->left);
      Update(tree);
      *after = tree;
    }
  }

  // Joins two trees; every key of `before` must be smaller than every key of `after`.
  static OrderNode* Merge(OrderNode* before, OrderNode* after) {
    if (before == nullptr) return after;
    if (after == nullptr) return before;
    if (before->heap >= after->heap) {
      before->right = Merge(before->right, after);
      Update(before);
      return before;
    }
    after->left = Merge(before, after->left);
    Update(after);
    return after;
  }

  OrderNode* root_ = nullptr;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_ORDER_TREE_H_
