#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ByteTokenizerTest, IdsAreIndices) {
  const auto tokenizer = MakeByteTokenizer({0, 'a', 'b', 0xc3, 0xff});
  EXPECT_EQ(tokenizer->size(), 5);
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(std::string("b\0a", 3)), ElementsAre(2, 0, 1));
  EXPECT_THAT(*tokenizer->Encode("\xff\xc3"), ElementsAre(4, 3));  // no UTF-8
  EXPECT_THAT(*tokenizer->Encode("abab", 2), ElementsAre(1, 2));
  EXPECT_THAT(*tokenizer->Encode("abab", 0), IsEmpty());
}

TEST(ByteTokenizerTest, NamesAByteThatItLacks) {
  const auto tokenizer = MakeByteTokenizer({'a', 'b'});
  const absl::Status status = tokenizer->Encode("ab\xe4").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 2 of the text is 228 (<0xE4>)"));
  // It is not read: the tokens before it are enough.
  EXPECT_THAT(*tokenizer->Encode("ab\xe4", 2), ElementsAre(0, 1));
}

TEST(ByteTokenizerTest, LooksUpSingleBytes) {
  const auto tokenizer = MakeByteTokenizer({'a', 0xe4});
  EXPECT_EQ(tokenizer->Lookup("a"), 0);
  EXPECT_EQ(tokenizer->Lookup("\xe4"), 1);
  EXPECT_EQ(tokenizer->Lookup("b"), Tokenizer::kNotFound);
  EXPECT_EQ(tokenizer->Lookup(""), Tokenizer::kNotFound);
  EXPECT_EQ(tokenizer->Lookup("aa"), Tokenizer::kNotFound);
}

TEST(ByteTokenizerTest, GivesBytesBack) {
  std::vector<uint8_t> all(256);
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    all[byte] = static_cast<uint8_t>(byte);
    text += static_cast<char>(255 - byte);
  }
  const auto tokenizer = MakeByteTokenizer(all);
  ASSERT_NE(tokenizer->detokenizer(), nullptr);
  EXPECT_EQ(tokenizer->detokenizer()->Decode(*tokenizer->Encode(text)), text);
  EXPECT_EQ(tokenizer->TokenName('x'), "x");
  EXPECT_EQ(tokenizer->TokenName(0x0a), "\n");
  EXPECT_EQ(tokenizer->TokenName(0xe4), "<0xE4>");
}

}  // namespace
}  // namespace sru::models
