// The mistakes that a caller can make, over the wire: each gets its code and a message that names
// the field.
#include <cstring>
#include <filesystem>
#include <future>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "tests/integration/background_calls.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/poll.h"
#include "tests/testing/protos.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A repository with a classifier ("small"), an encoder without labels ("encoder") and a model that
// takes features only ("frames").
class SmallRepository {
 public:
  SmallRepository() {
    models::WriteSmallModel(directory_, "small/1");
    models::WriteSmallModel(directory_, "small/3");

    nlohmann::json config = models::SmallConfig();
    models::TestTensors tensors = models::SmallTensors();
    models::WriteEncoder(directory_, "encoder/1", config, tensors);
    config.erase("embedding");
    config.erase("preprocessing");
    tensors.erase("embedding.weight");
    models::WriteEncoder(directory_, "frames/1", config, tensors);
    std::filesystem::remove(directory_.path("frames/1/vocab.txt"));
  }
  std::string path() const { return directory_.path(); }

 private:
  models::TempDirectory directory_;
};

class BadInputTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Silences protobuf's own line about bytes that are not UTF-8, which the client's side logs
    // too.
    google::protobuf::SetLogHandler(nullptr);
    repository_ = new SmallRepository();
    server::Options options = TestOptions(repository_->path());
    options.models.version_policy = models::VersionPolicy::All();
    options.rpc.limits.max_sequence_tokens = 16;
    options.rpc.limits.max_sequences = 4;
    server_ = new RunningServer(options);
  }
  static void TearDownTestSuite() {
    delete server_;
    delete repository_;
  }
  void SetUp() override {
    request_.set_model("small");
    request_.add_sequences()->set_text("a b");
  }

  // Sends `request_` to Classify and the same fields to Encode; both must refuse in the same way.
  void ExpectError(const std::string& message_start,
                   StatusCode code = StatusCode::INVALID_ARGUMENT) {
    EXPECT_THAT(server_->Call(request_), Fails(code, StartsWith(message_start)));

    v1::EncodeRequest encode_request;
    encode_request.set_model(request_.model());
    encode_request.set_version(request_.version());
    *encode_request.mutable_sequences() = request_.sequences();
    encode_request.set_truncate(request_.truncate());
    encode_request.set_priority(request_.priority());
    EXPECT_THAT(server_->Call(encode_request), Fails(code, StartsWith(message_start)));
  }

  v1::Sequence* sequence() { return request_.mutable_sequences(0); }

  static inline SmallRepository* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  v1::ClassifyRequest request_;
};

TEST_F(BadInputTest, TheRequestOfTheseTestsIsGoodBeforeItIsSpoilt) {
  EXPECT_EQ(server_->Must(request_).version(), 3);  // the latest
  request_.set_version(1);
  EXPECT_EQ(server_->Must(request_).version(), 1);
}

TEST_F(BadInputTest, EveryFieldThatIsWrongIsNamed) {
  struct Case {
    const char* request;
    const char* message;
    StatusCode code = StatusCode::INVALID_ARGUMENT;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"model: 'small'", "sequences: empty, expected at least one"},
           {"model: 'small' sequences { text: 'a' } sequences {}",
            "sequences[1]: empty sequence, expected one of text"},
           {"model: 'small' sequences { text: ' \\n ' }", "sequences[0].text: no tokens"},
           {"model: 'small' sequences { token_ids { values: [4, 5] } }",
            "sequences[0].token_ids.values[1]: 5 is out of range, expected 0 to 4"},
           {"model: 'small' sequences { features { feature_size: 3 data: '0123456789ab' } }",
            "sequences[0].features.feature_size: expected 4 (the model's input_size), found 3"},
           {"model: 'small' sequences: [{ text: 'a' }, { text: 'a' }, { text: 'a' }, "
            "{ text: 'a' }, { text: 'a' }]",
            "sequences: 5 are too many, expected at most 4 (--max_sequences_per_request)"},
           {"model: 'small' version: -1 sequences { text: 'a' }", "version: -1 is negative"},
           {"model: 'small' version: 2 sequences { text: 'a' }",
            "version: model 'small' has no version 2; loaded: 1, 3", StatusCode::NOT_FOUND},
           {"model: 'tree' sequences { text: 'a' }",
            "model: 'tree' is not loaded; loaded: encoder, frames, small", StatusCode::NOT_FOUND},
           {"model: 'small' sequences { text: 'a' } priority: 9", "priority: 9 is unknown"},
       }) {
    SCOPED_TRACE(one.request);
    request_ = Message<v1::ClassifyRequest>(one.request);
    ExpectError(one.message, one.code);
  }
  for (const auto& [request, message] : std::vector<std::pair<const char*, const char*>>{
           {"model: 'small' sequences { text: 'a' } pooling: 9", "pooling: 9 is unknown"},
           {"model: 'small' sequences { text: 'a' } output_format: 9",
            "output_format: 9 is unknown"},
           {"sequences { text: 'a' }", "model: empty, expected a name"},
           {"model: 'frames' sequences { text: 'a' }",
            "sequences[0].text: the model has no tokenizer"}}) {
    EXPECT_THAT(server_->Call(Message<v1::EncodeRequest>(request)),
                Fails(StatusCode::INVALID_ARGUMENT, StartsWith(message)));
  }
}

