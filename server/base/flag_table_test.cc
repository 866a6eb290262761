#include "server/base/flag_table.h"

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Fruit { kApple, kPear };

struct TestOptions {
  std::string address = "here";
  int tokens = 4;
  int64_t megabytes = 0;
  int lines = 100;
  bool pin = false;
  absl::Duration interval = absl::Milliseconds(500);
  absl::Duration age = absl::InfiniteDuration();
  absl::Duration pause = absl::Microseconds(20);
  Fruit fruit = Fruit::kPear;
  std::string reversed = "ab";
};

absl::StatusOr<std::string> ParseReversed(absl::string_view flag, absl::string_view text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected text, found ''"));
  }
  return std::string(text.rbegin(), text.rend());
}

void AddFlags(TestOptions* options, FlagTable* flags) {
  flags->Add("test_address", &options->address, "Where.");
  flags->Add("test_tokens", &options->tokens, {-8, 64}, "How many.");
  flags->Add("test_mb", &options->megabytes, {16, 1000, /*or_zero=*/true}, "How much.");
  flags->Add("test_lines", &options->lines, {0}, "How often.");
  flags->Add("test_pin", &options->pin, "Whether.");
  flags->AddSeconds("test_interval_s", &options->interval, {absl::Milliseconds(10), absl::Hours(1)},
                    "How long.");
  flags->AddSeconds("test_age_s", &options->age,
                    {absl::Milliseconds(1), absl::Hours(1), /*or_never=*/true}, "How old.");
  flags->AddMicroseconds("test_pause_us", &options->pause, {absl::ZeroDuration(), absl::Seconds(1)},
                         "How short.");
  flags->AddChoice<Fruit>("test_fruit", &options->fruit,
                          {{"apple", Fruit::kApple}, {"pear", Fruit::kPear}}, "Which.");
  flags->AddParsed("test_reversed", &options->reversed, "ba", ParseReversed, "What.");
}

