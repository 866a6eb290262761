#include "server/open_inference/message_bytes.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sru::server::open_inference {
namespace {

grpc::ByteBuffer Buffer(const std::vector<std::string>& parts) {
  std::vector<grpc::Slice> slices(parts.begin(), parts.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(MessageBytesTest, OnePieceIsNotCopied) {
  rpc::ByteBudget budget(10);
  MessageBytes bytes(&budget);
  const std::string text(1000, 'x');
  const grpc::ByteBuffer buffer = Buffer({text});
  ASSERT_TRUE(bytes.Read(buffer));
  EXPECT_EQ(bytes.view(), text);
  EXPECT_EQ(budget.used(), 0);
}

TEST(MessageBytesTest, SeveralPiecesTakeMemoryOfTheBudget) {
  rpc::ByteBudget budget(400);
  MessageBytes bytes(&budget);
  // gRPC joins small pieces by itself.
  const std::vector<std::string> parts = {std::string(100, 'x'), std::string(90, 'y'),
                                          std::string(80, 'z')};
  const grpc::ByteBuffer buffer = Buffer(parts);
  ASSERT_TRUE(bytes.Read(buffer));
  EXPECT_EQ(bytes.view(), parts[0] + parts[1] + parts[2]);
  EXPECT_EQ(bytes.copied_bytes(), 270);
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
  rpc::ByteBudget budget(0);
  MessageBytes bytes(&budget);
  ASSERT_TRUE(bytes.Read(grpc::ByteBuffer()));
  EXPECT_EQ(bytes.view(), "");
}

}  // namespace
}  // namespace sru::server::open_inference
