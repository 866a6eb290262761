#include "base/wire_reader.h"

#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace sru {
namespace {

using std::string_literals::operator""s;

// Pieces of `size` bytes.
class Pieces final : public WirePieces {
 public:
  Pieces(absl::string_view bytes, size_t size) : rest_(bytes), size_(size) {}
  absl::string_view Next() override {
    const absl::string_view piece = rest_.substr(0, size_);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  absl::string_view rest_;
  const size_t size_;
};

// Whether the bytes are a message, which must not depend on the pieces that they come in.
bool IsMessage(const std::string& bytes) {
  WireReader reader(bytes);
  while (reader.Next()) reader.Skip();
  for (const size_t size : {size_t{1}, size_t{3}}) {
    Pieces pieces(bytes, size);
    WireReader in_pieces(&pieces, bytes.size());
    while (in_pieces.Next()) in_pieces.Skip();
    EXPECT_EQ(in_pieces.ok(), reader.ok()) << size;
    EXPECT_EQ(in_pieces.skipped(), reader.skipped()) << size;
  }
  return reader.ok();
}

TEST(WireReaderTest, ReadsEachKind) {
  const std::string bytes =
      "\x08\xac\x02\x12\x03"
      "abc\x1d\x00\x00\x80\x3f\x21\x00\x00\x00\x00\x00\x00\x00\xc0"s;
  WireReader reader(bytes);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.tag(), WireTag(1, kWireVarint));
  EXPECT_EQ(reader.field(), 1);
  EXPECT_EQ(reader.Varint(), 300);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.kind(), kWireBytes);
  EXPECT_EQ(reader.Bytes(), "abc");
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Float(), 1.0f);
  EXPECT_EQ(reader.left(), 9);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Double(), -2.0);
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.at_end());
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.skipped(), 0);
}

TEST(WireReaderTest, EveryPrefixThatCutsAFieldIsRefused) {
  const std::string bytes =
      "\x08\xac\x02\x12\x01z\x1d\x00\x00\x80\x3f\x21\x00\x00\x00\x00\x00\x00\x00\xc0"s;
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const bool whole = size == 0 || size == 3 || size == 6 || size == 11 || size == bytes.size();
    EXPECT_EQ(IsMessage(bytes.substr(0, size)), whole) << size;
  }
}

TEST(WireReaderTest, VarintsAndTagsAreAsLongAsProtobufAllows) {
  const std::string nine(9, '\xff');
  EXPECT_TRUE(IsMessage("\x08" + nine + "\x01"));
  EXPECT_FALSE(IsMessage("\x08" + nine + "\xff\x01"));
  EXPECT_TRUE(IsMessage("\x88\x80\x80\x80\x70\x01"s));  // field 1: the upper bits are lost
  EXPECT_FALSE(IsMessage("\x88\x80\x80\x80\x80\x01\x01"s));
  EXPECT_FALSE(IsMessage("\x00\x01"s));  // field 0
  EXPECT_FALSE(IsMessage("\x0e\x01"));   // kind 6
  EXPECT_FALSE(IsMessage("\x12" + nine + "\x01"));
  EXPECT_FALSE(IsMessage("\x12\x02z"));
}

TEST(WireReaderTest, GroupsEndAndAreCounted) {
  const std::string group = "\x0b\x10\x01\x13\x14\x0c"s;  // 1 { 2: 1 2 {} }
  WireReader reader(group);
  ASSERT_TRUE(reader.Next());
  reader.Skip();
  EXPECT_TRUE(reader.ok() && reader.at_end());
  EXPECT_EQ(reader.skipped(), 3);
  EXPECT_FALSE(IsMessage("\x0b"));      // has no end
  EXPECT_FALSE(IsMessage("\x0b\x14"));  // another's end
  EXPECT_FALSE(IsMessage("\x0c"));      // an end only
  const auto nested = [](size_t depth) {
    return std::string(depth, '\x0b') + std::string(depth, '\x0c');
  };
  EXPECT_TRUE(IsMessage(nested(100)));
  EXPECT_FALSE(IsMessage(nested(101)));
}

TEST(WireReaderTest, EntersMessagesInPieces) {
  const std::string bytes = "\x0a\x07\x12\x03xyz\x18\x05\x10\x01"s;  // 1 { 2: "xyz" 3: 5 } 2: 1
  for (const size_t size : {size_t{1}, size_t{4}, bytes.size()}) {
    Pieces pieces(bytes, size);
    WireReader reader(&pieces, bytes.size());
    ASSERT_TRUE(reader.Next());
    const size_t outer = reader.Enter();
    ASSERT_TRUE(reader.Next());
    std::string text;
    reader.Pass(reader.Varint(), &text);
    EXPECT_EQ(text, "xyz");
    ASSERT_TRUE(reader.Next());
    EXPECT_EQ(reader.Varint(), 5);
    EXPECT_FALSE(reader.Next());
    reader.Leave(outer);
    ASSERT_TRUE(reader.Next());
    EXPECT_EQ(reader.Varint(), 1);
    EXPECT_FALSE(reader.Next());
    EXPECT_TRUE(reader.ok()) << size;
  }
  WireReader beyond("\x0a\x05\x08\x01");
  ASSERT_TRUE(beyond.Next());
  beyond.Enter();
  EXPECT_FALSE(beyond.ok());
}

// The inner message must end where its length says, whatever follows.
TEST(WireReaderTest, AFieldDoesNotReachBeyondItsMessage) {
  WireReader reader("\x0a\x01\x08\x01\x01");
  ASSERT_TRUE(reader.Next());
  reader.Enter();
  ASSERT_TRUE(reader.Next());
  reader.Varint();
  EXPECT_FALSE(reader.ok());
}

TEST(WireReaderTest, AMessageWithFewerPiecesThanItsSizeIsRefused) {
  Pieces pieces("\x08", 1);
  WireReader reader(&pieces, 2);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Varint(), 0);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace sru
