// sru_client answer, as a user runs it, against the fake server: every word is an answer, and the
// longest is the best.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/sru_client_fixture.h"

namespace sru::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using AnswerTest = SruClientTest;

TEST_F(AnswerTest, MarksTheAnswerInItsText) {
  const std::string text = "He left. Then a wonderful day began.\nIt rained.\n";
  Output output = Run({"answer", "--question=What?"}, text);
  EXPECT_EQ(output.out,
            "SCORE  PROBABILITY  WHERE   ANSWER\n"
            "9.000       0.2500  line 1  He left. Then a [wonderful] day began. It rained.\n");
  EXPECT_THAT(output.err, IsEmpty());
  EXPECT_THAT(server_.requests<v1::AnswerRequest>(),
              ElementsAre(Sends(absl::StrCat("queries { question: 'What?' passages: '",
                                             absl::CEscape(text), "' } top_n: 1"))));

  const std::string file = File("one", "\n\nHe left. Then it\nrained and rained.");
  output = Run({"answer", "--question", "What?", "--top_n=2", file});
  EXPECT_THAT(output.out, AllOf(HasSubstr(file + ":4  He left. Then it rained and [rained.]\n"),
                                HasSubstr(file + ":4  He left. Then it [rained] and rained.\n")));
}

// At whole characters, in one line that does nothing to a terminal.
TEST_F(AnswerTest, ShowsTheTextAroundTheAnswer) {
  std::string around;
  for (int i = 0; i < 25; ++i) absl::StrAppend(&around, "\u00e4\u00f6 \x1b ");
  const Output output = Run({"answer", "--question=?"}, around + "wonderful " + around);
  EXPECT_THAT(output.out, AllOf(HasSubstr("  ... \\x1B \u00e4\u00f6 "),
                                HasSubstr(" [wonderful] \u00e4\u00f6 \\x1B "),
                                HasSubstr(" \u00e4\u00f6...\n"), Not(HasSubstr("\x1b"))));
}

TEST_F(AnswerTest, SendsWhatTheFlagsSay) {
  Run({"answer", "--question=Who?", "--model=m", "--version=3", "--priority=low", "--top_n=4",
       "--one_per_passage", "--no_overlap", "--max_answer_tokens=7"},
      "a");
  EXPECT_THAT(server_.requests<v1::AnswerRequest>()[0],
              Sends("model: 'm' version: 3 priority: PRIORITY_LOW top_n: 4 one_per_passage: true "
                    "no_overlap: true max_answer_tokens: 7 "
                    "queries { question: 'Who?' passages: 'a' }"));
}

// The best of all calls are those of one call with all passages.
TEST_F(AnswerTest, PassagesOfManyCallsCompete) {
  std::vector<std::string> args = {"answer", "--question=?", "--top_n=6", "--json"};
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) {
    texts.push_back(absl::StrCat("xx\n", std::string(5 + i % 7, 'y'), "\n"));
    args.push_back(File(absl::StrCat("text", i), texts.back()));
  }
  const Output output = Run(args);
  EXPECT_EQ(server_.requests<v1::AnswerRequest>().size(), 2u);
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 1u);
  const nlohmann::json& answers = objects[0]["answers"];
  ASSERT_EQ(answers.size(), 6u);
  // Of equals the earlier passage comes first.
  const int passages[] = {7, 14, 21, 28, 35, 6};
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(answers[k]["passage"], passages[k]) << answers[k];
    const size_t at = answers[k]["start_byte"];
    const size_t end = answers[k]["end_byte"];
    const std::string& text = texts[passages[k] - 1];
    EXPECT_THAT(answers[k], Has({{"text", text.substr(at, end - at)}, {"line", 2}}));
  }
  EXPECT_EQ(answers[0]["log_score"], 11.0);
}

