// EncodeStream over the wire: chunks give the bits of the whole, states go on elsewhere, and every
// way to ask wrongly.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/unread_call.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kInput = 6;
constexpr int kHidden = 20;
constexpr int kLayers = 3;
constexpr char kEncodeStream[] = "/sru.v1.InferenceService/EncodeStream";
constexpr char kWords[] =
    "a b c x b a c c b a a x b c a b x x c a b";  // x is not in the vocabulary

// An encoder of three layers.
void WriteEncoder(const models::TempDirectory& directory, const std::string& name,
                  bool bidirectional, bool labels) {
  const int directions = bidirectional ? 2 : 1;
  nlohmann::json config = models::SmallConfig();
  config["encoder"] = {{"input_size", kInput},
                       {"hidden_size", kHidden},
                       {"num_layers", kLayers},
                       {"bidirectional", bidirectional}};
  models::TestTensors tensors;
  tensors["embedding.weight"] = models::MakeTensor({5, kInput});
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = absl::StrCat("encoder.rnn_lst.", i, ".");
    const int input = i == 0 ? kInput : kHidden * directions;
    const int matrices = i == 0 ? 4 : 3;
    tensors[layer + "weight"] = models::MakeTensor({input, matrices * kHidden * directions});
    tensors[layer + "weight_c"] = models::MakeTensor({2 * kHidden * directions});
    tensors[layer + "bias"] = models::MakeTensor({2 * kHidden * directions});
    tensors[layer + "scale_x"] = models::MakeTensor({1});
    tensors[layer + "scale_x"].values = {1.5f};
  }
  if (labels) {
    tensors["out.weight"] = models::MakeTensor({2, kHidden * directions});
    tensors["out.bias"] = models::MakeTensor({2});
  } else {
    config.erase("labels");
  }
  models::WriteModel(directory, name, config, tensors);
}

