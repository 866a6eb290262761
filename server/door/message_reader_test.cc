#include "server/door/message_reader.h"

#include <zlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::door {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kMost = 1 << 20;

std::string Framed(absl::string_view body, char packed = 0) {
  std::string bytes(1, packed);
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>(body.size() >> shift));
  return absl::StrCat(bytes, body);
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

class MessageReaderTest : public ::testing::Test {
 protected:
  // Gives the bytes in pieces, and returns how that ends; messages go to `messages_`.
  absl::Status Read(MessageReader* reader, absl::string_view bytes, size_t piece) {
    while (!bytes.empty()) {
      absl::string_view some = bytes.substr(0, piece);
      bytes.remove_prefix(some.size());
      while (!some.empty()) {
        size_t taken = 0;
        if (absl::Status status = reader->Take(some, &taken); !status.ok()) return status;
        EXPECT_GT(taken, 0U);
        some.remove_prefix(taken);
        if (reader->has_message()) messages_.emplace_back(reader->TakeMessage());
      }
    }
    return absl::OkStatus();
  }
  void TearDown() override { EXPECT_EQ(memory_.used(), 0); }

  MemoryCount memory_{1 << 20};
  std::vector<std::string> messages_;
};

TEST_F(MessageReaderTest, MessagesDoNotDependOnPieces) {
  const std::string large(10000, 'l');
  for (const size_t piece : {1, 2, 5, 6, 7, 100, 4096, 100000}) {
    messages_.clear();
    MessageReader reader(kMost, &memory_);
    const std::string bytes = Framed("") + Framed("a") + Framed(large) + Framed("") + Framed("bc");
    EXPECT_TRUE(Read(&reader, bytes, piece).ok());
    EXPECT_THAT(messages_, ElementsAre("", "a", large, "", "bc")) << piece;
    EXPECT_FALSE(reader.in_message());
  }
}

TEST_F(MessageReaderTest, PackedMessagesAreUnpackedWhileTheyArrive) {
  std::string text;
  for (int i = 0; i < 30000; ++i) absl::StrAppend(&text, i, " ");
  for (const size_t piece : {1, 7, 1000, 1 << 20}) {
    messages_.clear();
    MessageReader reader(kMost, &memory_);
    reader.set_encoding(Encoding::kGzip);
    EXPECT_TRUE(
        Read(&reader, Framed(Gzip(text), 1) + Framed("b") + Framed(Gzip(""), 1), piece).ok());
    EXPECT_THAT(messages_, ElementsAre(text, "b", "")) << piece;
  }
}

TEST_F(MessageReaderTest, ABombStopsAtTheBound) {
  MessageReader reader(100000, &memory_);
  reader.set_encoding(Encoding::kGzip);
  const std::string bomb = Framed(Gzip(std::string(50 << 20, '\0')), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(Read(&reader, bomb, bomb.size())));
}

TEST_F(MessageReaderTest, WhatIsNoMessageIsRefused) {
  for (const std::string& wrong :
       {std::string("\2\0\0\0\0", 5), Framed("a", 1), Framed("not gzip", 1),
        Framed(Gzip("abc") + "more", 1), Framed(Gzip("abc").substr(0, 8), 1)}) {
    MessageReader reader(kMost, &memory_);
    if (wrong.size() > 7) reader.set_encoding(Encoding::kGzip);
    EXPECT_TRUE(absl::IsInternal(Read(&reader, wrong, 3))) << wrong.size();
  }
}

TEST_F(MessageReaderTest, WhatIsAnnouncedTakesNothingAndWhatArrivesIsBounded) {
  MessageReader reader(100 << 20, &memory_);
  std::string bytes = Framed(std::string(4 << 20, 'x'));
  EXPECT_TRUE(Read(&reader, bytes.substr(0, 5), 5).ok());
  EXPECT_EQ(memory_.used(), 0);
  EXPECT_EQ(reader.missing_bytes(), 4U << 20);
  const absl::Status status = Read(&reader, bytes.substr(5), 16384);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LE(memory_.used(), memory_.limit());
}

TEST_F(MessageReaderTest, WhatUnpacksTakesMemory) {
  const std::string begin = Framed(Gzip("abc"), 1).substr(0, 6);
  MessageReader reader(kMost, &memory_);
  reader.set_encoding(Encoding::kGzip);
  EXPECT_TRUE(Read(&reader, begin, begin.size()).ok());
  EXPECT_GE(memory_.used(), 40 << 10);
  MemoryCount little(10000);
  MessageReader other(kMost, &little);
  other.set_encoding(Encoding::kGzip);
  EXPECT_TRUE(absl::IsResourceExhausted(Read(&other, begin, begin.size())));
}

TEST_F(MessageReaderTest, TooLargeIsSaidBeforeItIsRead) {
  MessageReader reader(10, &memory_);
  const absl::Status status = Read(&reader, Framed(std::string(11, 'x')).substr(0, 5), 5);
  EXPECT_EQ(status, absl::ResourceExhaustedError("Received message larger than max (11 vs. 10)"));
}

}  // namespace
}  // namespace sru::server::door