TEST_F(AnswerTest, OffsetsAreThoseInTheFile) {
  const std::string text = "\u00e4\u00f6\n\n\n\u20acx lang\u00e4\u00f6 \u00fc\n";
  const std::string file = File("offsets", text);
  Output output = Run({"answer", "--question=?", "--json", file});
  std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_THAT(objects[0],
              Has({{"question", "?"}, {"model", "fake"}, {"version", 7}, {"token_count", 1}}));
  const nlohmann::json answer = objects[0]["answers"][0];
  EXPECT_THAT(answer, HasJson(R"({"text": "lang\u00e4\u00f6", "passage": 1, "line": 4,
                                  "start_byte": 12, "end_byte": 20, "start_char": 8,
                                  "end_char": 14, "probability": 0.25})"));
  EXPECT_EQ(answer["file"], file);

  // Each file begins at 0; standard input has no name.
  output = Run({"answer", "--question=?", "--json", "--top_n=2", file, "-"}, " wordy-word");
  objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0]["answers"][0]["start_byte"], 1);
  EXPECT_EQ(objects[0]["answers"][0].count("file"), 0u);
  EXPECT_EQ(objects[0]["answers"][1]["start_byte"], 12);
}

TEST_F(AnswerTest, ABadPassageFailsAlone) {
  const std::string good = File("good", "a good text\n");
  const std::string bad = File("bad", "bad");
  const std::string broken = File("broken", "t\xffo\n");
  const std::string empty = File("empty", " \n\n");
  Output output = Run({"answer", "--question=?", "--top_n=9", good, bad, empty, broken}, 1);
  EXPECT_THAT(output.out, AllOf(HasSubstr("[good]"), Not(HasSubstr("bad"))));
  EXPECT_THAT(output.err, AllOf(HasSubstr(bad + ":1: INVALID_ARGUMENT: queries[0].passages[0]: "),
                                HasSubstr(broken + ":1: INVALID_ARGUMENT: queries[0].passages[0]: "
                                                   "expected UTF-8, found an invalid byte at "
                                                   "offset 1"),
                                HasSubstr(empty + ":1: INVALID_ARGUMENT"), Not(HasSubstr(good))));

  output = Run({"answer", "--question=?", good, good + ".absent", good}, 1);
  EXPECT_THAT(output.out, HasSubstr("[good]"));
  EXPECT_THAT(output.err, HasSubstr(good + ".absent: cannot be read: No such file"));
}

TEST_F(AnswerTest, TheFirstErrorOfAnotherKindEndsIt) {
  const grpc::Status question(grpc::StatusCode::INVALID_ARGUMENT,
                              "queries[0].question: gives no tokens");
  server_.FailNext({question, question});
  const std::string one = File("one", "one"), two = File("two", "two");
  const Output output = Run({"answer", "--question=?", one, two}, 1);
  EXPECT_THAT(output.err, AllOf(HasSubstr(one + ":1: INVALID_ARGUMENT: queries[0].question"),
                                Not(HasSubstr(two))));
  EXPECT_THAT(output.out, IsEmpty());
}

TEST_F(AnswerTest, APassageThatIsTooLargeFailsAlone) {
  const grpc::Status too_large(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many bytes");
  server_.FailNext({too_large, too_large});
  const std::string one = File("one", "one"), three = File("three", "three");
  const Output output = Run({"answer", "--question=?", one, three}, 1);
  EXPECT_THAT(output.out, HasSubstr("[three]"));
  EXPECT_THAT(output.err, AllOf(HasSubstr(one + ":1: RESOURCE_EXHAUSTED: too many bytes"),
                                Not(HasSubstr(three))));
}

TEST_F(AnswerTest, WaitsWhenTheServerIsOverloaded) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000)});
  Run({"answer", "--question=?"}, "word");
  EXPECT_EQ(server_.num_calls(), 2);
}

TEST_F(AnswerTest, ChecksItsFlags) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--question: expected a question"},
      {{"--question=?", "--top_n=0"}, "--top_n: expected 1 to 100, found 0"},
      {{"--question=?", "--top_n=101"}, "--top_n: expected 1 to 100, found 101"},
      {{"--question=?", "--max_answer_tokens=1001"},
       "--max_answer_tokens: expected 0 to 1000, found 1001"},
      {{"--question=?", "--version=-1"}, "--version: expected 0 or more, found -1"},
      {{"--question=?", "--priority=urgent"}, "--priority: expected low, normal or high"},
      {{"--qestion=?"}, "--question"},
  };
  for (const auto& [flags, message] : cases) {
    std::vector<std::string> args = {"answer"};
    args.insert(args.end(), flags.begin(), flags.end());
    const Output output = Run(args, "text", 2);
    EXPECT_THAT(output.err, HasSubstr(message));
  }
  EXPECT_EQ(server_.num_calls(), 0);
}

}  // namespace
}  // namespace sru::client
