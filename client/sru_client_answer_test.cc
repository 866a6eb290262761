// sru_client answer, as a user runs it, against the fake server: every word is an answer, and the
// longest is the best.
#include <algorithm>
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
using ::testing::StartsWith;

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
  std::string text;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&text, "xx ", std::string(5 + i % 7, 'y'), "\n", i == 20 ? " \t\n" : "",
                    "\r\n");
  }
  const std::string file = File("many", text);
  const Output output = Run({"answer", "--question=?", "--paragraphs", "--top_n=6", "--batch=3",
                             "--in_flight=5", "--json", file});
  EXPECT_EQ(server_.requests<v1::AnswerRequest>().size(), 14u);
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
    EXPECT_THAT(answers[k], Has({{"text", text.substr(at, end - at)},
                                 {"line", std::count(text.begin(), text.begin() + at, '\n') + 1}}));
  }
  EXPECT_EQ(answers[0]["log_score"], 11.0);
}

TEST_F(AnswerTest, OffsetsAreThoseInTheFile) {
  const std::string text = "\u00e4\u00f6\n\n\n\u20acx lang\u00e4\u00f6 \u00fc\n";
  const std::string file = File("offsets", text);
  Output output = Run({"answer", "--question=?", "--paragraphs", "--json", file});
  std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_THAT(objects[0],
              Has({{"question", "?"}, {"model", "fake"}, {"version", 7}, {"token_count", 1}}));
  const nlohmann::json answer = objects[0]["answers"][0];
  EXPECT_THAT(answer, HasJson(R"({"text": "lang\u00e4\u00f6", "passage": 2, "line": 4,
                                  "start_byte": 12, "end_byte": 20, "start_char": 8,
                                  "end_char": 14, "probability": 0.25})"));
  EXPECT_EQ(answer["file"], file);

  // Files begin at 0; standard input has no name.
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
  const std::string broken = File("broken", "one\n\nt\xffo\n");
  const std::string empty = File("empty", " \n\n");
  Output output =
      Run({"answer", "--question=?", "--top_n=9", "--paragraphs", good, bad, empty, broken}, 1);
  EXPECT_THAT(output.out, AllOf(HasSubstr("[good]"), HasSubstr("[one]"), Not(HasSubstr("bad"))));
  EXPECT_THAT(output.err, AllOf(HasSubstr(bad + ":1: INVALID_ARGUMENT: queries[0].passages[0]: "),
                                HasSubstr(broken + ":3: INVALID_ARGUMENT: queries[0].passages[0]: "
                                                   "expected UTF-8, found an invalid byte at "
                                                   "offset 1"),
                                HasSubstr(empty + ": has no text"), Not(HasSubstr(good))));

  output = Run({"answer", "--question=?", good, good + ".absent", good}, 1);
  EXPECT_THAT(output.out, HasSubstr("[good]"));
  EXPECT_THAT(output.err, HasSubstr(good + ".absent: cannot be read: No such file"));

  output = Run({"answer", "--question=?"}, "", 1);
  EXPECT_THAT(output.out, IsEmpty());
  EXPECT_THAT(output.err, HasSubstr("standard input: has no text"));
}

TEST_F(AnswerTest, TheFirstErrorOfAnotherKindEndsIt) {
  const grpc::Status question(grpc::StatusCode::INVALID_ARGUMENT,
                              "queries[0].question: gives no tokens");
  server_.FailNext({question, question});
  Output output = Run({"answer", "--question=?", "--paragraphs", "--batch=1", "--in_flight=1"},
                      "one\n\ntwo\n\nthree\n", 1);
  EXPECT_THAT(output.err, AllOf(HasSubstr("line 1: INVALID_ARGUMENT: queries[0].question"),
                                Not(HasSubstr("line 3"))));
  EXPECT_THAT(output.out, IsEmpty());

  server_.FailNext({grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 "queries[0].passages[0]: expected at most 512 tokens "
                                 "(--max_sequence_tokens), found 700")});
  output = Run({"answer", "--question=?"}, "long", 1);
  EXPECT_THAT(output.err, HasSubstr("--paragraphs cuts a file into passages"));
}

TEST_F(AnswerTest, APassageThatIsTooLargeFailsAlone) {
  const grpc::Status too_large(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many bytes");
  server_.FailNext({too_large, too_large});
  const Output output = Run({"answer", "--question=?", "--paragraphs"}, "one\n\nthree\n", 1);
  EXPECT_THAT(output.out, HasSubstr("[three]"));
  EXPECT_THAT(output.err, AllOf(HasSubstr("line 1: RESOURCE_EXHAUSTED: too many bytes"),
                                Not(HasSubstr("line 3"))));
}

TEST_F(AnswerTest, WaitsWhenTheServerIsOverloaded) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000)});
  Run({"answer", "--question=?"}, "word");
  EXPECT_EQ(server_.num_calls(), 2);
}