TEST_F(BadInputTest, FeaturesAreTakenByEveryModelOfThatWidth) {
  const float values[8] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};
  for (const char* model : {"small", "frames"}) {
    v1::EncodeRequest request;
    request.set_model(model);
    request.add_sequences()->mutable_features()->set_data(values, sizeof(values));
    request.mutable_sequences(0)->mutable_features()->set_feature_size(4);
    const v1::EncodeResponse response = server_->Must(request);
    EXPECT_EQ(response.encodings(0).token_count(), 2);
  }
}

TEST_F(BadInputTest, SequenceOverTheLimitIsRefusedOrCut) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "a b ";
  sequence()->set_text(text);
  ExpectError(
      "sequences[0].text: at least 17 tokens are too many, expected at most 16 "
      "(--max_sequence_tokens)");
  request_.set_truncate(true);
  const v1::ClassifyResponse response = server_->Must(request_);
  EXPECT_EQ(response.classifications(0).token_count(), 16);
  EXPECT_TRUE(response.classifications(0).truncated());
}

TEST_F(BadInputTest, TheOnlyModelThatCanClassifyNeedsNoName) {
  request_.clear_model();
  EXPECT_EQ(server_->Must(request_).model(), "small");
}

TEST_F(BadInputTest, ClassifyWithoutAClassifier) {
  for (const char* model : {"encoder", "frames"}) {
    request_.set_model(model);
    EXPECT_THAT(
        server_->Call(request_),
        Fails(StatusCode::FAILED_PRECONDITION,
              StartsWith(absl::StrCat("model: '", model,
                                      "' has the task encoder, Classify needs a classifier"))));
  }
}

TEST_F(BadInputTest, LabelCount) {
  request_.set_top_k(-1);
  EXPECT_THAT(server_->Call(request_),
              Fails(StatusCode::INVALID_ARGUMENT, StartsWith("top_k: -1 is negative")));
  for (const auto& [top_k, expected] : {std::pair{0, 2}, {1, 1}, {2, 2}, {1000, 2}}) {
    request_.set_top_k(top_k);
    const v1::ClassifyResponse response = server_->Must(request_);
    EXPECT_EQ(response.classifications(0).labels_size(), expected) << top_k;
  }
}

TEST_F(BadInputTest, InvalidUtf8AndMalformedBytes) {
  // A client library would not send this, but a stranger may.
  sequence()->mutable_tokens()->add_values("good");
  sequence()->mutable_tokens()->add_values("bad");
  std::string bytes = request_.SerializeAsString();
  bytes.replace(bytes.find("bad"), 3, "\xf0\x9f\x98");
  for (const char* method : {"Classify", "Encode"}) {
    const std::string path = absl::StrCat("/sru.v1.InferenceService/", method);
    EXPECT_THAT(
        server_->CallRaw(path, bytes),
        Fails(StatusCode::INVALID_ARGUMENT,
              StartsWith("sequences[0].tokens.values[1]: expected UTF-8, found byte 0xf0")));

    EXPECT_THAT(server_->CallRaw(path, bytes.substr(0, bytes.size() - 1)),
                Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("malformed protobuf")));
  }
  for (const char* method : {"ListModels", "GetModel"}) {
    const grpc::Status status =
        server_->CallRaw(absl::StrCat("/sru.v1.InferenceService/", method), "\x0a\x05");
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << method;
  }
  EXPECT_THAT(server_->CallRaw("/sru.v1.InferenceService/GetModel", "\x0a\x01\xff"),
              Fails(StatusCode::INVALID_ARGUMENT, StartsWith("model: expected UTF-8")));
}

