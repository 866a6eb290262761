#include "server/batching/prefix_cache.h"

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

using kernels::StateArena;
using ::testing::ElementsAre;
using Tokens = std::vector<int32_t>;

constexpr size_t kStateBytes = 2 * sizeof(float);
constexpr size_t kNoLimit = size_t{1} << 40;

class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest() {
    kernels::ArenaOptions options;
    options.budget_bytes = size_t{64} << 20;
    arena_ = std::make_shared<StateArena>(Fields(), std::vector<kernels::AxisId>{0}, options,
                                          kernels::HostArenaMemory());
    MakeCache(kNoLimit);
  }

  static std::vector<kernels::FieldSpec> Fields() { return {{"c", 2, false}}; }

  void MakeCache(size_t budget) {
    cache_ = std::make_unique<PrefixCache>(arena_, BytesOfState(Fields()), budget);
  }

  // A slot whose state says that it is after these tokens.
  StateArena::Slot SlotAfter(const Tokens& tokens) {
    StateArena::Slot slot = StateArena::kNoSlot;
    EXPECT_TRUE(arena_->Allocate(&slot).ok());
    EXPECT_TRUE(arena_->Put(slot, StateAfter(tokens)).ok());
    return slot;
  }

  static StateArena::State StateAfter(const Tokens& tokens) {
    StateArena::State state;
    state.rows = {1};
    float sum = 0;
    for (const int32_t token : tokens) sum = sum * 7 + static_cast<float>(token);
    state.values = {static_cast<float>(tokens.size()), sum};
    return state;
  }

  bool Insert(const Tokens& prefix) {
    const StateArena::Slot slot = SlotAfter(prefix);
    const bool kept = cache_->Insert("a", prefix, slot);
    arena_->Free(slot);
    return kept;
  }

  // Length and branch; the slot is that of the prefix, and freed.
  std::pair<size_t, size_t> Lookup(const Tokens& prompt) {
    const PrefixCache::Match match = cache_->Lookup("a", prompt);
    EXPECT_EQ(match.slot == StateArena::kNoSlot, match.length == 0);
    if (match.slot == StateArena::kNoSlot) return {match.length, match.branch};
    StateArena::State state;
    EXPECT_TRUE(arena_->Take(match.slot, &state).ok());
    EXPECT_EQ(state.values,
              StateAfter(Tokens(prompt.begin(), prompt.begin() + match.length)).values);
    arena_->Free(match.slot);
    return {match.length, match.branch};
  }

  std::shared_ptr<StateArena> arena_;
  std::unique_ptr<PrefixCache> cache_;
};

using Found = std::pair<size_t, size_t>;

TEST_F(PrefixCacheTest, FindsTheLongestKeptPrefix) {
  EXPECT_EQ(Lookup({1, 2, 3}), Found(0, 0));
  EXPECT_TRUE(Insert({1, 2, 3}));
  EXPECT_EQ(Lookup({1, 2, 3}), Found(3, 3));
  EXPECT_EQ(Lookup({1, 2, 3, 4}), Found(3, 3));
  EXPECT_TRUE(Insert({1}));
  EXPECT_EQ(Lookup({1, 2}), Found(1, 2));  // it ends within what is known
  EXPECT_EQ(Lookup({1, 2, 9}), Found(1, 2));
  EXPECT_EQ(Lookup({2, 1}), Found(0, 0));
  EXPECT_EQ(Lookup({}), Found(0, 0));
}

TEST_F(PrefixCacheTest, SaysWherePromptsPart) {
  EXPECT_TRUE(Insert({5, 6, 7, 1, 1}));
  // The same instructions, another question: nothing is kept where they part, but that is a place
  // to keep a state.
  EXPECT_EQ(Lookup({5, 6, 7, 2}), Found(0, 3));
  EXPECT_TRUE(Insert({5, 6, 7}));
  EXPECT_EQ(Lookup({5, 6, 7, 3, 3}), Found(3, 3));
  EXPECT_EQ(Lookup({5, 6, 7, 1, 2}), Found(3, 4));
}

