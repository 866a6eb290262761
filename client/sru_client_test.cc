// The subcommands of sru_client that have no test file of their own (sru_client_NAME_test.cc).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/sru_client_fixture.h"

namespace sru::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

class ShellTest : public SruClientTest {
 protected:
  // Runs a line of the shell in which `sru` is the program, for at most twenty seconds a time.
  Output Shell(const std::string& line, int exit_code) {
    const std::string out = Path("out");
    const std::string err = Path("err");
    const int status =
        std::system(absl::StrCat("export SRU_ADDRESS=", server_.address(),
                                 " SRU_ADMIN_ADDRESS=", server_.address(), "; sru() { timeout 20 ",
                                 Quote(SRU_CLIENT_BINARY), " \"$@\"; }; { ", line, "; } > ",
                                 Quote(out), " 2> ", Quote(err))
                        .c_str());
    const Output output = {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadAll(out),
                           ReadAll(err)};
    EXPECT_EQ(output.exit_code, exit_code) << line << "\n" << output.err;
    return output;
  }
};

TEST_F(ShellTest, AnInputThatCannotBeReadIsNotEmpty) {
  const std::pair<const char*, int> cases[] = {{"classify", 1}, {"generate", 2}};
  for (const auto& [command, exit_code] : cases) {
    const Output output = Shell(absl::StrCat("sru ", command, " < /"), exit_code);
    EXPECT_THAT(output.err, HasSubstr("standard input: cannot be read: Is a directory"));
  }
  EXPECT_EQ(server_.num_calls(), 0);
}

TEST_F(ShellTest, AnOutputThatCannotBeWrittenIsAnError) {
  for (const char* command : {"models", "models --json", "admin load fake", "health", "--help"}) {
    const Output output = Shell(absl::StrCat("sru ", command, " > /dev/full"), 1);
    EXPECT_EQ(output.err, "sru_client: standard output cannot be written\n") << command;
  }
}

// The pipe stays open, as that of `tail -f` does.
TEST_F(ShellTest, AnErrorEndsTheWaitForTheNextLine) {
  const std::string path = Path("lines");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR | O_CLOEXEC);
  server_.FailNext({grpc::Status(grpc::StatusCode::INTERNAL, "broken")});
  ASSERT_EQ(write(pipe, "one\n", 4), 4);
  const Output output = Shell(absl::StrCat("sru classify < ", Quote(path)), 1);
  EXPECT_THAT(output.err, HasSubstr("line 1: INTERNAL: broken"));
  close(pipe);
}

TEST_F(SruClientTest, ClassifyPrintsATable) {
  const Output output = Run({"classify", "short", "a text that is long"});
  EXPECT_EQ(output.out,
            "LABEL  PROBABILITY  TOKENS  TEXT\n"
            "SHORT       0.7500       3  short\n"
            "LONG        0.7500       3  a text that is long\n");
  EXPECT_THAT(output.err, IsEmpty());
  EXPECT_EQ(server_.num_calls(), 1);
}

TEST_F(SruClientTest, ClassifySendsWhatTheFlagsSay) {
  const Output output = Run({"classify", "--model=m", "--version=3", "--top_k=0", "--truncate",
                             "--priority=high", "one two  three"});
  EXPECT_THAT(server_.requests<v1::ClassifyRequest>().back(),
              Sends("model: 'm' version: 3 priority: PRIORITY_HIGH truncate: true "
                    "sequences { text: 'one two  three' }"));
  EXPECT_THAT(output.out, AllOf(HasSubstr("3 (cut)"), HasSubstr("SHORT"), HasSubstr("LONG")));
}

TEST_F(SruClientTest, ClassifyPrintsJsonForEachLineOfStandardInput) {
  const Output output =
      Run({"classify", "--json", "--batch=2"}, "one\n\na text that is long\nlast \xff\n", 1);
  EXPECT_THAT(output.err, HasSubstr("line 4: INVALID_ARGUMENT: sequences[0].text: expected UTF-8"));
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_THAT(objects[0], Has({{"line", 1}, {"text", "one"}}));
  EXPECT_EQ(objects[0]["labels"][0]["name"], "SHORT");
  EXPECT_EQ(objects[1]["line"], 3);
  EXPECT_EQ(objects[1]["labels"][0]["probability"], 0.75);
  EXPECT_THAT(objects[1], Has({{"model", "fake"}, {"version", 7}}));
}

