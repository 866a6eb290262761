#include "client/answer_view.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::client {
namespace {

// Where `answer` is in `text`.
TextRange Find(const std::string& text, const std::string& answer) {
  const size_t at = text.find(answer);
  EXPECT_NE(at, std::string::npos) << answer;
  return {at, at + answer.size()};
}

std::string Sentence(const std::string& text, const std::string& answer) {
  const TextRange range = SentenceAround(text, Find(text, answer));
  return text.substr(range.begin, range.end - range.begin);
}

std::string Marked(const std::string& text, const std::string& answer, size_t context = 160) {
  return MarkedSentence(text, Find(text, answer), /*color=*/false, context);
}

TEST(AnswerViewTest, FindsTheSentence) {
  const std::string text = "  It rained. Anna went home! Did Bob?\nNobody knew; he left.  ";
  EXPECT_EQ(Sentence(text, "rained"), "It rained.");
  EXPECT_EQ(Sentence(text, "Anna"), "Anna went home!");
  EXPECT_EQ(Sentence(text, "home!"), "Anna went home!");
  EXPECT_EQ(Sentence(text, "Bob"), "Did Bob?");
  EXPECT_EQ(Sentence(text, "left."), "Nobody knew; he left.");
  EXPECT_EQ(Sentence(text, "home! Did"), "Anna went home! Did Bob?");
  EXPECT_EQ(Sentence("word", "word"), "word");
}

TEST(AnswerViewTest, NotEveryPeriodEndsASentence) {
  EXPECT_EQ(Sentence("He met Dr. J. Smith of Acme Inc. in 3.5 hours. Then he left.", "3"),
            "He met Dr. J. Smith of Acme Inc. in 3.5 hours.");
  EXPECT_EQ(Sentence("So it was. \"Was it?\" he said. (He lied.) Fine.", "said"),
            "\"Was it?\" he said.");
  EXPECT_EQ(Sentence("So it was. (He lied.) Fine.", "lied"), "(He lied.)");
  EXPECT_EQ(Sentence("It was G\u00c9. Then no more.", "no"), "Then no more.");
}

TEST(AnswerViewTest, BlankLinesAndOtherScripts) {
  EXPECT_EQ(Sentence("A title\n\nThe text goes\non here\n \nand ends", "on here"),
            "The text goes\non here");
  const std::string chinese = "\u4ed6\u8d70\u4e86\u3002\u5979\u6765\u4e86\u3002\u5b8c";
  EXPECT_EQ(Sentence(chinese, "\u5979"), "\u5979\u6765\u4e86\u3002");
}

TEST(AnswerViewTest, MarksTheAnswer) {
  EXPECT_EQ(Marked("It rained. Anna\nwent\t home! So.", "went\t home"), "Anna [went home]!");
  EXPECT_EQ(MarkedSentence("Anna left.", {0, 4}, /*color=*/true),
            "\x1b[30;48;5;157mAnna\x1b[0m left.");
  EXPECT_EQ(Marked("An \x1b[1mold\x7f man", "man"), "An \\x1B[1mold\\x7F [man]");
}

TEST(AnswerViewTest, CutsLongSentences) {
  const std::string text = "one two three four five six seven";
  EXPECT_EQ(Marked(text, "four", 9), "... three [four] five six ...");
  EXPECT_EQ(Marked(text, "four", 15), "one two three [four] five six seven");
  // Without spaces, between characters.
  EXPECT_EQ(Marked("\u00e4\u00f6\u00fcX\u00e4\u00f6\u00fc", "X", 3), "...\u00fc[X]\u00e4...");
}

// What a server should not send, and a text that is made to be slow.
TEST(AnswerViewTest, OddInput) {
  EXPECT_EQ(MarkedSentence("short", {3, 99}, false), "sho[rt]");
  EXPECT_EQ(MarkedSentence("short", {9, 3}, false), "sho[]rt");
  EXPECT_EQ(MarkedSentence("", {0, 0}, false), "[]");
  EXPECT_EQ(MarkedSentence("\u00e4", {1, 2}, false), "\\xC3[\\xA4]");
  const std::string quotes(2000000, '"');
  EXPECT_EQ(SentenceAround(quotes, {1000000, 1000001}).end, quotes.size());
}

}  // namespace
}  // namespace sru::client
