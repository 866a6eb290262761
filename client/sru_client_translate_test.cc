// sru_client translate, as a user runs it, against the fake server: each word becomes itself in
// capitals.
#include <string>
#include <vector>

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

using TranslateTest = SruClientTest;

TEST_F(TranslateTest, PrintsALineForEachText) {
  const Output output = Run({"translate", "a man", "two dogs"});
  EXPECT_EQ(output.out, "A MAN\nTWO DOGS\n");
  EXPECT_THAT(output.err, IsEmpty());
  EXPECT_THAT(server_.requests<v1::TranslateRequest>(),
              ElementsAre(Sends("sequences { text: 'a man' } sequences { text: 'two dogs' } "
                                "num_hypotheses: 1")));
}

TEST_F(TranslateTest, SendsWhatTheFlagsSay) {
  const Output output =
      Run({"translate", "--model=m", "--version=3", "--priority=high", "--truncate",
           "--beam_size=8", "--length_penalty=power", "--alpha=0.25", "--max_new_tokens=2",
           "--word_penalty=-0.5", "--max_length_factor=1.5", "--prefix=Ein", "aa  bb", " "});
  EXPECT_EQ(output.out, "Ein AA\n\n");
  EXPECT_THAT(
      server_.requests<v1::TranslateRequest>(),
      ElementsAre(Sends("model: 'm' version: 3 priority: PRIORITY_HIGH truncate: true beam_size: 8 "
                        "length_penalty { form: FORM_POWER alpha: 0.25 } max_new_tokens: 2 "
                        "word_penalty: -0.5 max_length_factor: 1.5 num_hypotheses: 1 "
                        "target_prefixes: ['Ein', ''] "
                        "sequences { text: 'aa  bb' } sequences { text: ' ' }")));

  // A penalty without a form keeps the model's; alpha 0 is not "none given".
  Run({"translate", "--alpha=0", "aa"});
  EXPECT_TRUE(server_.requests<v1::TranslateRequest>()[1].length_penalty().has_alpha());
  EXPECT_EQ(server_.requests<v1::TranslateRequest>()[1].length_penalty().form(),
            v1::LengthPenalty::FORM_UNSPECIFIED);
  EXPECT_FALSE(server_.requests<v1::TranslateRequest>()[1].has_word_penalty());
  Run({"translate", "--word_penalty=0", "aa"});
  EXPECT_TRUE(server_.requests<v1::TranslateRequest>()[2].has_word_penalty());
}

TEST_F(TranslateTest, LinesKeepTheirPlaces) {
  Output output = Run({"translate", "--batch=2"}, "one\n\nbad\nfour\r\n   \nsix", 1);
  EXPECT_EQ(output.out, "ONE\n\n\nFOUR\n\nSIX\n");
  EXPECT_THAT(output.err, AllOf(HasSubstr("line 3: INVALID_ARGUMENT: sequences[0].text"),
                                Not(HasSubstr("line 4"))));
  output = Run({"translate"}, "");
  EXPECT_THAT(output.out, IsEmpty());
}

TEST_F(TranslateTest, KeepsTheOrderOfManyCalls) {
  std::string input;
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&input, "line x", i, "\n");
    absl::StrAppend(&expected, "LINE X", i, "\n");
  }
  const Output output = Run({"translate", "--batch=3", "--in_flight=8"}, input);
  EXPECT_EQ(output.out, expected);
  EXPECT_GE(server_.requests<v1::TranslateRequest>().size(), 67u);
}

TEST_F(TranslateTest, WaitsWhenTheServerIsOverloaded) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000)});
  const Output output = Run({"translate", "a"});
  EXPECT_EQ(output.out, "A\n");
  EXPECT_EQ(server_.num_calls(), 2);
}

// What no further text could get past.
TEST_F(TranslateTest, OtherErrorsEndIt) {
  server_.FailNext({grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                                 "model: 'fake' is a classifier, expected a translator")});
  const Output output = Run({"translate", "--in_flight=1", "--batch=1"}, "one\ntwo\nthree\n", 1);
  EXPECT_THAT(output.err, AllOf(HasSubstr("line 1: FAILED_PRECONDITION"),
                                HasSubstr("sru_client models"), Not(HasSubstr("line 2"))));
  EXPECT_EQ(output.out, "\n");
}