// One stream, as a client sees it.
class EncodeStreamCall {
 public:
  explicit EncodeStreamCall(RunningServer& server, absl::Duration timeout = absl::Seconds(60)) {
    context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    stream_ = server.stub().EncodeStream(&context_);
  }
  ~EncodeStreamCall() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  bool Write(const v1::EncodeStreamRequest& request) { return stream_->Write(request); }
  bool Read(v1::EncodeStreamResponse* response) { return stream_->Read(response); }
  v1::EncodeStreamResponse MustAnswer(const v1::EncodeStreamRequest& request) {
    v1::EncodeStreamResponse response;
    EXPECT_TRUE(Write(request));
    EXPECT_TRUE(Read(&response));
    return response;
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    v1::EncodeStreamResponse extra;
    EXPECT_FALSE(stream_->Read(&extra)) << extra.ShortDebugString();
    finished_ = true;
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }
  std::string request_id() const {
    const auto& metadata = context_.GetServerTrailingMetadata();
    const auto found = metadata.find("x-request-id");
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  bool has_retry_info() const {
    return context_.GetServerTrailingMetadata().count("grpc-status-details-bin") > 0;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::EncodeStreamRequest, v1::EncodeStreamResponse>>
      stream_;
  bool finished_ = false;
};

enum class Form { kText, kTokens, kIds, kFeatures };

// 21 tokens or frames, of which a part can be asked for.
constexpr int kLength = 21;
v1::Sequence Part(Form form, int begin, int end) {
  v1::Sequence part;
  std::vector<std::string> words;
  for (int i = begin; i < end; ++i) words.emplace_back(1, kWords[2 * i]);
  switch (form) {
    case Form::kText:
      for (const std::string& word : words) part.mutable_text()->append(word + " ");
      break;
    case Form::kTokens:
      for (const std::string& word : words) part.mutable_tokens()->add_values(word);
      break;
    case Form::kIds:
      for (int i = begin; i < end; ++i) part.mutable_token_ids()->add_values(i * 7 % 5);
      break;
    case Form::kFeatures: {
      std::vector<float> values;
      for (int i = begin * kInput; i < end * kInput; ++i) {
        values.push_back(0.1f * static_cast<float>(i * 31 % 47 - 23));
      }
      part.mutable_features()->set_feature_size(kInput);
      part.mutable_features()->set_data(reinterpret_cast<const char*>(values.data()),
                                        values.size() * sizeof(float));
      break;
    }
  }
  return part;
}

// How many tokens of that part the vocabulary does not have.
int UnknownWords(Form form, int begin, int end) {
  if (form != Form::kText && form != Form::kTokens) return 0;
  return static_cast<int>(std::count(kWords + 2 * begin, kWords + 2 * end - 1, 'x'));
}

v1::EncodeStreamRequest First(const std::string& model, const std::string& state = "") {
  v1::EncodeStreamRequest request;
  request.mutable_start()->set_model(model);
  request.mutable_start()->set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  request.mutable_start()->set_state(state);
  return request;
}

v1::EncodeStreamRequest Chunk(const v1::Sequence& part) {
  v1::EncodeStreamRequest request;
  *request.mutable_chunk() = part;
  return request;
}

class EncodeStreamTest : public ::testing::TestWithParam<kernels::DataType> {
 protected:
  static void SetUpTestSuite() {
    repository_ = new models::TempDirectory;
    WriteEncoder(*repository_, "encoder/1", /*bidirectional=*/false, /*labels=*/false);
    WriteEncoder(*repository_, "classifier/1", /*bidirectional=*/false, /*labels=*/true);
    WriteEncoder(*repository_, "both/1", /*bidirectional=*/true, /*labels=*/false);
    models::WriteSmallLanguageModel(*repository_, "lm/1");
  }
  static void TearDownTestSuite() { delete std::exchange(repository_, nullptr); }

  static server::Options Options(kernels::DataType dtype = kernels::DataType::kFloat32) {
    server::Options options = TestOptions(repository_->path());
    options.batching.compile.dtype = dtype;
    return options;
  }

  // The bytes of the token vectors that one Encode gives.
  static std::string Whole(RunningServer& server, const std::string& model, const v1::Sequence& all,
                           bool normalize = false) {
    v1::EncodeRequest request;
    request.set_model(model);
    *request.add_sequences() = all;
    request.set_pooling(v1::POOLING_NONE);
    request.set_normalize(normalize);
    request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
    const v1::EncodeResponse response = server.Must(request);
    return response.encodings(0).data();
  }

  static inline models::TempDirectory* repository_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(All, EncodeStreamTest,
                         ::testing::Values(kernels::DataType::kFloat32,
                                           kernels::DataType::kBFloat16),
                         [](const auto& info) { return kernels::DataTypeName(info.param); });

TEST_P(EncodeStreamTest, ChunksHaveTheBitsOfTheWhole) {
  RunningServer server(Options(GetParam()));
  std::mt19937 random(17);
  for (const std::string model : {"encoder", "classifier"}) {
    for (const Form form : {Form::kText, Form::kTokens, Form::kIds, Form::kFeatures}) {
      const std::string expected = Whole(server, model, Part(form, 0, kLength));
      ASSERT_EQ(expected.size(), kLength * kHidden * sizeof(float));
      for (int round = 0; round < 6; ++round) {
        std::string found;
        EncodeStreamCall stream(server);
        v1::EncodeStreamRequest request = First(model);
        for (int begin = 0; begin < kLength;) {
          const int end = std::min<int>(kLength, begin + 1 + static_cast<int>(random() % 8));
          *request.mutable_chunk() = Part(form, begin, end);
          const v1::EncodeStreamResponse response = stream.MustAnswer(request);
          EXPECT_EQ(response.encoding().token_count(), end - begin);
          EXPECT_EQ(response.encoding().unknown_tokens(), UnknownWords(form, begin, end));
          EXPECT_THAT(response.encoding().shape(), ::testing::ElementsAre(end - begin, kHidden));
          EXPECT_TRUE(response.state().empty());
          EXPECT_GT(response.times().total_us(), 0);
          found += response.encoding().data();
          request = v1::EncodeStreamRequest();
          begin = end;
        }
        EXPECT_TRUE(stream.Finish().ok());
        EXPECT_EQ(found, expected) << model << " form " << static_cast<int>(form);
      }
    }
  }
  server.ExpectIdle();
}

TEST_P(EncodeStreamTest, AStateGoesOnInAnotherStreamAndAnotherServer) {
  RunningServer one(Options(GetParam()));
  RunningServer two(Options(GetParam()));
  const std::string expected = Whole(one, "encoder", Part(Form::kFeatures, 0, kLength));
  for (int cut = 1; cut < kLength; cut += 4) {
    EncodeStreamCall first(one);
    v1::EncodeStreamRequest request = First("encoder");
    *request.mutable_chunk() = Part(Form::kFeatures, 0, cut);
    std::string found = first.MustAnswer(request).encoding().data();
    request.Clear();
    request.set_return_state(true);
    const v1::EncodeStreamResponse with_state = first.MustAnswer(request);
    EXPECT_FALSE(with_state.has_encoding());
    EncodeStreamCall second(two);
    request = First("encoder", with_state.state());
    EXPECT_TRUE(second.Write(request));  // has no answer
    request = Chunk(Part(Form::kFeatures, cut, kLength));
    request.set_return_state(true);
    const v1::EncodeStreamResponse rest = second.MustAnswer(request);
    found += rest.encoding().data();
    EXPECT_EQ(found, expected);
    EXPECT_EQ(rest.state().size(), with_state.state().size());
    // The first stream was not changed by that.
    EXPECT_EQ(first.MustAnswer(Chunk(Part(Form::kFeatures, cut, kLength))).encoding().data(),
              rest.encoding().data());
  }
}

TEST_F(EncodeStreamTest, StreamsThatGoOnSideBySide) {
  RunningServer server(Options());
  const std::string expected =
      Whole(server, "encoder", Part(Form::kIds, 0, kLength), /*normalize=*/true);
  std::vector<std::unique_ptr<EncodeStreamCall>> streams;
  std::vector<std::string> found(10);
  for (int i = 0; i < 10; ++i) streams.push_back(std::make_unique<EncodeStreamCall>(server));
  for (int t = 0; t < kLength; ++t) {
    v1::EncodeStreamRequest request;
    if (t == 0) {
      request = First("encoder");
      request.mutable_start()->set_normalize(true);
    }
    *request.mutable_chunk() = Part(Form::kIds, t, t + 1);
    for (auto& stream : streams) EXPECT_TRUE(stream->Write(request));
    for (int i = 0; i < 10; ++i) {
      v1::EncodeStreamResponse response;
      EXPECT_TRUE(streams[i]->Read(&response));
      found[i] += response.encoding().data();
    }
  }
  EXPECT_EQ(server.Metric("sru_open_streams"), 10);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(streams[i]->Finish().ok());
    EXPECT_EQ(found[i], expected);
  }
  const std::string labels =
      "{code=\"OK\",method=\"EncodeStream\",model=\"encoder\",version=\"1\"}";
  EXPECT_EQ(server.Metric("sru_requests_total" + labels), 10);
}

TEST_F(EncodeStreamTest, MessagesThatAreWrong) {
  RunningServer server(Options());
  const auto expect = [&](const std::vector<v1::EncodeStreamRequest>& messages, StatusCode code,
                          const std::string& start, int answers = 0) {
    SCOPED_TRACE(start);
    EncodeStreamCall stream(server);
    for (const v1::EncodeStreamRequest& message : messages) stream.Write(message);
    v1::EncodeStreamResponse response;
    for (int i = 0; i < answers; ++i) EXPECT_TRUE(stream.Read(&response));
    EXPECT_THAT(stream.Finish(), Fails(code, StartsWith(start)));
    EXPECT_FALSE(stream.request_id().empty());
  };
  const StatusCode invalid = StatusCode::INVALID_ARGUMENT;
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kText, 0, 3);
  expect({}, invalid, "start: expected in the first message of the stream, found the end");
  expect({Chunk(Part(Form::kText, 0, 3))}, invalid, "start: absent, expected in the first message");
  expect({start, start}, invalid, "start: expected in the first message of the stream only", 1);
  expect({start, Chunk(Part(Form::kIds, 0, 3))}, invalid,
         "chunk.token_ids: expected text as in the chunks before it", 1);
  expect({start, v1::EncodeStreamRequest()}, invalid, "chunk: absent, expected what comes next", 1);
  expect({start, Chunk(v1::Sequence())}, invalid, "chunk: empty sequence, expected one of", 1);
  v1::EncodeStreamRequest bad = start;
  bad.mutable_chunk()->set_text(" ");
  expect({bad}, invalid, "chunk.text: no tokens are left");
  bad = start;
  bad.mutable_chunk()->mutable_token_ids()->add_values(5);
  expect({bad}, invalid, "chunk.token_ids.values[0]: 5 is out of range, expected 0 to 4");
  *bad.mutable_chunk() = Part(Form::kFeatures, 0, 1);
  bad.mutable_chunk()->mutable_features()->set_feature_size(7);
  expect({bad}, invalid, "chunk.features.feature_size: expected 6");
  bad.mutable_chunk()->mutable_features()->set_feature_size(kInput);
  bad.mutable_chunk()->mutable_features()->mutable_data()->pop_back();
  expect({bad}, invalid, "chunk.features.data: 23 bytes");
  bad = start;
  for (int i = 0; i < 2049; ++i) bad.mutable_chunk()->mutable_tokens()->add_values("a");
  expect({bad}, invalid, "chunk.tokens.values: 2049 tokens are too many, expected at most 2048");
  bad = start;
  bad.mutable_start()->set_output_format(static_cast<v1::OutputFormat>(9));
  expect({bad}, invalid, "start.output_format: 9 is unknown");
  bad = start;
  bad.mutable_start()->set_priority(static_cast<v1::Priority>(9));
  expect({bad}, invalid, "start.priority: 9 is unknown");
  bad = start;
  bad.mutable_start()->set_state("nonsense");
  expect({bad}, invalid, "start.state: 8 bytes that are not a state");
  bad = start;
  bad.mutable_start()->set_model("nobody");
  expect({bad}, StatusCode::NOT_FOUND, "model");
  bad = start;
  bad.mutable_start()->set_version(3);
  expect({bad}, StatusCode::NOT_FOUND, "version");
  bad = start;
  bad.mutable_start()->set_model("both");
  expect({bad}, StatusCode::FAILED_PRECONDITION,
         "model: 'both' is a bidirectional encoder, EncodeStream needs a unidirectional encoder");
  bad.mutable_start()->set_model("lm");
  expect({bad}, StatusCode::FAILED_PRECONDITION,
         "model: 'lm' has the task language_model, EncodeStream needs a unidirectional encoder");
  // Another model's state.
  v1::EncodeStreamRequest ask = First("classifier");
  *ask.mutable_chunk() = Part(Form::kText, 0, 3);
  ask.set_return_state(true);
  EncodeStreamCall other(server);
  bad = start;
  bad.mutable_start()->set_state(other.MustAnswer(ask).state());
  expect({bad}, invalid, "start.state: the state of another model, expected one of 'encoder'");
  EXPECT_TRUE(other.Finish().ok());
  // All that harmed nobody.
  server.ExpectIdle();
}

TEST_F(EncodeStreamTest, BytesThatAreNoMessage) {
  RunningServer server(Options());
  EXPECT_EQ(server.CallRaw(kEncodeStream, "\xff\xff").error_code(), StatusCode::INVALID_ARGUMENT);
  // A model's name that is not UTF-8.
  EXPECT_THAT(server.CallRaw(kEncodeStream, std::string("\x0a\x03\x0a\x01\xff", 5)),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("start.model")));
  // Very many fields that mean nothing.
  std::string fields;
  for (int i = 0; i < 1000; ++i) fields += std::string("\x7a\x00", 2);
  EXPECT_THAT(server.CallRaw(kEncodeStream, fields),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("more than 64 fields")));
}

