#include "client/flag_set.h"

#include <cstdlib>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Options {
  std::string model;
  int top_k = 1;
  bool json = false;
  absl::Duration deadline = absl::Seconds(10);
};

FlagSet MakeFlags(Options* options) {
  FlagSet flags;
  flags.Add("model", &options->model, "name of the model");
  flags.Add("top_k", &options->top_k, "labels per sequence");
  flags.Add("json", &options->json, "print JSON");
  flags.Add("deadline", &options->deadline, "per call");
  return flags;
}

TEST(FlagSetTest, ReadsEveryWayToWriteAFlag) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  auto texts = flags.Parse({"one", "--model=trec", "--top_k", "3", "--json", "--deadline=250ms",
                            "two", "-", "--", "--json=no flag", "-3"});
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_THAT(*texts, ElementsAre("one", "two", "-", "--json=no flag", "-3"));
  EXPECT_EQ(options.model, "trec");
  EXPECT_EQ(options.top_k, 3);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.deadline, absl::Milliseconds(250));
  EXPECT_FALSE(flags.help_requested());
}

TEST(FlagSetTest, BooleansCanBeTurnedOff) {
  for (const char* argument : {"--nojson", "--json=false", "--json=0"}) {
    Options options;
    options.json = true;
    FlagSet flags = MakeFlags(&options);
    ASSERT_TRUE(flags.Parse({argument}).ok()) << argument;
    EXPECT_FALSE(options.json) << argument;
  }
}

TEST(FlagSetTest, ErrorsNameTheFlag) {
  struct Case {
    std::vector<std::string> args;
    const char* message;
  };
  const Case cases[] = {
      {{"--modle=trec"}, "unknown flag --modle; did you mean --model?"},
      {{"--frobnicate"}, "unknown flag --frobnicate"},
      {{"--nomodel"}, "unknown flag --nomodel"},
      {{"--top_k=many"}, "--top_k: expected a whole number, found 'many'"},
      {{"--deadline=2"}, "--deadline: expected a duration such as 2s or 150ms, found '2'"},
      {{"--json=perhaps"}, "--json: expected true or false, found 'perhaps'"},
      {{"--top_k"}, "--top_k needs a value"},
      {{"-top_k=1"}, "flags begin with two dashes"},
  };
  for (const Case& c : cases) {
    Options options;
    FlagSet flags = MakeFlags(&options);
    auto texts = flags.Parse(c.args);
    ASSERT_EQ(texts.status().code(), absl::StatusCode::kInvalidArgument) << c.args[0];
    EXPECT_THAT(std::string(texts.status().message()), HasSubstr(c.message));
  }
}

TEST(FlagSetTest, TheEnvironmentGivesTheDefault) {
  ASSERT_EQ(setenv("SRU_FLAG_SET_TEST", "from environment", 1), 0);
  std::string value = "built in";
  FlagSet flags;
  flags.Add("value", &value, "a value", "SRU_FLAG_SET_TEST");
  ASSERT_TRUE(flags.Parse({}).ok());
  EXPECT_EQ(value, "from environment");
  ASSERT_TRUE(flags.Parse({"--value=from flag"}).ok());
  EXPECT_EQ(value, "from flag");
  unsetenv("SRU_FLAG_SET_TEST");
}

TEST(FlagSetTest, ARepeatedFlagKeepsAllItsValues) {
  RepeatedText stops;
  FlagSet flags;
  flags.Add("stop", &stops, "may be given several times");
  ASSERT_TRUE(flags.Parse({"--stop=a,b", "text", "--stop", "\n"}).ok());
  EXPECT_THAT(stops.values, ElementsAre("a,b", "\n"));
  EXPECT_EQ(flags.Help(), "  --stop  may be given several times\n");
}

TEST(FlagSetTest, HelpStopsParsingAndShowsDefaults) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  auto texts = flags.Parse({"--help", "--no_such_flag"});
  ASSERT_TRUE(texts.ok());
  EXPECT_THAT(*texts, IsEmpty());
  EXPECT_TRUE(flags.help_requested());
  EXPECT_THAT(flags.Help(), AllOf(HasSubstr("--top_k     labels per sequence (default 1)\n"),
                                  HasSubstr("--json      print JSON\n"),
                                  HasSubstr("--deadline  per call (default 10s)\n")));
}

}  // namespace
}  // namespace sru::client
