#include "server/transport/loop.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

TEST(LoopTest, AddressesTakeTurns) {
  LoopSet loops(1, 0, nullptr);
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

}  // namespace
}  // namespace sru::server::transport