TEST_F(SruClientTest, BlankLinesHaveAnswersIfEmptyTextsAreSkipped) {
  const std::string lines = "one\n\n  \na text that is long\n";
  Output output = Run({"classify", "--skip_empty"}, lines);
  EXPECT_EQ(output.out,
            "LABEL  PROBABILITY  TOKENS  TEXT\n"
            "SHORT       0.7500       3  one\n"
            "-                -       0\n"
            "-                -       0\n"
            "LONG        0.7500       3  a text that is long\n");
  EXPECT_TRUE(server_.requests<v1::ClassifyRequest>().back().skip_empty());
  for (const char* command : {"classify", "encode", "score"}) {
    output = Run({command, "--json", "--skip_empty", "--batch=2"}, lines);
    std::vector<nlohmann::json> objects = JsonLines(output.out);
    ASSERT_GE(objects.size(), 4u) << command;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(objects[i]["line"], i + 1) << command;
    EXPECT_EQ(objects[1]["token_count"], 0) << command;
    EXPECT_GT(objects[3]["token_count"], 0) << command;
  }
  EXPECT_TRUE(server_.requests<v1::EncodeRequest>().back().skip_empty());
  EXPECT_TRUE(server_.requests<v1::ScoreRequest>().back().skip_empty());
}

TEST_F(SruClientTest, TagPrintsARowForEachToken) {
  Output output = Run({"tag", "--model=m", "--priority=low", "4 moons", "one"});
  EXPECT_EQ(output.out,
            "TOKEN  LABEL   PROBABILITY  TEXT\n"
            "4      number       0.7500  4 moons\n"
            "moons  word         0.7500\n"
            "one    word         0.7500  one\n");
  const v1::TagRequest sent = server_.requests<v1::TagRequest>().back();
  EXPECT_EQ(sent.model(), "m");
  EXPECT_EQ(sent.priority(), v1::PRIORITY_LOW);
  EXPECT_EQ(sent.top_k(), 1);
  output = Run({"tag", "--top_k=2", "4"});
  EXPECT_THAT(output.out, HasSubstr("4      number       0.7500  4\n       word         0.2500\n"));
  output = Run({"tag", "--json", "--skip_empty"}, "New York\n\n");
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0]["tokens"][1]["token"], "York");
  EXPECT_EQ(objects[0]["tokens"][1]["labels"][0]["name"], "word");
  EXPECT_EQ(objects[1]["token_count"], 0);
  output = Run({"tag", "bad"}, 1);
  EXPECT_THAT(output.err, HasSubstr("sequences[0].text: has a byte"));
  output = Run({"tag", "--top_k=0", "x"}, 2);
  EXPECT_THAT(output.err, HasSubstr("--top_k"));
}

TEST_F(SruClientTest, TokenizePrintsTokens) {
  Output output = Run({"tokenize", "--model=m", "--unknown=skip", "New zzYork"});
  EXPECT_EQ(output.out,
            "ID  TOKEN   BEGIN  END  TEXT\n"
            " 3  New         0    3  New zzYork\n"
            " 6  zzYork      4   10\n");
  const v1::TokenizeRequest sent = server_.requests<v1::TokenizeRequest>().back();
  EXPECT_EQ(sent.model(), "m");
  EXPECT_EQ(sent.unknown(), v1::UNKNOWN_SKIP);
  output = Run({"tokenize", "--json"}, "New York\n");
  EXPECT_EQ(JsonLines(output.out)[0]["tokens"][1]["start_byte"], 4);
  Run({"tag", "--unknown=refuse", "x"});
  EXPECT_EQ(server_.requests<v1::TagRequest>().back().unknown(), v1::UNKNOWN_REFUSE);
  Run({"classify", "x"});
  EXPECT_EQ(server_.requests<v1::ClassifyRequest>().back().unknown(), v1::UNKNOWN_DEFAULT);
}

