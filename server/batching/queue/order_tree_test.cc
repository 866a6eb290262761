#include "server/batching/queue/order_tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

OrderKey Key(int64_t rank, int64_t deadline_ms, uint64_t number) {
  return {rank, absl::UnixEpoch() + absl::Milliseconds(deadline_ms), number};
}

std::pair<int64_t, int64_t> Sum(const OrderWeight& weight) {
  return {weight.tokens, weight.sequences};
}

TEST(OrderKeyTest, RankThenDeadlineThenNumber) {
  EXPECT_LT(Key(1, 9, 9), Key(2, 1, 1));
  EXPECT_LT(Key(1, 1, 9), Key(1, 2, 1));
  EXPECT_LT(Key(1, 1, 1), Key(1, 1, 2));
  EXPECT_FALSE(Key(1, 1, 1) < Key(1, 1, 1));
  EXPECT_LT(Key(1, 1000000, 9), (OrderKey{1, absl::InfiniteFuture(), 1}));
}

TEST(OrderTreeTest, AnEmptyTreeHasNothing) {
  const OrderTree tree;
  EXPECT_TRUE(tree.empty());
  EXPECT_EQ(Sum(tree.total()), Sum(OrderWeight()));
  EXPECT_EQ(tree.First(), nullptr);
  EXPECT_EQ(tree.After(Key(0, 0, 0)), nullptr);
  EXPECT_EQ(Sum(tree.Before(Key(0, 0, 0))), Sum(OrderWeight()));
}

TEST(OrderTreeTest, WalksInTheOrderOfTheKeys) {
  std::vector<OrderNode> nodes(3);
  nodes[0].key = Key(2, 1, 0);
  nodes[1].key = Key(1, 5, 1);
  nodes[2].key = Key(1, 4, 2);
  OrderTree tree;
  for (OrderNode& node : nodes) tree.Insert(&node);
  EXPECT_EQ(tree.First(), &nodes[2]);
  EXPECT_EQ(tree.After(nodes[2].key), &nodes[1]);
  EXPECT_EQ(tree.After(nodes[1].key), &nodes[0]);
  EXPECT_EQ(tree.After(nodes[0].key), nullptr);
  tree.Erase(&nodes[1]);
  EXPECT_EQ(tree.After(nodes[2].key), &nodes[0]);
  EXPECT_EQ(tree.After(nodes[1].key), &nodes[0]);  // also of a key that is not in the tree
}

// Random steps against a sorted list.
void AgreesWithASortedList(uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("SRU_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  const auto below = [&random](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  OrderTree tree;
  std::vector<std::unique_ptr<OrderNode>> list;  // sorted by key
  const auto place = [&list](const OrderKey& key) {
    return std::lower_bound(list.begin(), list.end(), key,
                            [](const auto& node, const OrderKey& k) { return node->key < k; });
  };
  for (uint64_t step = 0; step < 3000; ++step) {
    const bool grow = step % 1000 < 600;  // the tree fills and empties
    const int64_t what = below(10);
    if (list.empty() || what < (grow ? 6 : 3)) {
      auto node = std::make_unique<OrderNode>();
      node->key = Key(below(4), below(6), step);
      node->weight = {1 + below(100), 1 + below(5)};
      tree.Insert(node.get());
      list.insert(place(node->key), std::move(node));
    } else if (what < 8) {
      const auto victim = list.begin() + below(static_cast<int64_t>(list.size()));
      tree.Erase(victim->get());
      list.erase(victim);
    } else {
      OrderNode& node = *list[below(static_cast<int64_t>(list.size()))];
      const OrderWeight before = node.weight;
      const OrderWeight less{below(node.weight.tokens + 1), below(node.weight.sequences + 1)};
      tree.Reduce(&node, less);
      EXPECT_EQ(node.weight.tokens, before.tokens - less.tokens);
      EXPECT_EQ(node.weight.sequences, before.sequences - less.sequences);
    }

    OrderWeight total;
    for (const auto& node : list) total += node->weight;
    ASSERT_EQ(Sum(tree.total()), Sum(total)) << "step " << step;
    ASSERT_EQ(tree.empty(), list.empty());
    ASSERT_EQ(tree.First(), list.empty() ? nullptr : list.front().get());
    const OrderKey key = Key(below(5), below(7), random() % (step + 2));
    const auto at = place(key);
    OrderWeight before;
    for (auto it = list.begin(); it != at; ++it) before += (*it)->weight;
    ASSERT_EQ(Sum(tree.Before(key)), Sum(before)) << "step " << step;
    const auto after =
        at != list.end() && !(key < (*at)->key) ? std::next(at) : at;  // greater, not equal
    ASSERT_EQ(tree.After(key), after == list.end() ? nullptr : after->get()) << "step " << step;
  }
}

TEST(OrderTreeTest, AgreesWithASortedList) {
  const char* const seed = std::getenv("SRU_TEST_SEED");
  if (seed != nullptr) return AgreesWithASortedList(std::strtoull(seed, nullptr, 10));
  for (uint64_t i = 1; i <= 20; ++i) AgreesWithASortedList(i);
}

// Arrivals come with rising numbers, which would make an unbalanced tree a list.
TEST(OrderTreeTest, RisingKeysDoNotMakeItDeep) {
  constexpr int kNodes = 1 << 14;
  std::vector<OrderNode> nodes(kNodes);
  OrderTree tree;
  for (int i = 0; i < kNodes; ++i) {
    nodes[i].key = Key(0, 0, i);
    nodes[i].weight = {1, 1};
    tree.Insert(&nodes[i]);
  }
  // A node's subtree has all that hangs below it, so that the depth can be counted from the sums.
  const OrderNode* root = nullptr;
  for (const OrderNode& node : nodes) {
    if (node.sum.sequences == kNodes) root = &node;
  }
  ASSERT_NE(root, nullptr);
  int depth = 0;
  std::vector<const OrderNode*> level = {root};
  while (!level.empty()) {
    ++depth;
    std::vector<const OrderNode*> next;
    for (const OrderNode* node : level) {
      if (node->left != nullptr) next.push_back(node->left);
      if (node->right != nullptr) next.push_back(node->right);
    }
    level = std::move(next);
  }
  EXPECT_LE(depth, 60);  // 15 at best; a treap of this size is deeper than 60 next to never
}

}  // namespace
}  // namespace sru::server::batching
