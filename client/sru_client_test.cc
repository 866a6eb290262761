// Runs the program sru_client, as a user would, against a fake server. Its path is
// SRU_CLIENT_BINARY.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/fake_server.h"

namespace sru::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Quotes for the shell.
std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

class SruClientTest : public ::testing::Test {
 protected:
  Output Run(const std::vector<std::string>& args, const std::string& input = "") {
    const std::string base = ::testing::TempDir() + "/sru_client_test_" + std::to_string(getpid());
    std::ofstream(base + ".in", std::ios::binary) << input;
    // The shell runs it, so that this process, which has gRPC's threads, does not fork.
    std::string command = "SRU_ADDRESS=" + server_.address() + " " + Quote(SRU_CLIENT_BINARY);
    for (const std::string& arg : args) command += " " + Quote(arg);
    command +=
        " < " + Quote(base + ".in") + " > " + Quote(base + ".out") + " 2> " + Quote(base + ".err");
    const int status = std::system(command.c_str());
    Output output;
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output.out = ReadAll(base + ".out");
    output.err = ReadAll(base + ".err");
    for (const char* suffix : {".in", ".out", ".err"}) unlink((base + suffix).c_str());
    return output;
  }

  FakeServer server_;
};

TEST_F(SruClientTest, ClassifyPrintsATable) {
  const Output output = Run({"classify", "short", "a text that is long"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(output.out,
            "LABEL  PROBABILITY  TOKENS  TEXT\n"
            "SHORT       0.7500       3  short\n"
            "LONG        0.7500       3  a text that is long\n");
  EXPECT_THAT(output.err, IsEmpty());
  EXPECT_EQ(server_.num_calls(), 1);
}

TEST_F(SruClientTest, ClassifySendsWhatTheFlagsSay) {
  const Output output = Run({"classify", "--model=m", "--version=3", "--top_k=0", "--truncate",
                             "--tokens", "--priority=high", "--times", "one two  three"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const v1::ClassifyRequest request = server_.last_classify();
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.version(), 3);
  EXPECT_EQ(request.top_k(), 0);
  EXPECT_TRUE(request.truncate());
  EXPECT_EQ(request.priority(), v1::PRIORITY_HIGH);
  ASSERT_EQ(request.sequences(0).tokens().values_size(), 3);
  EXPECT_EQ(request.sequences(0).tokens().values(2), "three");
  EXPECT_THAT(output.out, AllOf(HasSubstr("1.50 ms"), HasSubstr("3 (cut)"), HasSubstr("LONG")));
}

TEST_F(SruClientTest, ClassifyPrintsJsonForEachLineOfStandardInput) {
  const Output output =
      Run({"classify", "--json", "--batch=2"}, "one\n\na text that is long\nlast \xff\n");
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.err, HasSubstr("line 4: INVALID_ARGUMENT: sequences[0].text: expected UTF-8"));
  std::vector<nlohmann::json> objects;
  for (const auto line : absl::StrSplit(output.out, '\n', absl::SkipEmpty())) {
    objects.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    ASSERT_TRUE(objects.back().is_object()) << line;
  }
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0]["line"], 1);
  EXPECT_EQ(objects[0]["text"], "one");
  EXPECT_EQ(objects[0]["labels"][0]["name"], "SHORT");
  EXPECT_EQ(objects[1]["line"], 3);
  EXPECT_EQ(objects[1]["labels"][0]["probability"], 0.75);
  EXPECT_EQ(objects[1]["model"], "fake");
  EXPECT_EQ(objects[1]["version"], 7);
}

// A server that has nothing to serve is the one that an operator looks at most.
TEST_F(SruClientTest, AServerThatDoesNotServeIsAskedWhy) {
  server_.SetServing("", false);
  Output output = Run({"models", "--status"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("FAILED"), HasSubstr("config.json: it is broken")));
  output = Run({"health"});
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  EXPECT_THAT(output.err, IsEmpty());
  output = Run({"classify", "a text"});
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.err,
              AllOf(HasSubstr("answers but does not serve"),
                    HasSubstr("sru_client models --status"), Not(HasSubstr("make serve"))));
}

TEST_F(SruClientTest, ABadTextFailsAlone) {
  const Output output = Run({"classify"}, "one\nbad\nthree\n");
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("  one\n"), HasSubstr("  three\n"), Not(HasSubstr("bad"))));
  EXPECT_THAT(output.err,
              HasSubstr("line 2: INVALID_ARGUMENT: sequences[0].text: gives no tokens"));
}

