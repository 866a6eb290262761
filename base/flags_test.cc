#include "base/flags.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

enum class Fruit { kApple, kPear };

struct TestOptions {
  std::string address = "here";
  int tokens = 4;
  int64_t megabytes = 0;
  double share = 0.5;
  bool pin = false;
  absl::Duration wait = absl::Seconds(10);
  absl::Duration age = absl::InfiniteDuration();
  absl::Duration pause = absl::Microseconds(20);
  Fruit fruit = Fruit::kPear;
  std::string reversed = "ab";
  std::vector<std::string> names;
  std::vector<std::string> stops;
};

absl::StatusOr<std::string> ParseReversed(absl::string_view flag, absl::string_view text) {
  if (text.empty()) return InvalidArgument("--", flag, ": expected text, found ''");
  return std::string(text.rbegin(), text.rend());
}

void AddFlags(TestOptions* options, Flags* flags) {
  flags->Group("Numbers");
  flags->Add("tokens", &options->tokens, {-8, 1048576}, "How many.");
  flags->Add("mb", &options->megabytes, {16, 1000, /*or_zero=*/true}, "How much.");
  flags->Group(Flags::kRarelyChanged);
  flags->Add("share", &options->share, {0}, "Which part.");
  flags->Group("Others");
  flags->Add("address", &options->address, "Where.");
  flags->Add("pin", &options->pin, "Whether.");
  flags->Add("wait", &options->wait, "How long.");
  flags->AddTime("age_s", &options->age, absl::Seconds(1),
                 {absl::Milliseconds(1), absl::Hours(1), /*or_never=*/true}, "How old.");
  flags->AddTime("pause_us", &options->pause, absl::Microseconds(1),
                 {absl::ZeroDuration(), absl::Seconds(1)}, "How short.");
  flags->AddChoice<Fruit>("fruit", &options->fruit,
                          {{"apple", Fruit::kApple}, {"pear", Fruit::kPear}}, "Which.");
  flags->AddParsed("reversed", &options->reversed, "ba", ParseReversed, "What.");
  flags->Add("names", &options->names, "Who.");
  flags->AddRepeated("stop", &options->stops, "When.");
}

// The options after a command line was parsed, and its arguments that are no flags.
struct Parsed : TestOptions {
  std::vector<std::string> texts;
};
absl::StatusOr<Parsed> Parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  Flags flags;
  AddFlags(&parsed, &flags);
  SRU_ASSIGN_OR_RETURN(parsed.texts, flags.Parse(arguments));
  EXPECT_FALSE(flags.help_requested());
  return parsed;
}

