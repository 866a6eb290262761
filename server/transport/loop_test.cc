#include "server/transport/loop.h"

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

TEST(LoopTest, AddressesTakeTurns) {
  LoopSet loops(1, 0);
  Loop& loop = *loops.loops()[0];
  const AddressKey many{1};
  const AddressKey few{2};
  std::string order;
  loops.RunOnEach([&](size_t /*i*/) {
    const auto add = [&](const AddressKey& address, char name) {
      loop.RunInTurn(address, [&order, name] { order += name; });
    };
    for (int i = 0; i < 4; ++i) add(many, 'm');
    add(few, 'f');
    EXPECT_EQ(loop.NumWaiting(many), 4U);
    EXPECT_EQ(order, "");
    loop.RunInTurn(few, [&, add] { add(few, 'g'); });
  });
  size_t waiting = 1;
  while (waiting > 0) {
    loops.RunOnEach([&](size_t /*i*/) { waiting = loop.NumWaiting(many) + loop.NumWaiting(few); });
  }
  EXPECT_EQ(order, "mfmmgm");
}

// Else one that becomes readable meanwhile, of somebody else, is seen only when all others have
// been read.
TEST(LoopTest, ReadableConnectionsAreReadAtOnceUntilThatTakesLong) {
  LoopSet loops(1, 0);
  Loop& loop = *loops.loops()[0];
  const AddressKey one{1};
  const AddressKey other{2};
  loops.RunOnEach([&](size_t /*i*/) {
    EXPECT_TRUE(loop.MayReadNow(one));
    const SteadyTime start = ClockNow();
    while (ClockNow() - start < std::chrono::milliseconds(1)) loop.MayReadNow(one);
    EXPECT_FALSE(loop.MayReadNow(one));
    EXPECT_FALSE(loop.MayReadNow(other));
  });
  // The loop has looked again before the second turn after that.
  loops.RunOnEach([](size_t /*i*/) {});
  loops.RunOnEach([&](size_t /*i*/) {
    EXPECT_TRUE(loop.MayReadNow(one));
    loop.RunInTurn(one, [] {});
    EXPECT_FALSE(loop.MayReadNow(one));
    EXPECT_TRUE(loop.MayReadNow(other)) << "it would be the next one";
  });
}

TEST(LoopTest, FewConnectionsOfAnAddressWait) {
  LoopSet loops(1, 0);
  Loop& loop = *loops.loops()[0];
  const AddressKey many{1};
  const AddressKey few{2};
  std::map<AddressKey, size_t> begun;
  size_t refused = 0;
  constexpr size_t kAll = Loop::kMostWaiting + 5 + 1;
  // Nobody begins before all have come: the loop takes them in over several turns.
  std::function<void(const AddressKey&)> begin = [&](const AddressKey& address) {
    const size_t come =
        refused + begun[many] + begun[few] + loop.NumWaiting(many) + loop.NumWaiting(few) + 1;
    if (come == kAll) {
      ++begun[address];
    } else {
      loop.RunInTurn(address, [&begin, address] { begin(address); });
    }
  };
  loops.RunOnEach([&](size_t /*i*/) {
    const auto take = [&](const AddressKey& address) {
      loop.TakeIn(
          AcceptedSocket(-1, "peer", address),
          [&begin](const AcceptedSocket& socket) { begin(socket.key()); },
          [&refused](const std::string& peer) { refused += peer == "peer" ? 1 : 0; });
    };
    for (size_t i = 0; i < kAll - 1; ++i) take(many);
    take(few);
  });
  size_t waiting = 1;
  while (waiting > 0) {
    loops.RunOnEach([&](size_t /*i*/) { waiting = loop.NumWaiting(many) + loop.NumWaiting(few); });
  }
  EXPECT_EQ(begun[many], Loop::kMostWaiting);
  EXPECT_EQ(begun[few], 1U);
  EXPECT_EQ(refused, 5U);
}

// As the parts of an answer do that are taken at once.
TEST(LoopTest, WorkThatHandsOverMoreOfItselfDoesNotHoldTheLoop) {
  LoopSet loops(1, 0);
  Loop& loop = *loops.loops()[0];
  class Endless final : public LoopWork {
   public:
    explicit Endless(Loop* loop) : loop_(*loop) {}
    void RunOnLoop() override {
      ++runs_;
      if (!ended_) loop_.Wake(this);
    }
    void End() { ended_ = true; }
    int runs() const { return runs_; }

   private:
    Loop& loop_;
    int runs_ = 0;
    bool ended_ = false;
  };
  Endless work(&loop);
  loop.Wake(&work);
  int runs = 0;
  for (int i = 0; i < 10; ++i) {
    loops.RunOnEach([&](size_t /*i*/) {
      EXPECT_GE(work.runs(), runs);
      runs = work.runs();
    });
  }
  EXPECT_GT(runs, 0);
  loops.RunOnEach([&](size_t /*i*/) { work.End(); });
  loops.RunOnEach([](size_t /*i*/) {});
}

}  // namespace
}  // namespace sru::server::transport
