// gRPC's interoperation tests with gRPC's C++ client, which decides for each message if it is
// compressed.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/interop/interop.grpc.pb.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"

namespace sru::testing {
namespace {

namespace pb = grpc::testing;
using grpc::StatusCode;

class InteropClientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new Subprocess({SRU_INTEROP_SERVER_BINARY, "--listen=127.0.0.1:0"});
    PollUntil([] { return !server_->out().empty() && server_->out().back() == '\n'; });
    const std::string line = server_->out();
    absl::string_view address = absl::StripSuffix(line, "\n");
    ASSERT_TRUE(absl::ConsumePrefix(&address, "listening on ")) << line << server_->err();
    channel_ = new std::shared_ptr<grpc::Channel>(
        grpc::CreateChannel(std::string(address), grpc::InsecureChannelCredentials()));
  }
  static void TearDownTestSuite() {
    delete channel_;
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    delete server_;
  }

  InteropClientTest() : stub_(pb::TestService::NewStub(*channel_)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  static Subprocess* server_;
  static std::shared_ptr<grpc::Channel>* channel_;
  std::unique_ptr<pb::TestService::Stub> stub_;
  grpc::ClientContext context_;
};
Subprocess* InteropClientTest::server_ = nullptr;
std::shared_ptr<grpc::Channel>* InteropClientTest::channel_ = nullptr;

// Whether calls learn that a message came compressed (tests/interop/differences.md).
bool KnowsCompressed() {
  const char* const transport = std::getenv("SRU_GRPC_TRANSPORT");
  return transport == nullptr || transport != absl::string_view("library");
}

pb::SimpleRequest LargeRequest() {
  pb::SimpleRequest request;
  request.set_response_size(314159);
  request.mutable_payload()->set_body(std::string(271828, '\0'));
  return request;
}

pb::StreamingOutputCallRequest OutputRequest(int wanted, size_t size) {
  pb::StreamingOutputCallRequest request;
  request.add_response_parameters()->set_size(wanted);
  request.mutable_payload()->set_body(std::string(size, '\0'));
  return request;
}

TEST_F(InteropClientTest, EmptyUnary) {
  pb::Empty answer;
  EXPECT_TRUE(stub_->EmptyCall(&context_, {}, &answer).ok());
}

TEST_F(InteropClientTest, LargeUnaryWithAndWithoutCompression) {
  for (const bool request_compressed : {false, true}) {
    for (const bool response_compressed : {false, true}) {
      grpc::ClientContext context;
      pb::SimpleRequest request = LargeRequest();
      request.mutable_expect_compressed()->set_value(request_compressed && KnowsCompressed());
      request.mutable_response_compressed()->set_value(response_compressed);
      if (request_compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
      pb::SimpleResponse answer;
      const grpc::Status status = stub_->UnaryCall(&context, request, &answer);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(answer.payload().body(), std::string(314159, '\0'));
    }
  }
}

TEST_F(InteropClientTest, ARequestThatShouldBeCompressedAndIsNot) {
  pb::SimpleRequest request = LargeRequest();
  request.mutable_expect_compressed()->set_value(true);
  pb::SimpleResponse answer;
  EXPECT_EQ(stub_->UnaryCall(&context_, request, &answer).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(InteropClientTest, ClientCompressedStreaming) {
  context_.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  pb::StreamingInputCallResponse answer;
  const auto writer = stub_->StreamingInputCall(&context_, &answer);
  pb::StreamingInputCallRequest request;
  request.mutable_payload()->set_body(std::string(27182, '\0'));
  request.mutable_expect_compressed()->set_value(KnowsCompressed());
  EXPECT_TRUE(writer->Write(request));
  request.mutable_payload()->set_body(std::string(45904, '\0'));
  request.mutable_expect_compressed()->set_value(false);
  EXPECT_TRUE(writer->Write(request, grpc::WriteOptions().set_no_compression()));
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.aggregated_payload_size(), 73086);
}

TEST_F(InteropClientTest, PingPong) {
  const auto call = stub_->FullDuplexCall(&context_);
  for (const int size : {31415, 9, 2653, 58979}) {
    ASSERT_TRUE(call->Write(OutputRequest(size, 27182)));
    pb::StreamingOutputCallResponse answer;
    ASSERT_TRUE(call->Read(&answer));
    EXPECT_EQ(answer.payload().body().size(), static_cast<size_t>(size));
  }
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(InteropClientTest, CustomMetadata) {
  context_.AddMetadata("x-grpc-test-echo-initial", "test_initial_metadata_value");
  context_.AddMetadata("x-grpc-test-echo-trailing-bin", "\xab\xab\xab");
  const auto call = stub_->FullDuplexCall(&context_);
  ASSERT_TRUE(call->Write(OutputRequest(314159, 271828)));
  call->WritesDone();
  pb::StreamingOutputCallResponse answer;
  ASSERT_TRUE(call->Read(&answer));
  EXPECT_FALSE(call->Read(&answer));
  EXPECT_TRUE(call->Finish().ok());
  const auto& initial = context_.GetServerInitialMetadata();
  const auto& trailing = context_.GetServerTrailingMetadata();
  ASSERT_EQ(initial.count("x-grpc-test-echo-initial"), 1U);
  EXPECT_EQ(initial.find("x-grpc-test-echo-initial")->second, "test_initial_metadata_value");
  ASSERT_EQ(trailing.count("x-grpc-test-echo-trailing-bin"), 1U);
  EXPECT_EQ(trailing.find("x-grpc-test-echo-trailing-bin")->second, "\xab\xab\xab");
}

TEST_F(InteropClientTest, StatusCodeAndMessage) {
  const std::string message =
      "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n";
  pb::SimpleRequest request;
  request.mutable_response_status()->set_code(2);
  request.mutable_response_status()->set_message(message);
  pb::SimpleResponse answer;
  const grpc::Status status = stub_->UnaryCall(&context_, request, &answer);
  EXPECT_EQ(status.error_code(), StatusCode::UNKNOWN);
  EXPECT_EQ(status.error_message(), message);
}

TEST_F(InteropClientTest, Unimplemented) {
  pb::Empty answer;
  EXPECT_EQ(stub_->UnimplementedCall(&context_, {}, &answer).error_code(),
            StatusCode::UNIMPLEMENTED);
  grpc::ClientContext context;
  EXPECT_EQ(pb::UnimplementedService::NewStub(*channel_)
                ->UnimplementedCall(&context, {}, &answer)
                .error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(InteropClientTest, CancelAfterBegin) {
  pb::StreamingInputCallResponse answer;
  const auto writer = stub_->StreamingInputCall(&context_, &answer);
  context_.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(InteropClientTest, CancelAfterFirstResponse) {
  const auto call = stub_->FullDuplexCall(&context_);
  ASSERT_TRUE(call->Write(OutputRequest(31415, 27182)));
  pb::StreamingOutputCallResponse answer;
  ASSERT_TRUE(call->Read(&answer));
  context_.TryCancel();
  EXPECT_EQ(call->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(InteropClientTest, TimeoutOnSleepingServer) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
  const auto call = stub_->FullDuplexCall(&context_);
  pb::StreamingOutputCallRequest request;
  request.mutable_payload()->set_body(std::string(27182, '\0'));
  call->Write(request);
  EXPECT_EQ(call->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace sru::testing