TEST_F(EncodeStreamTest, MoreStreamsThanThereMayBe) {
  server::Options options = Options();
  options.rpc.max_streams = 2;
  RunningServer server(options);
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kText, 0, 3);
  EncodeStreamCall one(server);
  auto two = std::make_unique<EncodeStreamCall>(server);
  one.MustAnswer(start);
  two->MustAnswer(start);
  EncodeStreamCall three(server);
  EXPECT_THAT(three.Finish(), Fails(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("--max_streams")));
  EXPECT_TRUE(three.has_retry_info());
  EXPECT_EQ(server.Metric("sru_rejections_total{model=\"\",version=\"\",reason=\"streams\"}"), 1);
  two = nullptr;  // cancels
  EXPECT_TRUE(server.Becomes("sru_open_streams", 1));
  EncodeStreamCall four(server);
  four.MustAnswer(start);
}

TEST_F(EncodeStreamTest, ADrainGivesStatesBack) {
  RunningServer two(Options());
  auto one = std::make_unique<RunningServer>(Options());
  const std::string expected = Whole(two, "encoder", Part(Form::kFeatures, 0, kLength));
  EncodeStreamCall idle(*one);
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kFeatures, 0, 9);
  std::string found = idle.MustAnswer(start).encoding().data();
  EncodeStreamCall fresh(*one);
  EXPECT_TRUE(fresh.Write(First("encoder")));
  EncodeStreamCall empty(*one);
  EXPECT_TRUE(one->Becomes("sru_open_streams", 3));
  EXPECT_TRUE(one->server().Drain());

  v1::EncodeStreamResponse last;
  ASSERT_TRUE(idle.Read(&last));
  EXPECT_FALSE(last.has_encoding());
  EXPECT_THAT(idle.Finish(), Fails(StatusCode::UNAVAILABLE, HasSubstr("shutting down")));
  EXPECT_EQ(fresh.Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(empty.Finish().error_code(), StatusCode::UNAVAILABLE);
  EncodeStreamCall resumed(two);
  start = First("encoder", last.state());
  *start.mutable_chunk() = Part(Form::kFeatures, 9, kLength);
  found += resumed.MustAnswer(start).encoding().data();
  EXPECT_EQ(found, expected);
}