TEST_F(SruClientTest, WarnsWhenMostWordsAreUnknown) {
  Output output = Run({"classify", "zzy zzx"});
  EXPECT_THAT(output.out, HasSubstr("3 (2 unknown)"));
  EXPECT_THAT(output.err,
              StartsWith("sru_client classify: warning: the model's vocabulary does not have 2 of "
                         "3 words"));
  // One line for all texts.
  output = Run({"encode", "--json"}, "zzy zzx\nzzy zzx\n");
  EXPECT_EQ(JsonLines(output.out)[0]["unknown_tokens"], 2);
  EXPECT_THAT(output.err, HasSubstr("does not have 4 of 4 words"));
  output = Run({"classify", "--truncate", "zzy", "two words", "more words"});
  EXPECT_THAT(output.out, HasSubstr("3 (cut, 1 unknown)"));
  EXPECT_THAT(output.err, IsEmpty());
}

// A server that has nothing to serve is the one that an operator looks at most.
TEST_F(SruClientTest, AServerThatDoesNotServeIsAskedWhy) {
  server_.SetServing("", false);
  Output output = Run({"models", "--status"});
  EXPECT_THAT(output.out, AllOf(HasSubstr("FAILED"), HasSubstr("config.json: it is broken")));
  output = Run({"health"}, 1);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  EXPECT_THAT(output.err, IsEmpty());
  output = Run({"classify", "a text"}, 1);
  EXPECT_THAT(output.err,
              AllOf(HasSubstr("answers but does not serve"),
                    HasSubstr("sru_client models --status"), Not(HasSubstr("make serve"))));
}

TEST_F(SruClientTest, ABadTextFailsAlone) {
  const Output output = Run({"classify"}, "one\nbad\nthree\n", 1);
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("  one\n"), HasSubstr("  three\n"), Not(HasSubstr("bad"))));
  EXPECT_THAT(output.err,
              HasSubstr("line 2: INVALID_ARGUMENT: sequences[0].text: gives no tokens"));
}

TEST_F(SruClientTest, ATextThatIsTooLargeFailsAlone) {
  const grpc::Status too_large(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many bytes");
  server_.FailNext({too_large, too_large});
  const Output output = Run({"classify"}, "one\ntwo\nthree\n", 1);
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("  two\n"), HasSubstr("  three\n"), Not(HasSubstr("  one\n"))));
  EXPECT_THAT(output.err, HasSubstr("line 1: RESOURCE_EXHAUSTED: too many bytes"));
  EXPECT_EQ(server_.num_calls(), 3);
  // Every text fails: no call is made twice.
  server_.FailNext(std::vector<grpc::Status>(5, too_large));
  EXPECT_THAT(Run({"classify"}, "one\ntwo\nthree\n", 1).err, HasSubstr("line 3: RESOURCE_EX"));
  EXPECT_EQ(server_.num_calls(), 8);
}

TEST_F(SruClientTest, WaitsWhenTheServerIsOverloaded) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000), FakeServer::Overloaded(0, 1000000)});
  Run({"classify", "text"});
  EXPECT_EQ(server_.num_calls(), 3);
  // An overload that lasts ends everything.
  server_.FailNext(std::vector<grpc::Status>(6, FakeServer::Overloaded(0, 1000000)));
  const Output output = Run({"classify"}, "one\ntwo\n", 1);
  EXPECT_THAT(output.err, HasSubstr("line 1: RESOURCE_EXHAUSTED: the queue is full"));
  EXPECT_EQ(server_.num_calls(), 9);
}

TEST_F(SruClientTest, Encodes) {
  Output output = Run({"encode", "--pooling=mean", "--normalize", "text"});
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("[2]"), HasSubstr("2.2361"), HasSubstr(" 1.0000 -2.0000")));
  EXPECT_EQ(server_.requests<v1::EncodeRequest>().back().pooling(), v1::POOLING_MEAN);
  EXPECT_TRUE(server_.requests<v1::EncodeRequest>().back().normalize());

  output = Run({"encode", "--json", "--output_format=float16", "text"});
  EXPECT_THAT(JsonLines(output.out)[0],
              Has({{"values", nlohmann::json({1.0, -2.0})}, {"shape", nlohmann::json({2})}}));

  output = Run({"encode", "--raw"}, "one\ntwo\n");
  const std::string vector("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  EXPECT_EQ(output.out, vector + vector);
}

