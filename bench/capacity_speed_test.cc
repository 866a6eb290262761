#include "bench/capacity_speed.h"

#include <string>

#include "bench/capacity_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BatchTimeTest, FitFindsTheTerms) {
  const BatchTime truth{12, 0.7, 1.5, 0.2};
  std::vector<BatchSample> samples;
  for (int64_t sequences : {1, 2, 8, 32, 128}) {
    for (int64_t length : {4, 10, 40}) {
      samples.push_back({sequences * length, sequences, 2 * length,
                         truth.Us(sequences * length, sequences, 2 * length)});
    }
  }
  const auto fit = FitBatchTime(samples);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->fixed_us, truth.fixed_us, 0.01);
  EXPECT_NEAR(fit->token_us, truth.token_us, 0.001);
  EXPECT_NEAR(fit->sequence_us, truth.sequence_us, 0.01);
  EXPECT_NEAR(fit->step_us, truth.step_us, 0.01);
  EXPECT_LT(LargestError(*fit, samples), 1e-4);
}

TEST(BatchTimeTest, NoPartIsNegative) {
  // Times that would want a negative fixed part.
  const auto fit = FitBatchTime({{10, 1, 10, 5}, {100, 10, 10, 100}, {1000, 100, 10, 1200}});
  ASSERT_TRUE(fit.ok()) << fit.status();
  for (double part : {fit->fixed_us, fit->token_us, fit->sequence_us, fit->step_us}) {
    EXPECT_GE(part, 0);
  }
  // One shape cannot tell the terms apart; one of them takes it all.
  const auto one = FitBatchTime({{10, 1, 10, 50}});
  ASSERT_TRUE(one.ok());
  EXPECT_NEAR(one->Us(10, 1, 10), 50, 1e-6);
  EXPECT_FALSE(FitBatchTime({}).ok());
  EXPECT_FALSE(FitBatchTime({{10, 1, 10, 0}}).ok());
}

TEST(MachineSpeedTest, IsReadAsItWasWritten) {
  models::TempDirectory directory;
  const std::string path = directory.path("speed.json");
  MachineSpeed speed;
  speed.machine = "a processor";
  speed.model = "trec version 1";
  speed.backend = "cpu";
  speed.dtype = "float32";
  speed.cores = 8;
  speed.batch = {10, 0.5, 1, 0.1};
  speed.call = {20, 5, 15, 1, 7};
  speed.client = {0, 3, 6, 0};
  speed.pauses = {2.5, {100, 200}};
  ASSERT_TRUE(SaveSpeed(speed, path).ok());
  const auto read = LoadSpeed(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->machine, speed.machine);
  EXPECT_EQ(read->cores, 8);
  EXPECT_EQ(read->batch.step_us, 0.1);
  EXPECT_EQ(read->call.wake_us, 20);
  EXPECT_EQ(read->call.crowd_us, 7);
  EXPECT_EQ(read->client.call_us, 6);
  EXPECT_EQ(read->pauses.per_s, 2.5);
  EXPECT_THAT(read->pauses.us, ElementsAre(100, 200));
}

TEST(MachineSpeedTest, OlderFilesKnowNoCrowd) {
  models::TempDirectory directory;
  MachineSpeed speed;
  speed.batch.fixed_us = 1;
  speed.call.crowd_us = 7;
  const std::string path = directory.path("speed.json");
  ASSERT_TRUE(SaveSpeed(speed, path).ok());
  nlohmann::json json = nlohmann::json::parse(models::ReadWholeFile(path));
  ASSERT_EQ(json["call"].erase("crowd_us"), 1u);
  const auto read = LoadSpeed(directory.Write("older.json", json.dump()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->call.crowd_us, 0);
  json["call"]["crowd_us"] = "7";
  EXPECT_THAT(LoadSpeed(directory.Write("wrong.json", json.dump())).status().message(),
              HasSubstr("call.crowd_us"));
}

TEST(MachineSpeedTest, WrongFilesAreExplained) {
  models::TempDirectory directory;
  MachineSpeed speed;
  speed.batch.fixed_us = 1;
  const std::string path = directory.path("speed.json");
  ASSERT_TRUE(SaveSpeed(speed, path).ok());
  const std::string good = models::ReadWholeFile(path);
  const struct {
    const char* from;
    const char* to;
    const char* named;
  } cases[] = {{"\"cores\": 1", "\"cores\": 0", "cores"},
               {"\"cores\": 1", "\"cores\": \"x\"", "cores"},
               {"\"fixed_us\": 1.0", "\"fixed_us\": -1", "batch.fixed_us"},
               {"\"fixed_us\": 1.0", "\"fixed_us\": 0", "batch"},
               {"wake_us", "wakes", "wake_us"},
               {"\"us\": []", "\"us\": [\"x\"]", "pauses.us"},
               {"\"us\": []", "\"us\": [-1]", "pauses.us"},
               {"\"machine\"", "\"machin\"", "machine"},
               {"{", "", "JSON"}};
  for (const auto& test : cases) {
    std::string text = good;
    const size_t at = text.find(test.from);
    ASSERT_NE(at, std::string::npos) << test.from;
    text.replace(at, std::string(test.from).size(), test.to);
    const auto read = LoadSpeed(directory.Write("wrong.json", text));
    ASSERT_FALSE(read.ok()) << test.to;
    EXPECT_THAT(read.status().message(), HasSubstr(test.named));
    EXPECT_THAT(read.status().message(), HasSubstr("wrong.json"));
  }
  EXPECT_THAT(LoadSpeed("/nowhere/speed.json").status().message(), HasSubstr("/nowhere"));
  EXPECT_THAT(SaveSpeed(speed, "/nowhere/speed.json").message(), HasSubstr("/nowhere"));
}

TEST(ReadLengthsTest, OneALine) {
  models::TempDirectory directory;
  const auto lengths =
      ReadLengths(directory.Write("lengths", "3\n\n 12 \n100000\n"), "length_file");
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(*lengths, ElementsAre(3, 12, 100000));
  for (const char* text : {"3\nx\n", "0\n", "100001\n", "1.5\n", "\n"}) {
    const auto wrong = ReadLengths(directory.Write("lengths", text), "length_file");
    EXPECT_THAT(wrong.status().message(), HasSubstr("--length_file")) << text;
  }
}

}  // namespace
}  // namespace sru::bench
