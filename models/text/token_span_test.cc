// Where tokens stand in a text, and what becomes of those that a vocabulary lacks.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/text/tokenizers.h"
#include "tests/testing/sentencepiece_file.h"

namespace sru::models {
namespace {

using sru::testing::SentencePieceFile;
using sru::testing::SmallSentencePieceFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Vocabulary> Words(const std::vector<std::string>& words) {
  auto vocabulary =
      Vocabulary::Parse(absl::StrJoin(words, "\n"), static_cast<int>(words.size()), "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return *std::move(vocabulary);
}

EncodedText Encode(const Tokenizer& tokenizer, const std::string& text, UnknownUse unknown,
                   size_t max_tokens = Tokenizer::kNoLimit) {
  EncodeOptions options;
  options.unknown = unknown;
  options.max_tokens = max_tokens;
  options.spans = true;
  auto encoded = tokenizer.Encode(text, options);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  if (!encoded.ok()) return {};
  EXPECT_EQ(encoded->ids.size(), encoded->spans.size());
  options.spans = false;
  EXPECT_EQ(tokenizer.Encode(text, options)->ids, encoded->ids) << "without places";
  return *std::move(encoded);
}

// "begin_byte-end_byte/begin_char-end_char" of each token.
std::vector<std::string> Spans(const Tokenizer& tokenizer, const std::string& text,
                               size_t max_tokens = Tokenizer::kNoLimit) {
  std::vector<std::string> spans;
  for (const TextSpan& span : Encode(tokenizer, text, UnknownUse::kDefault, max_tokens).spans) {
    spans.push_back(absl::StrCat(span.begin_byte, "-", span.end_byte, "/", span.begin_char, "-",
                                 span.end_char));
  }
  return spans;
}

std::string Error(const Tokenizer& tokenizer, const std::string& text, UnknownUse unknown) {
  EncodeOptions options;
  options.unknown = unknown;
  const absl::Status status = tokenizer.Encode(text, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::unique_ptr<Tokenizer> Preprocessed(TokenizerType type, bool lowercase = false) {
  return MakeWordTokenizer({type, lowercase}, Words({"<unk>", "a"}), 0);
}

std::unique_ptr<Tokenizer> AsciiBytes() {
  std::vector<uint8_t> bytes;
  for (int byte = 32; byte < 127; ++byte) bytes.push_back(static_cast<uint8_t>(byte));
  return MakeByteTokenizer(bytes);
}

TEST(TokenSpanTest, WordsBetweenWhiteSpace) {
  const auto words = Preprocessed(TokenizerType::kWhitespace);
  // Several spaces, a tab, CRLF, an ideographic space, e with a combining accent, an emoji.
  EXPECT_THAT(Spans(*words, "  a \t bc\r\n\u3000e\u0301x \U0001f600"),
              ElementsAre("2-3/2-3", "6-8/6-8", "13-17/11-14", "18-22/15-16"));
  EXPECT_THAT(Spans(*words, "a b c", 2), ElementsAre("0-1/0-1", "2-3/2-3"));
  EXPECT_THAT(Spans(*words, " \n"), ElementsAre());
}

TEST(TokenSpanTest, PlacesAreThoseBeforeWordsAreLowered) {
  // U+0130 and U+212A (Kelvin) are two and three bytes and become "i" and "k".
  EXPECT_THAT(Spans(*Preprocessed(TokenizerType::kLowercase), "\u0130\u212a A \u0130"),
              ElementsAre("0-5/0-2", "6-7/3-4", "8-10/5-6"));
  const auto unicode = MakeUnicodeWordTokenizer(Words({"<unk>", "a"}), 0, /*lowercase=*/true);
  EXPECT_THAT(Spans(*unicode, "\u0130\u212a,\r\nA"), ElementsAre("0-5/0-2", "5-6/2-3", "8-9/5-6"));
  EXPECT_EQ(unicode->Encode("A b")->at(0), 1);
}

TEST(TokenSpanTest, SentencesThatAreCleaned) {
  const auto words = Preprocessed(TokenizerType::kSentenceClassification, true);
  // Cut at n't and before the question mark; what is no letter separates.
  EXPECT_THAT(Spans(*words, "\u00e9 Don't  A?"),
              ElementsAre("3-5/2-4", "5-8/4-7", "10-11/9-10", "11-12/10-11"));
}

TEST(TokenSpanTest, LinesOfWords) {
  const auto lines = *MakeLineWordTokenizer(Words({"<unk>", "</s>", "a"}), "vocab.txt");
  EXPECT_THAT(Spans(*lines, "a  \u4e2d\r\n\na"),
              ElementsAre("0-1/0-1", "3-6/3-4", "7-8/5-6", "8-9/6-7", "9-10/7-8"));
}

TEST(TokenSpanTest, CharactersAndBytes) {
  const auto characters = MakeCharacterTokenizer(Words({"<unk>", "a", "\\n"}), 0);
  EXPECT_THAT(Spans(*characters, "a\u0301\n\U0001f600"),
              ElementsAre("0-1/0-1", "1-3/1-2", "3-4/2-3", "4-8/3-4"));
  std::vector<uint8_t> all(256);
  for (int byte = 0; byte < 256; ++byte) all[byte] = static_cast<uint8_t>(byte);
  // Each byte of a character is within that character.
  EXPECT_THAT(Spans(*MakeByteTokenizer(all), "a\u00e9b"),
              ElementsAre("0-1/0-1", "1-2/1-2", "2-3/1-2", "3-4/2-3"));
  EXPECT_THAT(Spans(*MakeByteTokenizer(all), "a\u00e9b", 2), ElementsAre("0-1/0-1", "1-2/1-2"));
}

std::unique_ptr<SentencePieceTokenizer> Pieces(const SentencePieceFile& file) {
  auto tokenizer = SentencePieceTokenizer::Parse(file.bytes(), static_cast<int>(file.pieces.size()),
                                                 "spm.model");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(TokenSpanTest, PiecesOfTheTextAsItWasBeforeItWasNormalized) {
  for (const int algorithm : {1, 2}) {
    SCOPED_TRACE(algorithm);
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    const auto pieces = Pieces(file);
    // A space before a word is no part of its place; one that is a token has a place of its own.
    EXPECT_THAT(Spans(*pieces, "  ab   a "), algorithm == 1
                                                 ? ElementsAre("2-2/2-2", "2-4/2-4", "7-8/7-8")
                                                 : ElementsAre("2-3/2-3", "3-4/3-4", "7-8/7-8"));
    // Two unknown characters are one token.
    EXPECT_THAT(Spans(*pieces, "b\u4e2d\U0001f600 c"),
                ElementsAre("0-0/0-0", "0-1/0-1", "1-8/1-3", "8-9/3-4", "9-10/4-5"));
    EXPECT_THAT(Spans(*pieces, "b c", 3), ElementsAre("0-0/0-0", "0-1/0-1", "1-2/1-2"));
  }
}

TEST(TokenSpanTest, BytesOfAnUnknownCharacterHaveItsPlace) {
  SentencePieceFile file = SmallSentencePieceFile();
  file.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte) {
    file.pieces.push_back({ByteName(static_cast<unsigned char>(byte)), 0.0f, 6});
  }
  EXPECT_THAT(Spans(*Pieces(file), "b\u00e9"),
              ElementsAre("0-0/0-0", "0-1/0-1", "1-3/1-2", "1-3/1-2"));
  EXPECT_EQ(Encode(*Pieces(file), "b\u00e9", UnknownUse::kRefuse).unknown, 0);
}

TEST(UnknownUseTest, WithASymbol) {
  const auto words = Preprocessed(TokenizerType::kWhitespace);
  for (const UnknownUse use : {UnknownUse::kDefault, UnknownUse::kReplace}) {
    const EncodedText replaced = Encode(*words, "a b c a", use);
    EXPECT_THAT(replaced.ids, ElementsAre(1, 0, 0, 1));
    EXPECT_EQ(replaced.unknown, 2);
  }
  const EncodedText skipped = Encode(*words, "x a b c a", UnknownUse::kSkip);
  EXPECT_THAT(skipped.ids, ElementsAre(1, 1));
  EXPECT_EQ(skipped.spans[1].begin_byte, 8u);
  EXPECT_EQ(skipped.unknown, 3);
  // A skipped token does not count towards the limit of tokens.
  EXPECT_THAT(Encode(*words, "x a b a a", UnknownUse::kSkip, 2).ids, ElementsAre(1, 1));
  EXPECT_EQ(
      Error(*words, "a bc", UnknownUse::kRefuse),
      "the word of 2 bytes at byte 2 is not in the model's vocabulary; set unknown to skip or "
      "replace it");
  const auto pieces = Pieces(SmallSentencePieceFile());
  const EncodedText some = Encode(*pieces, "\u4e2d\u4e2d b\u4e2d", UnknownUse::kSkip);
  EXPECT_THAT(some.ids, ElementsAre(6, 6, 4));
  EXPECT_EQ(some.unknown, 2);
  EXPECT_THAT(Error(*pieces, " b \u4e2d", UnknownUse::kRefuse), HasSubstr("3 bytes at byte 3 "));
}

TEST(UnknownUseTest, WithoutASymbolWordsAreRefusedOrSkipped) {
  const auto lines = *MakeLineWordTokenizer(Words({"</s>", "a"}), "vocab.txt");
  for (const UnknownUse use : {UnknownUse::kDefault, UnknownUse::kRefuse, UnknownUse::kReplace}) {
    EXPECT_THAT(Error(*lines, "a bcd", use),
                HasSubstr("the word of 3 bytes at byte 2 is not in the model's vocabulary, which "
                          "has no <unk>"));
  }
  const EncodedText skipped = Encode(*lines, "b a\nc", UnknownUse::kSkip);
  EXPECT_THAT(skipped.ids, ElementsAre(1, 0));
  EXPECT_EQ(skipped.unknown, 2);
}

TEST(UnknownUseTest, WithoutASymbolCharactersAreReplacedByWhatThereIs) {
  EXPECT_EQ(MakeCharacterTokenizer(Words({"a", " ", "?", "\ufffd"}), -1)->ReplacementId(), 3);
  EXPECT_EQ(MakeCharacterTokenizer(Words({"a", " ", "?"}), -1)->ReplacementId(), 2);
  EXPECT_EQ(MakeCharacterTokenizer(Words({"a", " "}), -1)->ReplacementId(), 1);
  const auto none = MakeCharacterTokenizer(Words({"a", "b"}), -1);
  EXPECT_EQ(none->ReplacementId(), Tokenizer::kNotFound);
  EXPECT_THAT(Error(*none, "a\u00e9", UnknownUse::kReplace),
              HasSubstr("character U+00E9 at byte 1"));

  const auto characters = MakeCharacterTokenizer(Words({"a", " ", "?"}), -1);
  EXPECT_THAT(Error(*characters, "a\"", UnknownUse::kDefault),
              HasSubstr("U+0022 at byte 1 is not"));
  const EncodedText replaced = Encode(*characters, "a\"? \u4e2d", UnknownUse::kReplace);
  EXPECT_THAT(replaced.ids, ElementsAre(0, 2, 2, 1, 2));
  EXPECT_EQ(replaced.unknown, 2);  // not the question mark that the text has
}

// A character of which some bytes are unknown is unknown as a whole.
TEST(UnknownUseTest, BytesOfACharacterAreOneUnknownToken) {
  std::vector<uint8_t> known = {' ', '?', 'a', 0xc3};
  const auto bytes = MakeByteTokenizer(known);
  EXPECT_EQ(
      Error(*bytes, "a\u00e9", UnknownUse::kDefault),
      "byte 2 of the text is 169 (<0xA9>), which is not in the model's vocabulary; set unknown "
      "to skip or replace it");
  const EncodedText skipped = Encode(*bytes, "\u00e9a\"a", UnknownUse::kSkip);
  EXPECT_THAT(skipped.ids, ElementsAre(2, 2));
  EXPECT_EQ(skipped.unknown, 2);
  const EncodedText replaced = Encode(*bytes, "\u00e9a", UnknownUse::kReplace);
  EXPECT_THAT(replaced.ids, ElementsAre(1, 2));
  EXPECT_EQ(replaced.spans[0].end_byte, 2u);
  // Not valid UTF-8: nothing is read behind the end.
  EXPECT_EQ(Encode(*bytes, "a\xf0", UnknownUse::kSkip).ids, std::vector<int32_t>{2});
}

TEST(UnknownUseTest, ATokenThatIsCutOffIsNotCounted) {
  const auto words = Preprocessed(TokenizerType::kWhitespace);
  EncodedText encoded = Encode(*words, "a b c", UnknownUse::kReplace, 3);
  EXPECT_EQ(encoded.unknown, 2);
  encoded.Cut(2);
  EXPECT_THAT(encoded.ids, ElementsAre(1, 0));
  EXPECT_EQ(encoded.spans.size(), 2u);
  EXPECT_EQ(encoded.unknown, 1);
  EXPECT_EQ(Encode(*AsciiBytes(), "abc", UnknownUse::kSkip, 2).ids.size(), 2u);
}

}  // namespace
}  // namespace sru::models