// The fake server's probabilities: 'a' 1/4, 'b' 1/8, 'c' 1/16, 'd' 1/2, newline 1/8.
TEST_F(SruClientTest, ScorePrintsATable) {
  Output output = Run({"score", "ab", "a", "dddd"});
  EXPECT_EQ(output.out,
            "TOKENS  LOG-PROB  BITS/TOKEN  PERPLEXITY  TEXT\n"
            "     2    -2.079      3.0000       8.000  ab\n"
            "     1         -           -           -  a\n"
            "     4    -2.079      1.0000       2.000  dddd\n"
            "     7    -4.159      1.5000       2.828  total of 3 texts\n");
  EXPECT_THAT(output.err, IsEmpty());
  output = Run({"score", "dd"});
  EXPECT_THAT(output.out, Not(HasSubstr("total")));
  output = Run({"score", "bad"}, 1);
  EXPECT_THAT(output.out, IsEmpty());
}

TEST_F(SruClientTest, ScoreSendsWhatTheFlagsSay) {
  Run({"score", "--model=fake", "--version=3", "--priority=low", "--top_candidates=2", "aa  bb"});
  EXPECT_THAT(server_.requests<v1::ScoreRequest>(),
              ElementsAre(Sends("model: 'fake' version: 3 priority: PRIORITY_LOW top_candidates: 2 "
                                "token_log_probs: true token_texts: true "
                                "sequences { text: 'aa  bb' }")));
}

TEST_F(SruClientTest, ScoreShowsTokensInColumns) {
  Output output = Run({"score", "--per_token", "ab\n"});
  EXPECT_EQ(output.out,
            "LINE  POSITION  LOG-PROB   BITS  TOKEN\n"
            "   1         1         -      -  'a'\n"
            "   1         2   -2.0794  3.000  'b'\n"
            "   1         3   -2.0794  3.000  '\\n'\n"
            "\n"
            "TOKENS  LOG-PROB  BITS/TOKEN  PERPLEXITY  TEXT\n"
            "     3    -4.159      3.0000       8.000  total of 1 text\n");
  output = Run({"score", "--top_candidates=2", "ab"});
  EXPECT_THAT(output.out, HasSubstr("'b'    'a' 50.0%  'b' 25.0%\n"));
}

TEST_F(SruClientTest, ScorePrintsJson) {
  const Output output =
      Run({"score", "--json", "--per_token", "--top_candidates=1"}, "dd\n\nbad\nd\n", 1);
  EXPECT_THAT(output.err, HasSubstr("line 3: INVALID_ARGUMENT: sequences[0].text: has a byte"));
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 3u);
  EXPECT_THAT(objects[0], HasJson(R"({"line": 1, "text": "dd", "model": "fake", "version": 7,
                                       "token_count": 2, "scored_count": 1})"));
  EXPECT_DOUBLE_EQ(objects[0]["bits_per_token"], 1);
  EXPECT_DOUBLE_EQ(objects[0]["perplexity"], 2);
  EXPECT_EQ(objects[0]["token_log_probs"].size(), 1u);
  EXPECT_EQ(objects[0]["candidates"][0][0]["text"], "a");
  EXPECT_EQ(objects[0]["token_texts"], nlohmann::json({"d", "d"}));
  EXPECT_EQ(JsonLines(Run({"score", "--json", "dd"}).out)[0].count("token_texts"), 0u);
  EXPECT_EQ(objects[1]["line"], 4);
  EXPECT_TRUE(objects[1]["perplexity"].is_null());
  EXPECT_THAT(objects[2]["total"], Has({{"texts", 2}, {"token_count", 3}}));
}

