#include "bench/load_generator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <fstream>
#include <numeric>

#include "absl/time/clock.h"
#include "bench/loopback.h"
#include "bench/report.h"
#include "bench/requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "tests/testing/fake_server.h"

namespace sru::bench {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

std::string Request(const std::string& text) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text(text);
  return request.SerializeAsString();
}

LoadOptions MakeOptions(const client::FakeServer& server) {
  LoadOptions options;
  options.address = server.address();
  options.method = "/sru.v1.InferenceService/Classify";
  options.warmup = absl::ZeroDuration();
  options.duration = absl::Seconds(60);
  return options;
}

TEST(LoadGeneratorTest, ClosedLoopSendsAsManyCallsAsAsked) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.in_flight = 7;
  options.threads = 3;
  options.connections = 4;
  options.calls = 500;
  auto result = RunLoad(options, {Request("text"), Request("other")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls, 500);
  EXPECT_EQ(result->ok, 500);
  EXPECT_EQ(result->good, 500);
  EXPECT_EQ(result->latency.count(), 500);
  EXPECT_EQ(result->codes[absl::StatusCode::kOk], 500);
  EXPECT_EQ(server.num_calls(), 500);
  EXPECT_GT(result->throughput(), 0);
}

TEST(LoadGeneratorTest, OpenLoopSendsAsManyCallsAsAsked) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.rate = 2000;
  options.calls = 300;
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls, 300);
  EXPECT_EQ(result->ok, 300);
  EXPECT_EQ(server.num_calls(), 300);
  // 300 arrivals at 2,000 per second take 150 ms, with a standard deviation of 9 ms.
  EXPECT_GT(result->elapsed_s, 0.09);
}

TEST(LoadGeneratorTest, RefusalsAndFailuresAreCountedApart) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.in_flight = 1;
  options.calls = 10;
  server.FailNext({client::FakeServer::Overloaded(0, 1), client::FakeServer::Overloaded(0, 1),
                   grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"),
                   grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "top_k: negative")});
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ok, 6);
  EXPECT_EQ(result->refused.count(), 3);
  EXPECT_EQ(result->failed.count(), 1);
  EXPECT_EQ(result->codes[absl::StatusCode::kResourceExhausted], 2);
  EXPECT_EQ(result->codes[absl::StatusCode::kUnavailable], 1);
  EXPECT_EQ(result->first_error[absl::StatusCode::kInvalidArgument], "top_k: negative");
  EXPECT_THAT(ResultText(options, *result), HasSubstr("first: top_k: negative"));
  const auto json = ResultJson(options, *result);
  EXPECT_EQ(json["codes"]["RESOURCE_EXHAUSTED"], 2);
  EXPECT_EQ(json["refused_us"]["count"], 3);
}

// The server stalls: arrivals continue, and every one is accounted for.
TEST(LoadGeneratorTest, OpenLoopCountsWhatItCouldNotSend) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.rate = 1000;
  options.calls = 50;
  options.threads = 1;
  options.max_outstanding = 4;
  options.deadline = absl::Seconds(1);
  auto result = RunLoad(options, {Request("hang")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ok, 0);
  EXPECT_EQ(result->calls + result->unsent, 50);
  EXPECT_EQ(result->codes[absl::StatusCode::kDeadlineExceeded], result->calls);
  EXPECT_THAT(result->unsent, AllOf(Ge(1), Le(46)));
}

TEST(LoadGeneratorTest, GathersCallsForTheSendInterval) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.rate = 2000;
  options.calls = 200;
  options.warmup = absl::ZeroDuration();
  options.send_interval = absl::Milliseconds(100);
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ok, 200);
  // Latency counts from their own times, so on average they are late by half of the interval.
  EXPECT_GT(result->latency.Percentile(50), 20e6);
}