// What a command line makes of the options.
absl::StatusOr<TestOptions> Parse(const std::vector<std::string>& arguments) {
  TestOptions options;
  FlagTable flags;
  AddFlags(&options, &flags);
  absl::Status status = flags.SetFromArguments(arguments);
  status.Update(flags.Check());
  if (!status.ok()) return status;
  return options;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const absl::Status status = Parse(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(FlagTableTest, SetsFields) {
  const absl::StatusOr<TestOptions> options =
      Parse({"--test_address=a=b", "--test_tokens", "-7", "-test_interval_s=1e-1", "--test_pin",
             "--test_address=", "--test_mb=16", "--test_lines=0", "--test_age_s=2.5",
             "--test_pause_us=250", "--test_fruit=apple", "--test_reversed=xyz"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->address, "");  // the last one counts
  EXPECT_EQ(options->tokens, -7);
  EXPECT_EQ(options->megabytes, 16);
  EXPECT_EQ(options->lines, 0);
  EXPECT_TRUE(options->pin);
  EXPECT_EQ(options->interval, absl::Milliseconds(100));
  EXPECT_EQ(options->age, absl::Milliseconds(2500));
  EXPECT_EQ(options->pause, absl::Microseconds(250));
  EXPECT_EQ(options->fruit, Fruit::kApple);
  EXPECT_EQ(options->reversed, "zyx");
  EXPECT_FALSE(Parse({"--test_pin", "--notest_pin"})->pin);
  EXPECT_TRUE(Parse({"--test_pin=true"})->pin);
  EXPECT_EQ(Parse({"--test_age_s=1", "--test_age_s=0"})->age, absl::InfiniteDuration());
}

TEST(FlagTableTest, WhatNoFlagSetsKeepsItsDefault) {
  const absl::StatusOr<TestOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->address, "here");
  EXPECT_EQ(options->tokens, 4);
  EXPECT_EQ(options->age, absl::InfiniteDuration());
  EXPECT_EQ(options->fruit, Fruit::kPear);
  EXPECT_EQ(options->reversed, "ab");
}

TEST(FlagTableTest, ErrorsNameWhatWasExpectedAndFound) {
  EXPECT_EQ(ErrorOf({"--test_tokens=many"}),
            "--test_tokens: expected a whole number, found 'many'");
  EXPECT_EQ(ErrorOf({"--test_tokens=99999999999"}),
            "--test_tokens: expected a whole number, found '99999999999'");
  EXPECT_EQ(ErrorOf({"--test_interval_s=\n"}), "--test_interval_s: expected a number, found '\\n'");
  EXPECT_EQ(ErrorOf({"--test_pin=maybe"}), "--test_pin: expected true or false, found 'maybe'");
  EXPECT_EQ(ErrorOf({"--test_tokens"}), "--test_tokens: expected a whole number, found nothing");
  EXPECT_EQ(ErrorOf({"--test_address"}), "--test_address: expected a value, found nothing");
  EXPECT_EQ(ErrorOf({"--test_fruit=plum"}), "--test_fruit: expected apple or pear, found 'plum'");
  EXPECT_EQ(ErrorOf({"--test_reversed="}), "--test_reversed: expected text, found ''");
  EXPECT_EQ(ErrorOf({"--test_token=3"}),
            "--test_token: there is no such option, see --help; did you mean --test_tokens?");
  EXPECT_EQ(ErrorOf({"--zzz"}), "--zzz: there is no such option, see --help");
  EXPECT_EQ(ErrorOf({"--notest_tokens"}),
            "--notest_tokens: there is no such option, see --help; "
            "did you mean --test_tokens?");
  for (const std::string stray : {"stray", "-", "--", ""}) {
    EXPECT_EQ(ErrorOf({stray}),
              "unexpected argument '" + stray + "'; options start with --, see --help");
  }
}

TEST(FlagTableTest, RangesAreChecked) {
  EXPECT_EQ(ErrorOf({"--test_tokens=65"}), "--test_tokens: expected -8 to 64, found 65");
  EXPECT_EQ(ErrorOf({"--test_tokens=-9"}), "--test_tokens: expected -8 to 64, found -9");
  EXPECT_TRUE(Parse({"--test_tokens=64", "--test_mb=0"}).ok());
  EXPECT_EQ(ErrorOf({"--test_mb=15"}), "--test_mb: expected 0 or 16 to 1000, found 15");
  EXPECT_EQ(ErrorOf({"--test_lines=-1"}), "--test_lines: expected 0 or more, found -1");
  EXPECT_EQ(ErrorOf({"--test_interval_s=0"}), "--test_interval_s: expected 10ms to 1h, found 0");
  EXPECT_EQ(ErrorOf({"--test_interval_s=3601"}),
            "--test_interval_s: expected 10ms to 1h, found 1h1s");
  EXPECT_EQ(ErrorOf({"--test_age_s=-1"}),
            "--test_age_s: expected 0 (never) or 1ms to 1h, found -1s");
  EXPECT_EQ(ErrorOf({"--test_pause_us=1000001"}),
            "--test_pause_us: expected 0 to 1s, found 1.000001s");
}

// Fields that were set without a flag.
TEST(FlagTableTest, ChecksTheRangesOfAStruct) {
  TestOptions options;
  EXPECT_TRUE(CheckRanges(options).ok());
  options.tokens = 100;
  EXPECT_EQ(CheckRanges(options),
            absl::InvalidArgumentError("--test_tokens: expected -8 to 64, found 100"));
}

// So that a wrong flag is reported in the format that another one asks for.
TEST(FlagTableTest, WhatIsRightIsSetAllTheSameAndTheFirstErrorReported) {
  TestOptions options;
  FlagTable flags;
  AddFlags(&options, &flags);
  const absl::Status status =
      flags.SetFromArguments({"--nosuch", "--test_tokens=x", "--test_fruit=apple"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("--nosuch"));
  options.lines = -1;
  EXPECT_THAT(std::string(flags.Check().message()), HasSubstr("--test_lines"));
  EXPECT_EQ(options.fruit, Fruit::kApple);
}

TEST(FlagTableTest, TheEnvironmentIsReadAndTheCommandLineWins) {
  TestOptions options;
  FlagTable flags;
  AddFlags(&options, &flags);
  std::map<std::string, std::string> environment = {
      {"SRU_TEST_TOKENS", "5"}, {"SRU_TEST_LINES", "6"}, {"SRU_TEST_FRUIT", "apple"}};
  const auto get_env = [&environment](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  };
  ASSERT_TRUE(flags.SetFromEnvironment(get_env).ok());
  ASSERT_TRUE(flags.SetFromArguments({"--test_lines=7"}).ok());
  ASSERT_TRUE(flags.Check().ok());
  EXPECT_EQ(options.tokens, 5);
  EXPECT_EQ(options.lines, 7);
  EXPECT_EQ(options.fruit, Fruit::kApple);
  environment["SRU_TEST_TOKENS"] = "many";
  EXPECT_EQ(flags.SetFromEnvironment(get_env),
            absl::InvalidArgumentError("SRU_TEST_TOKENS: expected a whole number, found 'many'"));
}

TEST(FlagTableTest, HelpShowsDefaultsOfTheStruct) {
  TestOptions options;
  options.address = "";
  FlagTable flags;
  AddFlags(&options, &flags);
  EXPECT_EQ(flags.Help(),
            "  --test_address  [SRU_TEST_ADDRESS]\n      Where.\n"
            "  --test_tokens=4  [SRU_TEST_TOKENS]\n      How many.\n"
            "  --test_mb=0  [SRU_TEST_MB]\n      How much.\n"
            "  --test_lines=100  [SRU_TEST_LINES]\n      How often.\n"
            "  --test_pin=false  [SRU_TEST_PIN]\n      Whether.\n"
            "  --test_interval_s=0.5  [SRU_TEST_INTERVAL_S]\n      How long.\n"
            "  --test_age_s=0  [SRU_TEST_AGE_S]\n      How old.\n"
            "  --test_pause_us=20  [SRU_TEST_PAUSE_US]\n      How short.\n"
            "  --test_fruit=pear  [SRU_TEST_FRUIT]\n      Which.\n"
            "  --test_reversed=ba  [SRU_TEST_REVERSED]\n      What.\n");
}

TEST(FlagTableTest, NearestFlag) {
  const std::vector<absl::string_view> names = {"listen", "max_batch_tokens", "max_queue_tokens"};
  EXPECT_EQ(NearestFlag("lisetn", names), "listen");
  EXPECT_EQ(NearestFlag("max_batch_token", names), "max_batch_tokens");
  EXPECT_EQ(NearestFlag("max_tokens", names), "");
  EXPECT_EQ(NearestFlag("x", names), "");
  EXPECT_EQ(NearestFlag("", names), "");
}

TEST(FlagTableTest, JoinChoices) {
  EXPECT_EQ(JoinChoices({}), "");
  EXPECT_EQ(JoinChoices({"a"}), "a");
  EXPECT_EQ(JoinChoices({"a", "b"}), "a or b");
  EXPECT_EQ(JoinChoices({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace sru::server