TEST_F(SruClientTest, AStateReplacesNoLinkAndNoPipe) {
  const std::string file = File("linked", "old");
  const std::string link = Path("link");
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  Run({"generate", "--max_new_tokens=1", "--state_out=" + link, "abc"});
  EXPECT_EQ(ReadAll(file), "abcd");

  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  Run({"generate", "--max_new_tokens=1", "--state_out=" + path, "abc"});
  std::string state(9, '\0');
  EXPECT_EQ(read(pipe, state.data(), state.size()), 4);
  EXPECT_THAT(state, StartsWith("abcd"));
  close(pipe);
}

TEST_F(SruClientTest, ScoreKeepsTheOrderOfManyCalls) {
  std::string input;
  for (int i = 0; i < 200; ++i) input += std::string(1 + i, 'd') + "\n";
  const Output output = Run({"score", "--json", "--batch=3", "--in_flight=8"}, input);
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 201u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(objects[i]["token_count"], i + 1);
}

// The fake server's next letter is as far from 'a' as the text so far is long.
TEST_F(SruClientTest, GeneratePrintsTheText) {
  Output output = Run({"generate", "--max_new_tokens=5", "abc"});
  EXPECT_EQ(output.out, "defgh");
  EXPECT_THAT(output.err, IsEmpty());
  output = Run({"generate", "--max_new_tokens=2", "--echo"}, "ab\n");
  EXPECT_EQ(output.out, "ab\nde");
  EXPECT_EQ(Run({"generate", "--stop=f", "abc"}).out, "de");
  output = Run({"generate", "bad"}, 1);
  EXPECT_THAT(output.err, HasSubstr("INVALID_ARGUMENT: prompt.text: has a byte that is unknown"));
  EXPECT_THAT(output.out, IsEmpty());
}

TEST_F(SruClientTest, GenerateSendsWhatTheFlagsSay) {
  std::vector<std::string> args = absl::StrSplit(
      "generate --model=m --version=3 --priority=low --temperature=0.5 --top_k=4 "
      "--top_p=0.9 --min_p=0.1 --seed=18446744073709551615 --repetition_penalty=1.5 "
      "--presence_penalty=-1 --frequency_penalty=2 "
      "--num_samples=2 --stop=x,y --stop=z --max_new_tokens=9 "
      "--min_new_tokens=2 --top_candidates=2",
      ' ');
  args.push_back("aa  bb");
  Run(args);
  EXPECT_THAT(
      server_.requests<v1::GenerateRequest>(),
      ElementsAre(Sends(
          "model: 'm' version: 3 priority: PRIORITY_LOW prompt { text: 'aa  bb' } "
          "sampling { temperature: 0.5 top_k: 4 top_p: 0.9 min_p: 0.1 seed: 18446744073709551615 "
          "  repetition_penalty: 1.5 presence_penalty: -1 frequency_penalty: 2 } "
          "num_samples: 2 stop: ['x,y', 'z'] max_new_tokens: 9 "
          "min_new_tokens: 2 token_log_probs: true top_candidates: 2")));
}

TEST_F(SruClientTest, GenerateKeepsSamplesApart) {
  const Output output = Run(
      {"generate", "--num_samples=2", "--temperature=1", "--seed=0", "--max_new_tokens=3", "abc"});
  EXPECT_EQ(output.out, "--- sample 0\ndef\n--- sample 1\nefg\n");
}

TEST_F(SruClientTest, GenerateShowsTokens) {
  const Output output = Run({"generate", "--max_new_tokens=2", "--top_candidates=1", "abc"});
  EXPECT_EQ(output.out,
            "SAMPLE  POSITION  TOKEN ID  LOG-PROB   BITS  TEXT  CANDIDATES\n"
            "     0         1       100   -0.5000  0.721  'd'   'd' 60.7%\n"
            "     0         2       101   -0.5000  0.721  'e'   'e' 60.7%\n");
}

TEST_F(SruClientTest, GeneratePrintsJson) {
  const Output output = Run({"generate", "--json", "--log_probs", "--max_new_tokens=2"}, "abc");
  const std::vector<nlohmann::json> objects = JsonLines(output.out);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_THAT(objects[0],
              HasJson(R"({"sample": 0, "text": "d", "token_ids": [100], "log_probs": [-0.5]})"));
  EXPECT_EQ(objects[0].count("finish_reason"), 0u);
  EXPECT_THAT(objects[1], HasJson(R"({"finish_reason": "length", "prompt_tokens": 3,
                                       "generated_tokens": 2, "model": "fake"})"));
  EXPECT_EQ(objects[1]["times"]["total_us"], 1500);
}