// While the server allows no more calls, the client must not take the cores from it by polling.
TEST(LoadGeneratorTest, SleepsWhileTheServerTakesNoCall) {
  client::FakeServer server(/*max_streams=*/2);
  LoadOptions options = MakeOptions(server);
  options.rate = 1000;
  options.calls = 50;
  options.threads = 1;
  options.connections = 1;
  options.deadline = absl::Milliseconds(500);
  const std::clock_t cpu_start = std::clock();
  const absl::Time start = absl::Now();
  auto result = RunLoad(options, {Request("hang")});
  const double cpu_s = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls + result->unsent, 50);
  EXPECT_LT(cpu_s, 0.5 * absl::ToDoubleSeconds(absl::Now() - start));
}

// Larger than HTTP/2's windows and frames at the start of a connection, and several at a time.
TEST(LoadGeneratorTest, LargeRequestsAreCutIntoFrames) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.in_flight = 5;
  options.calls = 20;
  const std::string large(1000000, 'x');
  auto result = RunLoad(options, {Request(large), Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ok, 20);
  options.in_flight = 1;
  options.calls = 1;
  result = RunLoad(options, {Request(large)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.requests<v1::ClassifyRequest>().back().sequences(0).text(), large);
}

TEST(LoadGeneratorTest, EndsEarlyWhenTheServerGoesAway) {
  auto server = std::make_unique<client::FakeServer>();
  LoadOptions options = MakeOptions(*server);
  options.in_flight = 4;
  options.on_progress = [&](const Progress&) { server.reset(); };
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->connection_lost);
  EXPECT_GT(result->ok, 0);
  EXPECT_LT(result->elapsed_s, 50);
}

TEST(LoadGeneratorTest, TheServersDeadlineIsTheCalls) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.in_flight = 1;
  options.calls = 1;
  options.deadline = absl::Milliseconds(50);
  auto result = RunLoad(options, {Request("hang")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->codes[absl::StatusCode::kDeadlineExceeded], 1);
  EXPECT_EQ(result->failed.count(), 1);
  EXPECT_GE(result->failed.min(), 45000000);
}

TEST(LoadGeneratorTest, TheWarmUpIsNotCounted) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  options.in_flight = 1;
  options.warmup = absl::Milliseconds(50);
  options.calls = 20;
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls, 20);
  EXPECT_GT(server.num_calls(), 20);
}