TEST_F(BadInputTest, HundredMegabytes) {
  constexpr size_t kBytes = 100 << 20;
  // The client is in the server's process, which closes connections when it holds memory that it
  // cannot explain: what the client is going to hold, the text and what is made of it, is there
  // when the server measures what it holds itself.
  std::optional<std::string> held_by_client(std::in_place, 3 * kBytes, 'a');
  RunningServer server(TestOptions(repository_->path()));
  held_by_client.reset();
  sequence()->set_text(std::string(kBytes, 'a'));
  EXPECT_THAT(server.Call(request_),
              Fails(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("message larger than max")));
  // The server still works.
  sequence()->set_text("a");
  server.Must(request_);
}

// Each of these would take a hundred times its bytes if it were parsed.
TEST_F(BadInputTest, WhatParsingWouldMakeTooMuchOf) {
  v1::Tokens* tokens = sequence()->mutable_tokens();
  for (int i = 0; i < 65537; ++i) tokens->add_values("");
  request_.set_truncate(true);
  ExpectError("sequences: more than 65536 tokens in all");

  request_.Clear();
  std::string bytes = request_.SerializeAsString();
  for (int i = 0; i < 65; ++i) bytes += std::string("\x98\x06\x01", 3);  // field 99: 1
  for (const char* method : {"Classify", "Encode", "GetModel", "ListModels"}) {
    const grpc::Status status =
        server_->CallRaw(absl::StrCat("/sru.v1.InferenceService/", method), bytes);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), StartsWith("message: more than 64 fields")) << method;
  }
}

TEST_F(BadInputTest, UnknownMethod) {
  EXPECT_EQ(server_->CallRaw("/sru.v1.InferenceService/Nope", "").error_code(),
            StatusCode::UNIMPLEMENTED);
}

// A thousand good calls are in flight among calls of every kind of poison: each poisoned call
// fails, and each good call gets the bits that it gets alone.
TEST(PoisonTest, FailsAlone) {
  google::protobuf::SetLogHandler(nullptr);
  RunningServer server(TestOptions(kBundledRepository));
  constexpr int kGood = 1000;
  constexpr int kKinds = 20;
  std::vector<v1::ClassifyRequest> good(kKinds);
  std::vector<v1::ClassifyResponse> alone(kKinds);
  for (int i = 0; i < kKinds; ++i) {
    for (int t = 0; t <= 3 * i; ++t) {
      if (t == 0) good[i].add_sequences();
      good[i].mutable_sequences(0)->mutable_token_ids()->add_values((i * 131 + t * 17) % 8759);
    }
    alone[i] = server.Must(good[i]);
  }
  std::vector<v1::ClassifyRequest> poison(3);
  poison[0].add_sequences()->mutable_token_ids()->add_values(8759);
  poison[1].add_sequences()->set_text(".");
  // The input is finite, but the forward pass overflows: the call is answered, and affects no
  // other.
  const std::vector<float> huge(128 * 4, std::numeric_limits<float>::max());
  poison[2].add_sequences()->mutable_features()->set_data(huge.data(), huge.size() * sizeof(float));
  poison[2].mutable_sequences(0)->mutable_features()->set_feature_size(128);

  struct Call {
    grpc::ClientContext context;
    v1::ClassifyResponse response;
    grpc::Status status;
    int kind = 0;  // below 0: poison
  };
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kGood; ++i) {
    calls.emplace_back(std::make_unique<Call>())->kind = i % kKinds;
    if (i % 10 == 0) calls.emplace_back(std::make_unique<Call>())->kind = -1 - (i / 10) % 3;
  }
  absl::BlockingCounter done(static_cast<int>(calls.size()));
  for (const auto& call : calls) {
    const v1::ClassifyRequest& request =
        call->kind >= 0 ? good[call->kind] : poison[-1 - call->kind];
    server.stub().async()->Classify(&call->context, &request, &call->response,
                                    [&done, call = call.get()](grpc::Status status) {
                                      call->status = std::move(status);
                                      done.DecrementCount();
                                    });
  }
  done.Wait();
  for (const auto& call : calls) {
    if (call->kind == -1 || call->kind == -2) {
      EXPECT_EQ(call->status.error_code(), StatusCode::INVALID_ARGUMENT);
      continue;
    }
    ASSERT_TRUE(call->status.ok()) << call->status.error_message();
    if (call->kind < 0) continue;
    const v1::Classification& expected = alone[call->kind].classifications(0);
    ASSERT_EQ(call->response.classifications(0).SerializeAsString(), expected.SerializeAsString());
  }
}