TEST_F(SruClientTest, GenerateKeepsAStateInAFile) {
  const std::string state = Path("text_state");
  Output output = Run({"generate", "--max_new_tokens=2", "--state_out=" + state, "abc"});
  EXPECT_EQ(ReadAll(state), "abcde");
  // Neither a prompt nor standard input is needed.
  output = Run({"generate", "--max_new_tokens=2", "--state_in=" + state, "--state_out=" + state},
               "not read");
  EXPECT_EQ(output.out, "fg");
  EXPECT_FALSE(server_.requests<v1::GenerateRequest>().back().has_prompt());
  EXPECT_EQ(ReadAll(state), "abcdefg");
  output = Run({"generate", "--max_new_tokens=1", "--state_in=" + state, "more"});
  EXPECT_EQ(output.out, "l");
}

TEST_F(SruClientTest, GenerateGoesOnWhenAServerStops) {
  server_.DrainGenerateAfter({2, 1});
  const Output output = Run({"generate", "--max_new_tokens=6", "abc"});
  EXPECT_EQ(output.out, "defghi");
  EXPECT_EQ(server_.requests<v1::GenerateRequest>().size(), 3u);
}

TEST_F(SruClientTest, GenerateWaitsForABusyServer) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000)});
  const Output output = Run({"generate", "--max_new_tokens=1", "abc"});
  EXPECT_EQ(output.out, "d");
}

TEST_F(SruClientTest, ListsModels) {
  Output output = Run({"models"});
  EXPECT_THAT(output.out, AllOf(StartsWith("NAME  VERSION"), HasSubstr("classifier  2 x 2 x 4"),
                                HasSubstr("SHORT LONG")));
  output = Run({"models", "--json", "fake"});
  EXPECT_EQ(JsonLines(output.out)[0]["pooling"], "max");
  output = Run({"models", "other"}, 1);
  EXPECT_THAT(output.err, AllOf(HasSubstr("NOT_FOUND: model: there is no 'other'"),
                                HasSubstr("sru_client models")));
}

TEST_F(SruClientTest, ModelsSaysHowReadersAndTranslatorsAreSet) {
  server_.AddModel(
      Message<v1::ModelInfo>("name: 'questions' task: 'reader' reader { features: ['exact', "
                             "'lemma'] ner_size: 9 max_answer_tokens: 15 }"));
  server_.AddModel(Message<v1::ModelInfo>(
      "name: 'captions' task: 'translator' translator { beam_size: 5 max_new_tokens: 100 "
      "length_penalty { form: FORM_GNMT alpha: 0.6 } source_language: 'en' target_language: 'de' "
      "}"));

  Output output = Run({"models"});
  EXPECT_THAT(output.out, AllOf(HasSubstr("(answers of up to 15 tokens; needs ner_ids, lemmas)"),
                                HasSubstr("  reader  "), HasSubstr("  translator  "),
                                HasSubstr("(en to de; beam 5, gnmt 0.6)")));
  output = Run({"models", "--json", "questions"});
  nlohmann::json json = JsonLines(output.out)[0];
  EXPECT_THAT(json["reader"], HasJson(R"({"features": ["exact", "lemma"], "pos_size": 0,
                                           "ner_size": 9, "max_answer_tokens": 15})"));
  EXPECT_EQ(json.count("translator"), 0u);
  output = Run({"models", "--json", "captions"});
  json = JsonLines(output.out)[0];
  EXPECT_THAT(json["translator"], HasJson(R"({"beam_size": 5, "length_penalty": "gnmt",
                                               "max_new_tokens": 100, "target_language": "de"})"));
  EXPECT_EQ(json["translator"]["alpha"].get<float>(), 0.6f);
}