TEST(FlagsTest, SetsFieldsAndReturnsTheTexts) {
  const auto options = Parse({"one",
                              "--address=a=b",
                              "--tokens",
                              "-7",
                              "--mb=16",
                              "--share=1e-1",
                              "--pin",
                              "--wait=250ms",
                              "two words",
                              "--age_s=2.5",
                              "--pause_us=250",
                              "--fruit=apple",
                              "--reversed",
                              "--xyz",
                              "--names=a,b",
                              "--stop=a,b",
                              "-",
                              "--stop",
                              "\n",
                              "",
                              "--",
                              "--pin",
                              "-3",
                              "--"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->texts, ElementsAre("one", "two words", "-", "", "--pin", "-3", "--"));
  EXPECT_EQ(options->address, "a=b");
  EXPECT_EQ(options->tokens, -7);
  EXPECT_EQ(options->megabytes, 16);
  EXPECT_EQ(options->share, 0.1);
  EXPECT_TRUE(options->pin);
  EXPECT_EQ(options->wait, absl::Milliseconds(250));
  EXPECT_EQ(options->age, absl::Milliseconds(2500));
  EXPECT_EQ(options->pause, absl::Microseconds(250));
  EXPECT_EQ(options->fruit, Fruit::kApple);
  EXPECT_EQ(options->reversed, "zyx--");
  EXPECT_THAT(options->names, ElementsAre("a", "b"));
  EXPECT_THAT(options->stops, ElementsAre("a,b", "\n"));
}

TEST(FlagsTest, SaysWhatWasChangedAndWhere) {
  TestOptions options;
  std::string secret;
  Flags flags(Flags::Environment::kAll);
  AddFlags(&options, &flags);
  flags.Add("proxy_headers", &secret, "A secret.");
  setenv("SRU_MB", "16", 1);
  setenv("SRU_TOKENS", "5", 1);
  EXPECT_TRUE(flags
                  .Parse({"--tokens=6", "--fruit=pear", "--nopin", "--stop=a", "--stop=b",
                          "--address=http://me:word@host/x@y", "--proxy_headers=key=1"})
                  .ok());
  unsetenv("SRU_MB");
  unsetenv("SRU_TOKENS");
  std::vector<std::string> changed;
  for (const Flags::Setting& one : flags.changed()) {
    changed.push_back(one.source + " " + one.name + " " + one.value);
  }
  EXPECT_THAT(changed,
              ElementsAre("flag tokens 6", "SRU_MB mb 16", "flag address http://(hidden)@y",
                          "flag stop a,b", "flag proxy_headers (hidden)"));
}

TEST(FlagsTest, EachErrorIsKept) {
  TestOptions options;
  Flags flags;
  AddFlags(&options, &flags);
  EXPECT_FALSE(flags.ParseFlagsOnly({"--tokens=many", "--mb=1", "--none", "--pin"}).ok());
  ASSERT_EQ(flags.errors().size(), 3u);
  EXPECT_TRUE(options.pin);
  EXPECT_FALSE(flags.ParseFlagsOnly({"text"}).ok());
  EXPECT_EQ(flags.errors().size(), 1u);
}

TEST(FlagsTest, TheLastValueCounts) {
  EXPECT_EQ(Parse({"--tokens=many", "--tokens=5"})->tokens, 5);
  EXPECT_EQ(Parse({"--age_s=1", "--age_s=0"})->age, absl::InfiniteDuration());
  for (const char* off : {"--nopin", "--pin=false", "--pin=0"}) {
    EXPECT_FALSE(Parse({"--pin", off})->pin) << off;
  }
  EXPECT_TRUE(Parse({"--nopin", "--pin=true"})->pin);
  // The next argument is no part of an empty value.
  const auto options = Parse({"--address=", "text", "--names=", "--stop={}", "--stop=[a,b]"});
  EXPECT_EQ(options->address, "");
  EXPECT_THAT(options->texts, ElementsAre("text"));
  EXPECT_THAT(options->names, IsEmpty());
  EXPECT_THAT(options->stops, ElementsAre("{}", "[a,b]"));
}

TEST(FlagsTest, ErrorsNameWhatWasExpectedAndFound) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{"--tokens=many"}, "--tokens: expected a whole number, found 'many'"},
      {{"--tokens="}, "--tokens: expected a whole number, found ''"},
      {{"--tokens=99999999999"}, "--tokens: expected a whole number, found '99999999999'"},
      {{"--tokens"}, "--tokens: expected a whole number, found nothing"},
      {{"--tokens=1048577"}, "--tokens: expected -8 to 1048576, found 1048577"},
      {{"--mb=15"}, "--mb: expected 0 or 16 to 1000, found 15"},
      {{"--share=x"}, "--share: expected a number, found 'x'"},
      {{"--share=-1"}, "--share: expected 0 or more, found -1"},
      {{"--share=nan"}, "--share: expected 0 or more, found nan"},
      {{"--pin=maybe"}, "--pin: expected true or false, found 'maybe'"},
      {{"--pin="}, "--pin: expected true or false, found ''"},
      {{"--wait=2"}, "--wait: expected a duration such as 2s or 150ms, found '2'"},
      {{"--age_s=\n"}, "--age_s: expected a number, found '\\n'"},
      {{"--age_s=-1"}, "--age_s: expected 0 (never) or 1ms to 1h, found -1s"},
      {{"--pause_us=1000001"}, "--pause_us: expected 0 to 1s, found 1.000001s"},
      {{"--fruit=plum"}, "--fruit: expected apple or pear, found 'plum'"},
      {{"--reversed="}, "--reversed: expected text, found ''"},
      {{"--address"}, "--address: expected text, found nothing"},
      {{"--adress=x"}, "unknown flag --adress; did you mean --address?"},
      {{"--frobnicate", "x"}, "unknown flag --frobnicate"},
      {{"--noaddress"}, "unknown flag --noaddress; did you mean --address?"},
      {{"-tokens=1"},
       "unknown flag -tokens=1; flags begin with two dashes. Put -- before text that begins with a "
       "dash"},
      {{"-3"},
       "unknown flag -3; flags begin with two dashes. Put -- before text that begins with a dash"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Parse(c.arguments).status(), absl::InvalidArgumentError(c.message));
  }
}

TEST(FlagsTest, WhatIsRightIsSetAfterAnErrorToo) {
  TestOptions options;
  Flags flags;
  AddFlags(&options, &flags);
  EXPECT_EQ(flags.ParseFlagsOnly({"--nosuch", "--tokens=x", "--fruit=apple"}),
            absl::InvalidArgumentError("unknown flag --nosuch"));
  EXPECT_EQ(options.tokens, 4);
  EXPECT_EQ(options.fruit, Fruit::kApple);
  EXPECT_EQ(flags.ParseFlagsOnly({"stray"}),
            absl::InvalidArgumentError("unexpected argument 'stray'; flags begin with --"));
}