TEST_F(SruClientTest, WaitsWhenTheServerIsOverloaded) {
  server_.FailNext({FakeServer::Overloaded(0, 1000000), FakeServer::Overloaded(0, 1000000)});
  const Output output = Run({"classify", "text"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(server_.num_calls(), 3);
}

TEST_F(SruClientTest, Encodes) {
  Output output = Run({"encode", "--pooling=mean", "--normalize", "text"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("[2]"), HasSubstr("2.2361"), HasSubstr(" 1.0000 -2.0000")));
  EXPECT_EQ(server_.last_encode().pooling(), v1::POOLING_MEAN);
  EXPECT_TRUE(server_.last_encode().normalize());

  output = Run({"encode", "--json", "--output_format=float16", "text"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(json["values"], nlohmann::json({1.0, -2.0}));
  EXPECT_EQ(json["shape"], nlohmann::json({2}));

  output = Run({"encode", "--raw"}, "one\ntwo\n");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const std::string vector("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  EXPECT_EQ(output.out, vector + vector);
}

TEST_F(SruClientTest, ListsModels) {
  Output output = Run({"models"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out,
              AllOf(StartsWith("NAME  VERSION"), HasSubstr("2 x 2 x 4"), HasSubstr("SHORT LONG")));
  output = Run({"models", "--json", "fake"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(nlohmann::json::parse(output.out, nullptr, false)["pooling"], "max");
  output = Run({"models", "other"});
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.err, AllOf(HasSubstr("NOT_FOUND: model: there is no 'other'"),
                                HasSubstr("sru_client models")));
}

TEST_F(SruClientTest, ModelsShowsStates) {
  Output output = Run({"models", "--status"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(StartsWith("NAME  VERSION  STATE"), HasSubstr("FAILED"),
                                HasSubstr("config.json: it is broken")));
  output = Run({"models", "--status", "--json"});
  EXPECT_EQ(nlohmann::json::parse(output.out, nullptr, false)["state"], "FAILED");
}

TEST_F(SruClientTest, AdminLoadsAndUnloads) {
  const std::string address = "--address=" + server_.address();
  Output output = Run({"admin", address, "load", "fake"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("fake"), HasSubstr("8"), HasSubstr("READY")));
  output = Run({"admin", address, "unload", "fake"});
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(output.out, "unloaded fake\n");
  for (const char* command : {"load", "unload"}) {
    output = Run({"admin", address, command, "other"});
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_THAT(output.err, HasSubstr("NOT_FOUND: model: "));
  }
}

TEST_F(SruClientTest, HealthExitsZeroOnlyWhenServing) {
  Output output = Run({"health"});
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_EQ(output.out, "SERVING\n");
  server_.SetServing("fake", false);
  output = Run({"health", "--service=fake"});
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_EQ(output.out, "NOT_SERVING\n");
  EXPECT_EQ(Run({"health", "--service=other"}).exit_code, 1);
}

TEST_F(SruClientTest, SaysWhenNobodyListens) {
  for (const char* command : {"classify", "encode", "models", "health"}) {
    const Output output = Run({command, "--address=" + DeadAddress()}, "text\n");
    EXPECT_EQ(output.exit_code, 1) << command;
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
      {{"classify", "--top_k=-1", "x"}, "--top_k: expected 0 or more, found -1"},
      {{"classify", "--batch=0", "x"}, "--batch: expected at least 1, found 0"},
      {{"classify", "--priority=urgent", "x"}, "--priority: expected one of low, normal, high"},
      {{"classify", "--deadline=-1s", "x"}, "--deadline: expected more than 0s, found -1s"},
      {{"encode", "--pooling=sum", "x"}, "--pooling: expected one of default, none, first, last"},
      {{"encode", "--output_format=int8", "x"}, "--output_format: expected one of float32"},
      {{"encode", "--raw", "--json", "x"}, "--raw and --json exclude each other"},
      {{"models", "a", "b"}, "expected at most one name"},
      {{"models", "--status", "a"}, "--status takes no NAME"},
      {{"health", "trec"}, "a model is named with --service"},
      {{"admin"}, "expected 'load NAME' or 'unload NAME'"},
      {{"admin", "reload", "trec"}, "expected 'load NAME' or 'unload NAME'"},
      {{"admin", "load"}, "expected 'load NAME' or 'unload NAME'"},
  };
  for (const Case& c : cases) {
    const Output output = Run(c.args);
    EXPECT_EQ(output.exit_code, 2) << c.message;
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
  EXPECT_THAT(commands, IsSupersetOf({"classify", "encode", "models", "health", "admin"}));
  for (const std::string& command : commands) {
    const Output output = Run({command, "--help"});
    EXPECT_EQ(output.exit_code, 0) << command;
    EXPECT_THAT(output.out, AllOf(HasSubstr("usage: sru_client " + command), HasSubstr("examples:"),
                                  HasSubstr("  sru_client " + command), HasSubstr("--address"),
                                  HasSubstr("--json")));
  }
}

}  // namespace
}  // namespace sru::client