TEST_F(SruClientTest, ModelsShowsStates) {
  Output output = Run({"models", "--status"});
  EXPECT_THAT(output.out, AllOf(StartsWith("NAME  VERSION  STATE"), HasSubstr("FAILED"),
                                HasSubstr("config.json: it is broken")));
  output = Run({"models", "--status", "--json"});
  EXPECT_EQ(JsonLines(output.out)[0]["state"], "FAILED");
}

TEST_F(SruClientTest, AdminLoadsAndUnloads) {
  const std::string address = "--address=" + server_.address();
  Output output = Run({"admin", address, "load", "fake"});
  EXPECT_THAT(output.out, AllOf(HasSubstr("fake"), HasSubstr("8"), HasSubstr("READY")));
  output = Run({"admin", address, "unload", "fake"});
  EXPECT_EQ(output.out, "unloaded fake\n");
  for (const char* command : {"load", "unload"}) {
    output = Run({"admin", address, command, "other"}, 1);
    EXPECT_THAT(output.err, HasSubstr("NOT_FOUND: model: "));
  }
}

TEST_F(SruClientTest, HealthExitsZeroOnlyWhenServing) {
  Output output = Run({"health"});
  EXPECT_EQ(output.out, "SERVING\n");
  server_.SetServing("fake", false);
  output = Run({"health", "--service=fake"}, 1);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  Run({"health", "--service=other"}, 1);
}

TEST_F(SruClientTest, SaysWhenNobodyListens) {
  for (const char* command : {"classify", "encode", "score", "generate", "models", "health"}) {
    const Output output = Run({command, "--address=" + DeadAddress()}, "text\n", 1);
    EXPECT_THAT(output.err, AllOf(HasSubstr("UNAVAILABLE: cannot connect to 127.0.0.1:"),
                                  HasSubstr("make serve")))
        << command;
  }
}

