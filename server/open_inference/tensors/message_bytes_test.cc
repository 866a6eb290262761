#include "server/open_inference/tensors/message_bytes.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sru::server::open_inference {
namespace {

absl::Cord Buffer(const std::vector<std::string>& parts) {
  absl::Cord cord;
  for (const std::string& part : parts) {
    const auto owned = std::make_shared<const std::string>(part);
    cord.Append(absl::MakeCordFromExternal(*owned, [owned] {}));
  }
  return cord;
}

TEST(MessageBytesTest, OnePieceIsNotCopied) {
  calls::ByteBudget budget(10);
  MessageBytes bytes(&budget);
  const std::string text(1000, 'x');
  const absl::Cord buffer = Buffer({text});
  ASSERT_TRUE(bytes.Read(buffer));
  EXPECT_EQ(bytes.view(), text);
  EXPECT_EQ(budget.used(), 0);
}

TEST(MessageBytesTest, SeveralPiecesTakeMemoryOfTheBudget) {
  calls::ByteBudget budget(400);
  MessageBytes bytes(&budget);
  // gRPC joins small pieces by itself.
  const std::vector<std::string> parts = {std::string(100, 'x'), std::string(90, 'y'),
                                          std::string(80, 'z')};
  const absl::Cord buffer = Buffer(parts);
  ASSERT_TRUE(bytes.Read(buffer));
  EXPECT_EQ(bytes.view(), parts[0] + parts[1] + parts[2]);
  EXPECT_EQ(budget.used(), 270);
  MessageBytes others(&budget);
  EXPECT_FALSE(others.Read(buffer));
  EXPECT_EQ(budget.used(), 270);
  bytes.Release();
  EXPECT_EQ(bytes.view(), "");
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(others.Read(buffer));
}

TEST(MessageBytesTest, NoBytes) {
  calls::ByteBudget budget(0);
  MessageBytes bytes(&budget);
  ASSERT_TRUE(bytes.Read(absl::Cord()));
  EXPECT_EQ(bytes.view(), "");
}

}  // namespace
}  // namespace sru::server::open_inference