TEST_F(EncodeStreamTest, ClientsThatVanishOrAreLate) {
  RunningServer server(Options());
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kText, 0, 3);
  {
    EncodeStreamCall cancelled(server);
    cancelled.MustAnswer(start);
    cancelled.Cancel();
    EXPECT_EQ(cancelled.Finish().error_code(), StatusCode::CANCELLED);
  }
  EncodeStreamCall late(server, absl::Milliseconds(300));
  late.MustAnswer(start);
  v1::EncodeStreamResponse response;
  EXPECT_FALSE(late.Read(&response));
  EXPECT_EQ(late.Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  server.ExpectIdle();
}

TEST_F(EncodeStreamTest, AClientThatDoesNotReadLosesItsConnection) {
  server::Options options = Options();
  options.memory.send_timeout = absl::Milliseconds(200);
  if (options.transport.transport == server::door::GrpcTransport::kLibrary) {
    GTEST_SKIP() << "gRPC's library keeps answers for any length of time";
  }
  RunningServer server(options);
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kFeatures, 0, kLength);
  UnreadCall unread(server.port(), kEncodeStream, start.SerializeAsString());
  EXPECT_TRUE(unread.IsClosedByServer());
  server.ExpectIdle();
  EXPECT_EQ(server.Metric("sru_answers_not_taken_total"), 1);
  EncodeStreamCall other(server);
  other.MustAnswer(start);
}