// Neither what is found nor where prompts part tells an owner of another's prompts.
TEST_F(PrefixCacheTest, OwnersFindOnlyTheirOwn) {
  const StateArena::Slot slot = SlotAfter({1, 2, 3});
  EXPECT_TRUE(cache_->Insert("a", Tokens{1, 2, 3}, slot));
  const PrefixCache::Match none = cache_->Lookup("b", Tokens{1, 2, 3});
  EXPECT_EQ(none.length, 0u);
  EXPECT_EQ(none.branch, 0u);
  EXPECT_TRUE(cache_->Insert("b", Tokens{1, 2}, slot));
  EXPECT_EQ(cache_->stats().states, 2);
  for (const auto& [owner, length] : {std::pair{"a", 3u}, std::pair{"b", 2u}}) {
    const PrefixCache::Match match = cache_->Lookup(owner, Tokens{1, 2, 3, 4});
    EXPECT_EQ(match.length, length) << owner;
    EXPECT_EQ(match.branch, length) << owner;
    arena_->Free(match.slot);
  }
  arena_->Free(slot);
  // The least used one goes, whosever it is, and an owner's last one takes its tree with it.
  EXPECT_TRUE(cache_->Evict(1));
  EXPECT_EQ(cache_->Lookup("a", Tokens{1, 2, 3}).length, 0u);
  EXPECT_TRUE(cache_->Evict(1));
  EXPECT_EQ(cache_->Lookup("b", Tokens{1, 2}).length, 0u);
  EXPECT_EQ(cache_->stats().bytes, 0);
  Insert({1, 2});
  EXPECT_EQ(cache_->stats().states, 1);
}

TEST_F(PrefixCacheTest, CountsWhatItFinds) {
  Insert({1, 2});
  Lookup({1, 2, 3});
  Lookup({1});
  Lookup({1, 2});
  const PrefixCache::Stats stats = cache_->stats();
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.hit_tokens, 4);
  EXPECT_EQ(stats.states, 1);
  EXPECT_GE(stats.bytes, static_cast<int64_t>(kStateBytes + 2 * sizeof(int32_t)));
  EXPECT_EQ(stats.evictions, 0);
}

TEST_F(PrefixCacheTest, GivesUpWhatHasNotBeenUsedForLongest) {
  Insert({1, 1});
  Insert({2, 2});
  Insert({3, 3});
  Lookup({1, 1});
  Insert({2, 2});  // is there already: counts as used
  EXPECT_EQ(cache_->stats().states, 3);
  EXPECT_TRUE(cache_->Evict(1));
  EXPECT_EQ(Lookup({3, 3}), Found(0, 0));
  EXPECT_TRUE(cache_->Evict(1));
  EXPECT_EQ(Lookup({1, 1}), Found(0, 0));
  EXPECT_EQ(Lookup({2, 2}), Found(2, 2));
  EXPECT_TRUE(cache_->Evict(1));
  EXPECT_FALSE(cache_->Evict(1));
  EXPECT_EQ(cache_->stats().evictions, 3);
  EXPECT_EQ(cache_->stats().bytes, 0);
}

TEST_F(PrefixCacheTest, StaysWithinItsBudget) {
  Insert({1, 2, 3, 4});
  const auto one = static_cast<size_t>(cache_->stats().bytes);
  MakeCache(2 * one);
  EXPECT_TRUE(Insert({1, 2, 3, 4}));
  EXPECT_TRUE(Insert({2, 2, 3, 4}));
  EXPECT_EQ(cache_->stats().evictions, 0);
  EXPECT_TRUE(Insert({3, 2, 3, 4}));
  EXPECT_EQ(cache_->stats().evictions, 1);
  EXPECT_LE(cache_->stats().bytes, static_cast<int64_t>(2 * one));
  EXPECT_EQ(Lookup({1, 2, 3, 4}), Found(0, 0));
  EXPECT_EQ(Lookup({3, 2, 3, 4}), Found(4, 4));
  // One that does not fit at all leaves the others alone.
  EXPECT_FALSE(Insert(Tokens(2 * one, 7)));
  EXPECT_EQ(Lookup({3, 2, 3, 4}), Found(4, 4));
  MakeCache(0);
  EXPECT_FALSE(Insert({1}));
  EXPECT_FALSE(Insert({}));
}

TEST_F(PrefixCacheTest, AMatchIsTheCallersWhateverHappensToTheCache) {
  Insert({1, 2});
  const PrefixCache::Match match = cache_->Lookup("a", Tokens{1, 2});
  cache_ = nullptr;
  StateArena::State state;
  ASSERT_TRUE(arena_->Take(match.slot, &state).ok());
  EXPECT_EQ(state.values, StateAfter({1, 2}).values);
  EXPECT_EQ(arena_->stats().slots, 1);
  arena_->Free(match.slot);
}

