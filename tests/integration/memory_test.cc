// The memory that callers can make a real server hold, and its refusal to hold more: compressed
// messages, the budget of calls, answers that nobody takes.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/unread_call.h"
#include "tests/testing/slow_connection.h"

namespace sru::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

constexpr char kEncode[] = "/sru.v1.InferenceService/Encode";
constexpr char kMemoryRejections[] =
    "sru_rejections_total{model=\"trec\",version=\"1\",reason=\"memory\"}";

// A call of this many sequences of 1024 tokens, with 128 floats per token in the answer: 512 KiB
// per sequence.
v1::EncodeRequest TokenVectors(int sequences) {
  v1::EncodeRequest request;
  for (int s = 0; s < sequences; ++s) {
    v1::TokenIds* ids = request.add_sequences()->mutable_token_ids();
    for (int t = 0; t < 1024; ++t) ids->add_values(t % 100);
  }
  request.set_pooling(v1::POOLING_NONE);
  request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  return request;
}

v1::ClassifyRequest Question() {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Who wrote Hamlet ?");
  return request;
}

class CompressionTest : public ::testing::TestWithParam<grpc_compression_algorithm> {
 protected:
  grpc::Status Classify(RunningServer* server) const {
    grpc::ClientContext context;
    context.set_compression_algorithm(GetParam());
    v1::ClassifyRequest request = Question();
    // Repetition makes it worth compressing.
    request.mutable_sequences(0)->set_text(std::string(1000, 'a'));
    v1::ClassifyResponse response;
    return server->stub().Classify(&context, request, &response);
  }
};

TEST_P(CompressionTest, IsRefusedOnBothPorts) {
  server::Options options = TestOptions(kBundledRepository);
  options.admin_listen = server::ListenAddress{"127.0.0.1", 0};
  options.models.control = server::lifecycle::ModelControl::kExplicit;
  options.models.load_models = {"trec"};
  RunningServer server(options);
  EXPECT_EQ(Classify(&server).error_code(), StatusCode::UNIMPLEMENTED);

  const auto admin = server.AdminStub();
  grpc::ClientContext context;
  context.set_compression_algorithm(GetParam());
  v1::LoadModelRequest load;
  load.set_model(std::string(1000, 'a'));
  v1::LoadModelResponse loaded;
  EXPECT_EQ(admin->LoadModel(&context, load, &loaded).error_code(), StatusCode::UNIMPLEMENTED);

  server.Must(Question());
}

TEST_P(CompressionTest, IsTakenWithTheFlag) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.allow_compression = true;
  RunningServer server(options);
  const grpc::Status status = Classify(&server);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

INSTANTIATE_TEST_SUITE_P(Algorithms, CompressionTest,
                         ::testing::Values(GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE));

TEST(MemoryTest, LimitsAndBytesCanBeSeen) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.max_receive_mb = 100;
  options.memory.max_inflight_mb = 50;
  RunningServer server(options);
  EXPECT_EQ(server.Metric("sru_receive_memory_limit_bytes"), 100e6);
  EXPECT_EQ(server.Metric("sru_inflight_limit_bytes"), 50e6);
  EXPECT_EQ(server.Metric("sru_received_message_bytes_total"), 0);
  server.Must(Question());
  EXPECT_EQ(server.Metric("sru_received_message_bytes_total"),
            static_cast<double>(Question().ByteSizeLong()));
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
}

TEST(MemoryTest, ACallThatCanNeverFitIsToldSo) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.max_inflight_mb = 1;
  RunningServer server(options);
  v1::EncodeResponse response;
  const grpc::Status status = server.Call(TokenVectors(1), &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_inflight_mb"));
  EXPECT_THAT(status.error_message(), HasSubstr("send smaller calls"));
  EXPECT_FALSE(HasRetryInfo(status));
  EXPECT_EQ(server.Metric(kMemoryRejections), 1);
  server.Must(Question());
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
}

TEST(MemoryTest, AnswersThatNobodyTakesCountUntilTheirConnectionEnds) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.max_inflight_mb = 5;  // of which one caller gets four fifths
  options.memory.send_timeout = absl::InfiniteDuration();
  RunningServer server(options);
  const std::string message = TokenVectors(1).SerializeAsString();
  const int port = server.port();
  std::vector<std::unique_ptr<UnreadCall>> unread;
  for (int i = 0; i < 5; ++i) {
    unread.push_back(std::make_unique<UnreadCall>(port, kEncode, message));
    ASSERT_TRUE(server.Becomes("sru_unsent_answers", i + 1));
  }
  // Each takes 512 KiB now, and three times as much while a further one is computed.
  EXPECT_GE(server.Metric("sru_inflight_bytes"), 5 * 512 * 1024);
  v1::EncodeResponse response;
  grpc::Status status = server.Call(TokenVectors(1), &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("retry later"));
  EXPECT_TRUE(HasRetryInfo(status));
  EXPECT_EQ(server.Metric(kMemoryRejections), 1);
  EXPECT_TRUE(server.Becomes("sru_requests_in_flight", 0)) << "they were answered";

  for (auto& call : unread) call->Close();
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
  status = server.Call(TokenVectors(1), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(MemoryTest, AnAnswerThatIsNotTakenInTimeCostsTheConnection) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.send_timeout = absl::Milliseconds(200);
  if (options.transport.transport == server::door::GrpcTransport::kLibrary) {
    GTEST_SKIP() << "gRPC's library keeps answers for any length of time";
  }
  RunningServer server(options);
  UnreadCall unread(server.port(), kEncode, TokenVectors(1).SerializeAsString());
  EXPECT_TRUE(unread.IsClosedByServer());
  EXPECT_TRUE(server.Becomes("sru_inflight_bytes", 0));
  EXPECT_EQ(server.Metric("sru_unsent_answers"), 0);
  EXPECT_EQ(server.Metric("sru_answers_not_taken_total"), 1);
  // Other clients are still served, on connections that are just as old.
  server.Must(TokenVectors(1));
  EXPECT_EQ(server.Metric("sru_answers_not_taken_total"), 1);

  std::string text;
  for (int t = 0; t < 1000; ++t) text += "a ";
  const std::string body =
      absl::StrCat(R"({"sequences":[{"text":")", text, R"("}],"pooling":"POOLING_NONE"})");
  SlowConnection over_http(
      server.port(),
      absl::StrCat("POST /v1/encode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                   "\r\nContent-Length: ",
                   body.size(), "\r\n\r\n", body),
      /*receive_buffer=*/4096);
  EXPECT_TRUE(server.Becomes("sru_answers_not_taken_total", 2));
}

TEST(MemoryTest, ADrainDoesNotWaitForWhoDoesNotRead) {
  server::Options options = TestOptions(kBundledRepository);
  options.memory.send_timeout = absl::InfiniteDuration();
  options.drain_timeout = absl::Minutes(10);
  RunningServer server(options);
  UnreadCall unread(server.port(), kEncode, TokenVectors(1).SerializeAsString());
  ASSERT_TRUE(server.Becomes("sru_unsent_answers", 1));
  EXPECT_TRUE(server.server().Drain());
}

}  // namespace
}  // namespace sru::testing