TEST_F(EncodeStreamTest, ADrainDoesNotWaitForAClientThatDoesNotRead) {
  server::Options options = Options();
  options.memory.send_timeout = absl::InfiniteDuration();
  options.drain_timeout = absl::Minutes(10);
  RunningServer server(options);
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kFeatures, 0, kLength);
  UnreadCall unread(server.port(), kEncodeStream, start.SerializeAsString());
  ASSERT_TRUE(server.Becomes("sru_unsent_answers", 1));
  EXPECT_TRUE(server.Becomes("sru_requests_in_flight", 0));
  EXPECT_TRUE(server.server().Drain());
}

TEST_F(EncodeStreamTest, AStreamThatFindsNoMemoryGivesItsStateBack) {
  server::Options options = Options();
  options.memory.max_inflight_mb = 1;
  options.rpc.limits.max_sequence_tokens = 4096;
  RunningServer server(options);
  const std::string expected = Whole(server, "encoder", Part(Form::kIds, 0, kLength));
  v1::EncodeStreamRequest start = First("encoder");
  *start.mutable_chunk() = Part(Form::kIds, 0, 9);
  EncodeStreamCall stream(server);
  std::string found = stream.MustAnswer(start).encoding().data();
  v1::EncodeStreamRequest large;
  const std::vector<int> ids(4096, 1);
  large.mutable_chunk()->mutable_token_ids()->mutable_values()->Assign(ids.begin(), ids.end());
  const v1::EncodeStreamResponse last = stream.MustAnswer(large);
  EXPECT_FALSE(last.has_encoding());
  EXPECT_THAT(stream.Finish(),
              Fails(StatusCode::RESOURCE_EXHAUSTED, HasSubstr("--max_inflight_mb")));
  EncodeStreamCall resumed(server);
  start = First("encoder", last.state());
  *start.mutable_chunk() = Part(Form::kIds, 9, kLength);
  found += resumed.MustAnswer(start).encoding().data();
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace sru::testing