TEST_F(SruClientTest, WrongCommandLinesExitWithTwo) {
  struct Case {
    std::vector<std::string> args;
    const char* message;
  };
  const Case cases[] = {
      {{}, "usage: sru_client SUBCOMMAND"},
      {{"clasify"}, "there is no subcommand 'clasify'"},
      {{"classify", "--top-k=3", "x"}, "unknown flag --top-k; did you mean --top_k?"},
      {{"classify", "--pooling=max", "x"}, "unknown flag --pooling"},
      {{"classify", "--tokens", "x"}, "unknown flag --tokens"},
      {{"classify", "--top_k=-1", "x"}, "--top_k: expected 0 or more, found -1"},
      {{"classify", "--batch=0", "x"}, "--batch: expected 1 or more, found 0"},
      {{"classify", "--priority=urgent", "x"}, "--priority: expected low, normal or high"},
      {{"classify", "--deadline=-1s", "x"}, "--deadline: expected more than 0s, found -1s"},
      {{"encode", "--pooling=sum", "x"}, "--pooling: expected default, none, last, max"},
      {{"encode", "--output_format=int8", "x"}, "--output_format: expected float32"},
      {{"encode", "--raw", "--json", "x"}, "--raw and --json exclude each other"},
      {{"encode", "--raw", "--skip_empty", "x"}, "--raw and --skip_empty exclude each other"},
      {{"generate", "--skip_empty", "x"}, "unknown flag --skip_empty"},
      {{"score", "--truncate", "x"}, "unknown flag --truncate"},
      {{"score", "--top_candidates=129", "x"}, "--top_candidates: expected 0 to 128, found 129"},
      {{"score", "--top_candidates=-1", "x"}, "--top_candidates: expected 0 to 128, found -1"},
      {{"score", "--in_flight=0", "x"}, "--in_flight: expected 1 or more, found 0"},
      {{"generate", "--state_in=/nonexistent", "x"},
       "--state_in: /nonexistent: cannot be read: No "},
      {{"generate", "--state_in=/", "x"}, "--state_in: /: cannot be read: Is a directory"},
      {{"generate", "--state_in=/dev/null", "x"}, "--state_in: /dev/null is empty"},
      {{"generate", "a", "b"}, "expected one PROMPT, found 2; put quotes around"},
      {{"generate", "--file=f", "x"}, "--file and PROMPT exclude each other"},
      {{"generate", "--file=/nonexistent"}, "--file: /nonexistent: cannot be read: No such"},
      {{"generate", "--file=/"}, "--file: /: cannot be read: Is a directory"},
      {{"generate", "--state_out=s", "--num_samples=2", "x"},
       "--state_out: expected --num_samples=1, found 2"},
      {{"generate", "--temperature=-1", "x"}, "--temperature: expected 0 to 100, found -1"},
      {{"generate", "--temperature=nan", "x"}, "--temperature: expected 0 to 100, found nan"},
      {{"generate", "--top_k=-1", "x"}, "--top_k: expected 0 or more, found -1"},
      {{"generate", "--top_p=1.5", "x"}, "--top_p: expected 0 to 1, found 1.5"},
      {{"generate", "--min_p=-0.5", "x"}, "--min_p: expected 0 to 1, found -0.5"},
      {{"generate", "--repetition_penalty=-1", "x"}, "--repetition_penalty: expected 0 to 100"},
      {{"generate", "--presence_penalty=101", "x"}, "--presence_penalty: expected -100 to 100"},
      {{"generate", "--frequency_penalty=-101", "x"}, "--frequency_penalty: expected -100 to 100"},
      {{"generate", "--num_samples=65", "x"}, "--num_samples: expected 1 to 64, found 65"},
      {{"generate", "--stop=", "x"}, "--stop: expected text, found ''"},
      {{"generate", "--seed=-1", "x"}, "--seed: expected a whole number from 0 to 2^64 - 1"},
      {{"generate", "--max_new_tokens=-1", "x"}, "--max_new_tokens: expected 0 or more, found -1"},
      {{"generate", "--max_new_tokens=2", "--min_new_tokens=3", "x"},
       "--min_new_tokens: expected at most 2 (--max_new_tokens), found 3"},
      {{"generate", "--top_candidates=129", "x"}, "--top_candidates: expected 0 to 128, found 129"},
      {{"models", "a", "b"}, "expected at most one name"},
      {{"models", "--status", "a"}, "--status takes no NAME"},
      {{"health", "trec"}, "a model is named with --service"},
      {{"admin"}, "expected 'load NAME' or 'unload NAME'"},
      {{"admin", "reload", "trec"}, "expected 'load NAME' or 'unload NAME'"},
      {{"admin", "load"}, "expected 'load NAME' or 'unload NAME'"},
  };
  for (const Case& c : cases) {
    const Output output = Run(c.args, 2);
    EXPECT_THAT(output.err, HasSubstr(c.message));
    EXPECT_THAT(output.out, IsEmpty()) << c.message;
  }
  EXPECT_EQ(server_.num_calls(), 0);
}

TEST_F(SruClientTest, HelpTeachesWithExamples) {
  const std::string usage = Run({"--help"}).out;
  EXPECT_THAT(usage, HasSubstr("usage: sru_client SUBCOMMAND"));
  std::vector<std::string> commands;  // as listed: "  NAME  summary"
  for (const absl::string_view line : absl::StrSplit(usage, '\n')) {
    if (!absl::StartsWith(line, "  ")) continue;
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(line.substr(2), absl::MaxSplits(' ', 1));
    EXPECT_THAT(entry.second, Not(IsEmpty())) << line;
    commands.push_back(entry.first);
  }
  // Every method that people call by hand has a command; `encode` and `models` have two.
  std::vector<std::string> wanted = {"models", "health", "admin"};
  const auto* const service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "sru.v1.InferenceService");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    if (name == "EncodeStream" || name == "ListModels" || name == "GetModel" ||
        name == "Detokenize") {
      continue;
    }
    wanted.push_back(absl::AsciiStrToLower(name));
  }
  EXPECT_THAT(commands, IsSupersetOf(wanted));
  for (const std::string& command : commands) {
    const Output output = Run({command, "--help"});
    EXPECT_THAT(output.out, AllOf(HasSubstr("usage: sru_client " + command), HasSubstr("examples:"),
                                  HasSubstr("  sru_client " + command), HasSubstr("--address"),
                                  HasSubstr("--json")));
  }
}

}  // namespace
}  // namespace sru::client
