#include "server/command_line.h"

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, test_address, "here", "");
ABSL_FLAG(int32_t, test_tokens, 4, "");
ABSL_FLAG(double, test_seconds, 0.5, "");
ABSL_FLAG(bool, test_pin, false, "");

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<absl::string_view> kFlags = {"test_address", "test_tokens", "test_seconds",
                                               "test_pin"};

std::string ErrorOf(const std::vector<std::string>& arguments) {
  absl::FlagSaver saver;
  const absl::Status status = ApplyCommandLine(arguments, kFlags);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CommandLineTest, SetsFlags) {
  absl::FlagSaver saver;
  ASSERT_TRUE(ApplyCommandLine({"--test_address=a=b", "--test_tokens", "-7", "-test_seconds=1e-3",
                                "--test_pin", "--test_address="},
                               kFlags)
                  .ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_address), "");  // the last one counts
  EXPECT_EQ(absl::GetFlag(FLAGS_test_tokens), -7);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_seconds), 1e-3);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_pin));
  ASSERT_TRUE(ApplyCommandLine({"--notest_pin"}, kFlags).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_pin));
  ASSERT_TRUE(ApplyCommandLine({"--test_pin=true"}, kFlags).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_pin));
  EXPECT_TRUE(ApplyCommandLine({}, kFlags).ok());
}

TEST(CommandLineTest, ErrorsNameWhatWasExpectedAndFound) {
  EXPECT_EQ(ErrorOf({"--test_tokens=many"}),
            "--test_tokens: expected a whole number, found 'many'");
  EXPECT_EQ(ErrorOf({"--test_tokens=99999999999"}),
            "--test_tokens: expected a whole number, found '99999999999'");
  EXPECT_EQ(ErrorOf({"--test_seconds=\n"}), "--test_seconds: expected a number, found '\\n'");
  EXPECT_EQ(ErrorOf({"--test_pin=maybe"}), "--test_pin: expected true or false, found 'maybe'");
  EXPECT_EQ(ErrorOf({"--test_tokens"}), "--test_tokens: expected a whole number, found nothing");
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

// So that a wrong flag is reported in the format that another one asks for.
TEST(CommandLineTest, WhatIsRightIsSetAllTheSameAndTheFirstErrorReported) {
  absl::FlagSaver saver;
  const absl::Status status =
      ApplyCommandLine({"--nosuch", "--test_tokens=x", "--test_address=there"}, kFlags);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--nosuch"));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_address), "there");
}

TEST(CommandLineTest, VariablesThatNobodyReads) {
  const char* const environment[] = {
      "PATH=/bin", "SRU_TEST_ADDRESS=fine", "SRU_TOKENS=1", "SRU_ADDRESS=client", "SRU_TLS_CA=c",
      // Kubernetes, for the services sru and sru-server.
      "SRU_SERVICE_HOST=10.0.0.1", "SRU_SERVICE_PORT_GRPC=1", "SRU_PORT=tcp://1",
      "SRU_PORT_50051_TCP_ADDR=1", "SRU_SERVER_SERVICE_HOST=1", "SRU_SERVER_PORT_9090_TCP=1",
      "SRU_ELSE", nullptr};
  EXPECT_THAT(
      UnknownVariables(environment, kFlags),
      ElementsAre("environment variable SRU_ELSE has no effect: there is no such option",
                  "environment variable SRU_TOKENS has no effect: there is no such option"));
  const char* const mistyped[] = {"SRU_TOKENZ=9", nullptr};
  EXPECT_THAT(UnknownVariables(mistyped, {"tokens", "listen"}),
              ElementsAre("environment variable SRU_TOKENZ has no effect: there is no such option; "
                          "did you mean SRU_TOKENS?"));
  EXPECT_THAT(UnknownVariables(nullptr, kFlags), IsEmpty());
}

TEST(CommandLineTest, NearestName) {
  const std::vector<absl::string_view> names = {"listen", "max_batch_tokens", "max_queue_tokens"};
  EXPECT_EQ(NearestName("lisetn", names), "listen");
  EXPECT_EQ(NearestName("max_batch_token", names), "max_batch_tokens");
  EXPECT_EQ(NearestName("max_tokens", names), "");
  EXPECT_EQ(NearestName("x", names), "");
  EXPECT_EQ(NearestName("", names), "");
}

}  // namespace
}  // namespace sru::server
