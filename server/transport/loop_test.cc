#include "server/transport/loop.h"

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

TEST(LoopTest, FewConnectionsOfAnAddressWait) {
  LoopSet loops(1, 0);
  Loop& loop = *loops.loops()[0];
  const AddressKey many{1};
  const AddressKey few{2};
  std::map<AddressKey, size_t> begun;
  size_t refused = 0;
  loops.RunOnEach([&](size_t /*i*/) {
    const auto take = [&](const AddressKey& address) {
      loop.TakeIn(
          AcceptedSocket(-1, "peer", address),
          [&begun](const AcceptedSocket& socket) { ++begun[socket.key()]; },
          [&refused] { ++refused; });
    };
    for (size_t i = 0; i < Loop::kMostWaiting + 5; ++i) take(many);
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

}  // namespace
}  // namespace sru::server::transport