TEST_F(AnswerTest, QueriesBringTheirPassages) {
  const std::string input =
      "{\"question\": \"Which?\", \"passages\": [\"one. A three.\", \"a fourth\"], \"id\": \"q1\","
      " \"gold\": 5}\n"
      "\n"
      "{\"question\": \"Who?\", \"passages\": [\"bad\"]}\n"
      "{\"question\": \"Why?\", \"passages\": [\"so\"], \"question_lemmas\": [\"why\"],"
      " \"passage_tags\": [{\"pos_ids\": [1, 2], \"ner_ids\": [3], \"lemmas\": [\"be\"]}]}\n"
      "not JSON\n"
      "{\"passages\": [\"so\"]}\n"
      "{\"question\": \"?\"}\n"
      "{\"question\": \"?\", \"passages\": [5]}\n"
      "{\"question\": \"?\", \"passages\": [\"a\"], \"passage_tags\": [{\"pos_ids\": [1.5]}]}\n"
      "{\"question\": \"?\", \"passages\": [\"a\"], \"passage_tags\": [null, {}]}\n"
      "{\"question\": \"?\", \"passages\": [\"last\"], \"id\": 12}\n";
  Output output = Run({"answer", "--queries", "--json", "--batch=4", "--top_n=2"}, input, 1);
  std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 3u);
  EXPECT_THAT(objects[0], Has({{"line", 1}, {"id", "q1"}, {"question", "Which?"}}));
  EXPECT_THAT(objects[0]["answers"][0],
              Has({{"text", "three."}, {"passage", 0}, {"start_byte", 7}}));
  EXPECT_THAT(objects[0]["answers"][1], Has({{"passage", 1}, {"start_byte", 2}}));
  EXPECT_EQ(objects[1]["line"], 4);
  EXPECT_THAT(objects[2], Has({{"line", 11}, {"id", 12}}));
  EXPECT_THAT(
      output.err,
      AllOf(HasSubstr("line 3: INVALID_ARGUMENT: queries[0].passages[0]: gives no tokens"),
            HasSubstr("line 5: INVALID_ARGUMENT: expected a JSON object such as"),
            HasSubstr("line 6: INVALID_ARGUMENT: question: expected a text"),
            HasSubstr("line 7: INVALID_ARGUMENT: passages: expected a list of texts"),
            HasSubstr("line 8: INVALID_ARGUMENT: passages: expected a list of texts"),
            HasSubstr("line 9: INVALID_ARGUMENT: (passage_tags[0].pos_ids[0]): invalid value 1.5"),
            HasSubstr("line 10: INVALID_ARGUMENT: passage_tags: expected no null")));
  v1::Query tagged;
  for (const v1::AnswerRequest& request : server_.requests<v1::AnswerRequest>()) {
    for (const v1::Query& query : request.queries()) {
      if (query.question() == "Why?") tagged = query;
    }
  }
  EXPECT_THAT(tagged, Sends("question: 'Why?' passages: 'so' question_lemmas: 'why' "
                            "passage_tags { pos_ids: [1, 2] ner_ids: 3 lemmas: 'be' }"));

  const std::string file = File("queries", input.substr(0, input.find('\n') + 1));
  output = Run({"answer", "--queries", "--top_n=2", file});
  EXPECT_THAT(output.out, AllOf(StartsWith("SCORE  PROBABILITY  WHERE"),
                                HasSubstr(file + ":1, passage 1  Which?    one. A [three.]\n"),
                                HasSubstr(file + ":1, passage 2  Which?    a [fourth]\n")));
}

TEST_F(AnswerTest, ChecksItsFlags) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--question: expected a question"},
      {{"--question=?", "--queries"}, "--queries and --question exclude each other"},
      {{"--paragraphs", "--queries"}, "--queries and --paragraphs exclude each other"},
      {{"--question=?", "--top_n=0"}, "--top_n: expected 1 to 100, found 0"},
      {{"--question=?", "--top_n=101"}, "--top_n: expected 1 to 100, found 101"},
      {{"--question=?", "--max_answer_tokens=1001"},
       "--max_answer_tokens: expected 0 to 1000, found 1001"},
      {{"--question=?", "--batch=0"}, "--batch: expected 1 or more, found 0"},
      {{"--question=?", "--in_flight=0"}, "--in_flight: expected 1 or more, found 0"},
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