TEST_F(TranslateTest, TheBestComeInATable) {
  const Output output =
      Run({"translate", "--n_best=2", "--max_new_tokens=2", "--batch=1"}, "a man\ndog\n");
  EXPECT_THAT(output.out, AllOf(HasSubstr("TEXT    SCORE  LOG-PROB  TRANSLATION\n"
                                          "   1  -0.5000   -1.0000  A MAN\n"
                                          "   1  -0.6250   -1.0000  A MAN (cut)\n"),
                                HasSubstr("   2  -0.6250   -1.0000  DOG DOG\n")));
  EXPECT_THAT(Run({"translate", "--n_best=2", "bad"}, 1).out, IsEmpty());
}

TEST_F(TranslateTest, PrintsJson) {
  const Output output =
      Run({"translate", "--json", "--alignment", "--n_best=2"}, "a man\n\nbad\n", 1);
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_THAT(objects[0], HasJson(R"({"line": 1, "text": "a man", "model": "fake", "version": 7,
                                       "token_count": 2, "source_tokens": ["▁a", "▁man"]})"));
  ASSERT_EQ(objects[0]["hypotheses"].size(), 2u);
  const nlohmann::json best = objects[0]["hypotheses"][0];
  EXPECT_THAT(best, HasJson(R"({"text": "A MAN", "tokens": ["▁A", "▁MAN"], "token_ids": [1, 3],
                                "score": -0.5, "log_prob": -1.0, "unfinished": false,
                                "alignment": [[1.0, 0.0], [0.25, 0.75]]})"));
  EXPECT_EQ(objects[1]["line"], 2);
  EXPECT_EQ(objects[1]["hypotheses"][0]["text"], "");
}

TEST_F(TranslateTest, ChecksItsFlags) {
  const auto error = [this](const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"translate", "text"};
    args.insert(args.end(), flags.begin(), flags.end());
    return Run(args, 2).err;
  };
  EXPECT_THAT(error({"--beam_size=65"}), HasSubstr("--beam_size: expected 0 to 64, found 65"));
  EXPECT_THAT(error({"--beam_size=-1"}), HasSubstr("--beam_size: expected 0 to 64, found -1"));
  EXPECT_THAT(error({"--n_best=0"}), HasSubstr("--n_best: expected 1 to 64, found 0"));
  EXPECT_THAT(error({"--n_best=3", "--beam_size=2"}),
              HasSubstr("--n_best: expected at most --beam_size, 2, found 3"));
  EXPECT_THAT(error({"--alpha=nan"}), HasSubstr("--alpha: expected 0 to 10, found 'nan'"));
  EXPECT_THAT(error({"--alpha=10.5"}), HasSubstr("--alpha: expected 0 to 10"));
  EXPECT_THAT(error({"--alpha=x"}), HasSubstr("--alpha: expected 0 to 10, found 'x'"));
  EXPECT_THAT(error({"--word_penalty=101"}),
              HasSubstr("--word_penalty: expected -100 to 100, found '101'"));
  EXPECT_THAT(error({"--word_penalty=nan"}), HasSubstr("--word_penalty: expected -100 to 100"));
  EXPECT_THAT(error({"--max_length_factor=-1"}),
              HasSubstr("--max_length_factor: expected 0 to 100, found -1"));
  EXPECT_THAT(error({"--length_penalty=big"}),
              HasSubstr("--length_penalty: expected gnmt, power or none, found 'big'"));
  EXPECT_THAT(error({"--max_new_tokens=-1"}), HasSubstr("--max_new_tokens: expected 0 or more"));
  EXPECT_THAT(error({"--in_flight=0"}), HasSubstr("--in_flight: expected 1 or more"));
  EXPECT_THAT(error({"--beem_size=2"}), HasSubstr("--beam_size"));
  EXPECT_THAT(Run({"translate", "--alignment", "x"}, 2).err,
              HasSubstr("--alignment: expected --json"));
  EXPECT_EQ(server_.num_calls(), 0);
}

}  // namespace
}  // namespace sru::client