TEST(FlagsTest, TheCommandLineOverridesTheEnvironment) {
  ASSERT_EQ(setenv("SRU_TOKENS", "5", 1), 0);
  ASSERT_EQ(setenv("SRU_MB", "16", 1), 0);
  ASSERT_EQ(setenv("SRU_ADDRESS", "", 1), 0);
  const auto parse = [](Flags::Environment environment, TestOptions* options) {
    Flags flags(environment);
    AddFlags(options, &flags);
    return flags.ParseFlagsOnly({"--mb=17"});
  };
  TestOptions all;
  ASSERT_TRUE(parse(Flags::Environment::kAll, &all).ok());
  EXPECT_EQ(all.tokens, 5);
  EXPECT_EQ(all.megabytes, 17);
  EXPECT_EQ(all.address, "");
  TestOptions none;
  ASSERT_TRUE(parse(Flags::Environment::kNamed, &none).ok());
  EXPECT_EQ(none.tokens, 4);
  ASSERT_EQ(setenv("SRU_TOKENS", "many", 1), 0);
  EXPECT_EQ(parse(Flags::Environment::kAll, &all),
            absl::InvalidArgumentError("SRU_TOKENS: expected a whole number, found 'many'"));

  Flags flags;
  std::string place = "there";
  flags.Add("place", &place, "Where.");
  flags.Variable("SRU_ADDRESS");
  ASSERT_TRUE(flags.Parse({}).ok());
  EXPECT_EQ(place, "there") << "an empty variable is none";
  EXPECT_EQ(flags.Help(), "  --place  Where. (default there, or $SRU_ADDRESS)\n");
  for (const char* name : {"SRU_TOKENS", "SRU_MB", "SRU_ADDRESS"}) unsetenv(name);
}

TEST(FlagsTest, HelpHasGroupsAndDefaults) {
  TestOptions options;
  Flags flags;
  AddFlags(&options, &flags);
  EXPECT_EQ(flags.Help(),
            "Numbers:\n"
            "  --tokens    How many. (default 4)\n"
            "  --mb        How much. (default 0)\n"
            "\nOthers:\n"
            "  --address   Where. (default here)\n"
            "  --pin       Whether.\n"
            "  --wait      How long. (default 10s)\n"
            "  --age_s     How old. (default 0)\n"
            "  --pause_us  How short. (default 20)\n"
            "  --fruit     Which. (default pear)\n"
            "  --reversed  What. (default ba)\n"
            "  --names     Who.\n"
            "  --stop      When.\n"
            "\nRarely changed:\n"
            "  --share     Which part. (default 0.5)\n");
  EXPECT_EQ(flags.Help({"pin", "share"}),
            "Others:\n  --pin    Whether.\n\nRarely changed:\n"
            "  --share  Which part. (default 0.5)\n");
  for (const char* help : {"--help", "-h", "--help=all"}) {
    Flags asked;
    AddFlags(&options, &asked);
    EXPECT_TRUE(asked.Parse({"--tokens=5", help, "--no_such_flag", "text"}).ok()) << help;
    EXPECT_TRUE(asked.help_requested());
    EXPECT_EQ(asked.full_help_requested(), std::string(help) == "--help=all");
    EXPECT_EQ(options.tokens, 4);
  }
}

TEST(FlagsTest, LongHelpIsWrapped) {
  Flags flags;
  bool x = true;
  flags.Add("x", &x, std::string(90, 'a') + " b c d");
  EXPECT_EQ(flags.Help(), "  --x  " + std::string(90, 'a') + " b\n       c d (default true)\n");
}

TEST(FlagsTest, VariablesThatNobodyReads) {
  TestOptions options;
  Flags flags(Flags::Environment::kAll);
  AddFlags(&options, &flags);
  const char* const environment[] = {
      "PATH=/bin", "SRU_TOKENS=fine", "SRU_TOKENZ=9", "SRU_TLS_CA=of the client", "SRU_TEST_SEED=1",
      // Kubernetes, for the services sru and sru-server.
      "SRU_SERVICE_HOST=10.0.0.1", "SRU_SERVICE_PORT_GRPC=1", "SRU_PORT=tcp://1",
      "SRU_PORT_50051_TCP_ADDR=1", "SRU_SERVER_SERVICE_HOST=1", "SRU_SERVER_PORT_9090_TCP=1",
      "SRU_TRANSPORT", nullptr};
  EXPECT_THAT(flags.UnknownVariables(environment),
              ElementsAre("environment variable SRU_TOKENZ has no effect: there is no such flag; "
                          "did you mean SRU_TOKENS?",
                          "environment variable SRU_TRANSPORT has no effect: there is no such "
                          "flag"));
  EXPECT_THAT(flags.UnknownVariables(nullptr), IsEmpty());
}

TEST(FlagsTest, JoinChoices) {
  EXPECT_EQ(Flags::JoinChoices({}), "");
  EXPECT_EQ(Flags::JoinChoices({"a"}), "a");
  EXPECT_EQ(Flags::JoinChoices({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace sru