TEST(LoadGeneratorTest, StopsWhenTold) {
  client::FakeServer server;
  LoadOptions options = MakeOptions(server);
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.on_progress = [&](const Progress& progress) { stop = progress.ok > 0; };
  auto result = RunLoad(options, {Request("text")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->ok, 0);
  EXPECT_LT(result->elapsed_s, 50);
}

TEST(LoadGeneratorTest, SaysWhenNobodyListens) {
  LoadOptions options;
  options.address = client::DeadAddress();
  options.method = "/sru.v1.InferenceService/Classify";
  EXPECT_EQ(RunLoad(options, {Request("text")}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(LoadGeneratorTest, OptionsAreChecked) {
  const auto message = [](auto change) {
    LoadOptions options;
    options.address = "127.0.0.1:1";
    change(&options);
    const absl::Status status = RunLoad(options, {"x"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  for (const absl::Duration out_of_range : {absl::Milliseconds(-1), absl::Seconds(2)}) {
    EXPECT_THAT(message([&](LoadOptions* o) { o->send_interval = out_of_range; }),
                HasSubstr("--send_interval: expected 0s to 1s"));
  }
  EXPECT_THAT(message([](LoadOptions* o) { o->deadline = absl::ZeroDuration(); }),
              HasSubstr("deadline"));
  EXPECT_THAT(message([](LoadOptions* o) { o->duration = absl::ZeroDuration(); }),
              HasSubstr("duration"));
  EXPECT_THAT(message([](LoadOptions* o) { o->address = "192.0.2.1:50051"; }),
              HasSubstr("not this machine"));
}

TEST(ResolveLoopbackTest, AllowsThisMachineOnly) {
  for (const char* address :
       {"127.0.0.1:50051", "127.8.9.10:1", "[::1]:50051", "localhost:50051", "unix:/tmp/socket"}) {
    EXPECT_TRUE(ResolveLoopback(address).ok()) << address;
  }
  for (const char* address :
       {"192.0.2.1:50051", "0.0.0.0:50051", "[2001:db8::1]:50051", "10.0.0.1:50051", "127.0.0.1",
        "127.0.0.1:0", ":50051", "", "dns:///127.0.0.1:50051", "no-such-host.invalid:50051"}) {
    EXPECT_EQ(ResolveLoopback(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(DrawLengthsTest, FollowsTheSpecification) {
  auto lengths = DrawLengths("fixed:7", 100, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(*lengths, Each(7));
  lengths = DrawLengths("uniform:3:9", 1000, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(*lengths, Each(AllOf(Ge(3), Le(9))));
  EXPECT_EQ(*std::min_element(lengths->begin(), lengths->end()), 3);
  EXPECT_EQ(*std::max_element(lengths->begin(), lengths->end()), 9);
  lengths = DrawLengths("exponential:20:100", 1000, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_THAT(*lengths, Each(AllOf(Ge(1), Le(100))));
  for (const char* wrong : {"", "fixed", "fixed:0", "fixed:x", "uniform:9:3", "uniform:3",
                            "normal:1:2", "exponential:5:4", "fixed:1:2", "fixed:1000000000",
                            "geometric:5", "geometric:5:4", "lognormal:5:10", "lognormal:5:0:10",
                            "lognormal:5:nan:10", "lognormal:5:11:10", "lognormal:50:1:10"}) {
    EXPECT_EQ(DrawLengths(wrong, 10, 1).status().code(), absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(DrawLengthsTest, SkewedLengthsHaveTheirMeanOrMedian) {
  auto lengths = DrawLengths("geometric:20:100000", 20000, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ(*std::min_element(lengths->begin(), lengths->end()), 1);
  // The mean of 20,000 has a standard deviation of 0.14, that of the logarithm below one of 0.007.
  EXPECT_NEAR(std::accumulate(lengths->begin(), lengths->end(), 0.0) / 20000, 20, 0.7);
  EXPECT_THAT(*DrawLengths("geometric:1:9", 100, 1), Each(1));

  lengths = DrawLengths("lognormal:200:0.8:100000", 20000, 1);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  std::sort(lengths->begin(), lengths->end());
  EXPECT_NEAR((*lengths)[10000], 200, 8);
  EXPECT_NEAR(std::log((*lengths)[16827] / 200.0), 0.8, 0.04);  // one sigma: 84.13%
  EXPECT_THAT(*DrawLengths("lognormal:200:2:300", 1000, 1), Each(AllOf(Ge(1), Le(300))));

  EXPECT_EQ(DrawLengths("fixed:x", 1, 1, "prompt").status().message(),
            "--prompt: expected numbers from 1 to 100000, found 'x'");
}

TEST(MakeRequestsTest, FillsCallsWithSequences) {
  RequestOptions options;
  options.sequences = 5;
  options.model = "m";
  options.priority = v1::PRIORITY_LOW;
  options.lengths = "fixed:3";
  v1::ModelInfo info;
  info.set_vocabulary_size(10);
  auto requests = MakeRequests(options, info);
  ASSERT_TRUE(requests.ok()) << requests.status();
  v1::ClassifyRequest request;
  ASSERT_TRUE(request.ParseFromString(requests->back()));
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.priority(), v1::PRIORITY_LOW);
  ASSERT_EQ(request.sequences_size(), 5);
  EXPECT_THAT(request.sequences(4).token_ids().values(), Each(AllOf(Ge(0), Le(9))));
  EXPECT_EQ(request.sequences(4).token_ids().values_size(), 3);

  info.set_vocabulary_size(0);
  info.set_input_size(6);
  options.method = "encode";
  requests = MakeRequests(options, info);
  ASSERT_TRUE(requests.ok()) << requests.status();
  v1::EncodeRequest encode;
  ASSERT_TRUE(encode.ParseFromString(requests->front()));
  EXPECT_EQ(encode.sequences(0).features().feature_size(), 6);
  EXPECT_EQ(encode.sequences(0).features().data().size(), 3u * 6 * 4);
}

std::string WriteRequests(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/load_generator_test.requests";
  std::ofstream(path) << text;
  return path;
}

TEST(MakeRequestsTest, RequestsOfAFileAreThoseOfAnyUnaryMethod) {
  RequestOptions options;
  options.method = "translate";
  options.requests = WriteRequests(
      "{\"model\": \"en_de\", \"sequences\": [{\"text\": \"Hi.\"}], \"beam_size\": 5}\n\n{}\n");
  EXPECT_EQ(*MethodPath(options), "/sru.v1.InferenceService/Translate");
  auto requests = MakeRequests(options, {});
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_THAT(*requests, ElementsAre(_, ""));
  v1::TranslateRequest translate;
  ASSERT_TRUE(translate.ParseFromString(requests->front()));
  EXPECT_EQ(translate.sequences(0).text(), "Hi.");
  EXPECT_EQ(translate.beam_size(), 5);

  options.method = "/inference.GRPCInferenceService/ModelInfer";
  options.requests = WriteRequests("{\"model_name\": \"trec\"}");
  EXPECT_EQ(*MethodPath(options), options.method);
  requests = MakeRequests(options, {});
  ASSERT_TRUE(requests.ok()) << requests.status();
  inference::ModelInferRequest infer;
  ASSERT_TRUE(infer.ParseFromString(requests->front()));
  EXPECT_EQ(infer.model_name(), "trec");
}

TEST(MakeRequestsTest, ErrorsOfAFileOfRequestsNameTheLine) {
  RequestOptions options;
  options.method = "Classify";
  EXPECT_THAT(std::string(MethodPath(options).status().message()), HasSubstr("--requests"));
  options.requests = WriteRequests("{}\n{\"sequence\": 1}\n");
  EXPECT_THAT(std::string(MakeRequests(options, {}).status().message()),
              AllOf(HasSubstr("--requests: "), HasSubstr(":2: expected a ClassifyRequest as JSON"),
                    HasSubstr("sequence")));
  options.requests = WriteRequests("\n");
  EXPECT_THAT(std::string(MakeRequests(options, {}).status().message()),
              HasSubstr("has no request"));
  for (const char* method : {"Generate", "Clasify", "/nowhere.Service/Call"}) {
    options.method = method;
    EXPECT_THAT(std::string(MethodPath(options).status().message()),
                AllOf(HasSubstr("--method: expected a unary method"), HasSubstr(method)));
  }
  options.method = "Classify";
  options.lengths = "fixed:1";
  EXPECT_THAT(std::string(MakeRequests(options, {}).status().message()), HasSubstr("excludes"));
}

TEST(MakeRequestsTest, ErrorsNameTheFlag) {
  const auto message = [](auto change) {
    RequestOptions options;
    change(&options);
    const absl::Status status = MakeRequests(options, v1::ModelInfo()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message([](RequestOptions* o) { o->input = "/no/such/file"; }), HasSubstr("--input"));
  EXPECT_THAT(message([](RequestOptions* o) { o->lengths = "x"; }), HasSubstr("--lengths"));
}

TEST(FormatTest, IsReadable) {
  EXPECT_EQ(FormatNs(0), "0 ns");
  EXPECT_EQ(FormatNs(412000), "412 us");
  EXPECT_EQ(FormatNs(41250), "41.2 us");
  EXPECT_EQ(FormatNs(3200000), "3.20 ms");
  EXPECT_EQ(FormatNs(1.05e9), "1.05 s");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
}

}  // namespace
}  // namespace sru::bench