// One slow worker and a short queue: calls beyond it are refused at once and told when to come
// back; waiting calls can be cancelled, and expire.
class OverloadTest : public ::testing::Test {
 protected:
  OverloadTest() : server_(MakeOptions()) {
    for (int i = 0; i < 4; ++i) {
      v1::TokenIds* ids = large_.add_sequences()->mutable_token_ids();
      for (int t = 0; t < 2048; ++t) ids->add_values(t);
    }
    large_.set_pooling(v1::POOLING_LAST);
    small_.add_sequences()->set_text("Why?");
  }
  static server::Options MakeOptions() {
    server::Options options = TestOptions(kBundledRepository);
    options.batching.backend = "reference";
    options.batching.engine.instances = 1;
    options.batching.engine.batcher.max_batch_tokens = 2048;
    options.batching.engine.batcher.max_queue_tokens = 3 * 8192;
    return options;
  }

  double Waiting() { return server_.Metric("sru_queue_tokens{model=\"trec\",version=\"1\"}"); }

  RunningServer server_;
  v1::EncodeRequest large_;
  v1::ClassifyRequest small_;
};

TEST_F(OverloadTest, AFullQueueRefusesWithRetryInfo) {
  BackgroundCalls background(server_.stub(), &AsyncStub::Encode, large_, 8);
  int refused = 0;
  for (const grpc::Status& status : background.Wait()) {
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_TRUE(HasRetryInfo(status));
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 8);
  EXPECT_EQ(server_.Metric("sru_rejections_total{model=\"trec\",version=\"1\",reason="
                           "\"queue_full\"}"),
            refused);
}

// After a refusal further ones are decided before a call is made. Nobody can tell.
TEST_F(OverloadTest, QuickRefusalsLookLikeTheFirst) {
  BackgroundCalls background(server_.stub(), &AsyncStub::Encode, large_, 3);
  ASSERT_TRUE(PollUntil([&] { return Waiting() > 2 * 8192; }));
  std::vector<grpc::Status> refusals;
  for (int i = 0; i < 6; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::EncodeRequest larger = large_;
    for (int copy = 0; copy < 2; ++copy) larger.MergeFrom(large_);  // 24,576 tokens
    v1::EncodeResponse response;
    refusals.push_back(server_.stub().Encode(&context, larger, &response));
  }
  for (const grpc::Status& status : refusals) {
    EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_message(), refusals[0].error_message());
    EXPECT_TRUE(HasRetryInfo(status));
  }
  const char* const of_model = "model=\"trec\",version=\"1\"";
  EXPECT_EQ(
      server_.Metric(absl::StrCat("sru_rejections_total{", of_model, ",reason=\"queue_full\"}")),
      6);
  EXPECT_EQ(
      server_.Metric(absl::StrCat(
          "sru_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"Encode\",", of_model, "}")),
      6);
  background.Cancel();
  background.Wait();
}

TEST_F(OverloadTest, CancelledAndExpiredCallsLeaveTheQueue) {
  BackgroundCalls background(server_.stub(), &AsyncStub::Encode, large_, 3);
  const auto in_flight = [this] { return server_.Metric("sru_requests_in_flight"); };
  // All are there and one is at work, so that the queue has room for another call.
  ASSERT_TRUE(PollUntil([&] { return in_flight() == 3 && Waiting() < 3 * 8192; }));

  // Cancelled while it waits behind the large ones. It has no deadline, so it is not refused.
  grpc::ClientContext cancelled;
  v1::ClassifyResponse response;
  std::promise<grpc::Status> done;
  small_.set_priority(v1::PRIORITY_LOW);
  server_.stub().async()->Classify(&cancelled, &small_, &response, [&done](grpc::Status status) {
    done.set_value(std::move(status));
  });
  // Of the large ones some may have been answered by now; their sequences have 2048 tokens.
  ASSERT_TRUE(PollUntil([&] { return static_cast<int64_t>(Waiting()) % 2048 != 0; }));
  cancelled.TryCancel();
  EXPECT_EQ(done.get_future().get().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(
      server_.Becomes("sru_requests_total{code=\"CANCELLED\",method=\"Classify\",model=\"trec\","
                      "version=\"1\"}",
                      1));

  background.Cancel();
  background.Wait();
  EXPECT_TRUE(PollUntil([&] { return in_flight() == 0 && Waiting() == 0; }));
}

TEST_F(OverloadTest, ADeadlineThatPassedIsDeadlineExceeded) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
  v1::EncodeResponse response;
  const grpc::Status status = server_.stub().Encode(&context, large_, &response);
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED) << status.error_message();
}

}  // namespace
}  // namespace sru::testing