TEST_F(PrefixCacheTest, KeepsNoSlotThatIsNotThere) {
  EXPECT_FALSE(cache_->Insert("a", Tokens{1, 2}, 12345));
  EXPECT_EQ(cache_->stats().states, 0);
  EXPECT_EQ(cache_->stats().bytes, 0);
}

// A chain of states, one after each token of a long prompt: no function recurses along it.
TEST_F(PrefixCacheTest, TakesADeepTree) {
  constexpr int kTokens = 20000;
  const StateArena::Slot slot = SlotAfter({1});
  const Tokens prompt(kTokens, 1);
  for (int length = kTokens; length > 0; --length) {
    ASSERT_TRUE(cache_->Insert("a", absl::MakeConstSpan(prompt).subspan(0, length), slot));
  }
  arena_->Free(slot);
  EXPECT_EQ(cache_->stats().states, kTokens);
  for (int i = 0; i < kTokens / 2; ++i) ASSERT_TRUE(cache_->Evict(1));
  const PrefixCache::Match match = cache_->Lookup("a", prompt);
  EXPECT_EQ(match.length, static_cast<size_t>(kTokens / 2));  // the longest went first
  arena_->Free(match.slot);
  cache_ = nullptr;
  EXPECT_EQ(arena_->stats().slots, 0);
}

// The definition: kept prefixes in the order of their use.
class PlainCache {
 public:
  Found Lookup(const Tokens& prompt) {
    size_t branch = 0;
    const Tokens* best = nullptr;
    for (const Tokens& prefix : order_) {
      const size_t size = std::min(prefix.size(), prompt.size());
      const auto common = static_cast<size_t>(
          std::mismatch(prefix.begin(), prefix.begin() + size, prompt.begin()).first -
          prefix.begin());
      branch = std::max(branch, common);
      if (common == prefix.size() && (best == nullptr || best->size() < prefix.size())) {
        best = &prefix;
      }
    }
    if (best == nullptr) return {0, branch};
    const Tokens used = *best;
    Use(used);
    return {used.size(), branch};
  }
  void Use(const Tokens& prefix) {
    order_.remove(prefix);
    order_.push_front(prefix);
  }
  bool EvictOne() {
    if (order_.empty()) return false;
    order_.pop_back();
    return true;
  }
  size_t size() const { return order_.size(); }

 private:
  std::list<Tokens> order_;
};

TEST_F(PrefixCacheTest, AgreesWithAPlainList) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int letters = 1 + static_cast<int>(seed % 3);
    const auto some = [&](size_t least) {
      Tokens tokens(least + random() % 12);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % letters);
      return tokens;
    };
    MakeCache(kNoLimit);
    PlainCache plain;
    for (int step = 0; step < 1500; ++step) {
      const unsigned what = random() % 10;
      if (what < 4) {
        const Tokens prompt = some(0);
        ASSERT_EQ(Lookup(prompt), plain.Lookup(prompt)) << "seed " << seed << " step " << step;
      } else if (what < 7) {
        const Tokens prefix = some(1);
        ASSERT_TRUE(Insert(prefix));
        plain.Use(prefix);
      } else {
        ASSERT_EQ(cache_->Evict(1), plain.EvictOne());
      }
      ASSERT_EQ(cache_->stats().states, static_cast<int64_t>(plain.size()));
      ASSERT_EQ(arena_->stats().slots, static_cast<int64_t>(plain.size())) << "a slot is lost";
    }
    while (cache_->Evict(1)) {
    }
    ASSERT_EQ(cache_->stats().bytes, 0) << "the tree keeps nodes that nothing needs";
  }
}

TEST_F(PrefixCacheTest, ThreadsShareIt) {
  Insert({1, 2, 3, 4});
  MakeCache(20 * static_cast<size_t>(cache_->stats().bytes));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937 random(seed);
      for (int step = 0; step < 2000; ++step) {
        Tokens tokens(1 + random() % 6);
        for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 3);
        switch (random() % 4) {
          case 0:
            Insert(tokens);
            break;
          case 1:
            cache_->Evict(1);
            break;
          default:
            Lookup(tokens);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const PrefixCache::Stats stats = cache_->stats();
  EXPECT_EQ(arena_->stats().slots, stats.states);
  EXPECT_GT(stats.hits, 0);
  EXPECT_GT(stats.evictions, 0);
}

}  // namespace
}  // namespace sru::server::batching
