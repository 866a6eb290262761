// The calls that succeed, over the wire, with the bundled models.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/protos.h"

namespace sru::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kQuestions[] = "tests/data/trec_questions.jsonl";
constexpr char kScores[] = "tests/data/war_and_peace_scores.jsonl";
// All tests of this file share one server: they only read.
class ServingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer(TestOptions(kBundledRepository)); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  static inline RunningServer* server_ = nullptr;
};

std::vector<nlohmann::json> ReadJsonLines(const char* path) {
  std::vector<nlohmann::json> values;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) values.push_back(nlohmann::json::parse(line));
  return values;
}

std::vector<float> Logits(const v1::Classification& classification) {
  std::vector<float> logits(classification.labels_size());
  for (const v1::Label& label : classification.labels()) logits[label.index()] = label.logit();
  return logits;
}

TEST_F(ServingTest, SixtyQuestionsGetTheLogitsOfThePublishedPackage) {
  const std::vector<nlohmann::json> questions = ReadJsonLines(kQuestions);
  ASSERT_EQ(questions.size(), 60u);
  v1::ClassifyRequest all;
  for (const nlohmann::json& question : questions) {
    all.add_sequences()->set_text(question["text"].get<std::string>());
  }
  const v1::ClassifyResponse together = server_->Must(all);
  ASSERT_EQ(together.classifications_size(), 60);
  for (int i = 0; i < 60; ++i) {
    const v1::Classification& answer = together.classifications(i);
    EXPECT_EQ(answer.labels(0).name(), questions[i]["label"].get<std::string>()) << questions[i];
    EXPECT_EQ(answer.token_count(), static_cast<int>(questions[i]["tokens"].size()));
    const std::vector<float> logits = Logits(answer);
    ASSERT_EQ(logits.size(), questions[i]["logits"].size());
    for (size_t k = 0; k < logits.size(); ++k) {
      EXPECT_NEAR(logits[k], questions[i]["logits"][k].get<double>(), 1e-3) << questions[i];
    }

    // The same question gets the same bits alone and as words.
    v1::ClassifyRequest alone;
    v1::Tokens* tokens = alone.add_sequences()->mutable_tokens();
    for (const nlohmann::json& token : questions[i]["tokens"]) {
      tokens->add_values(token.get<std::string>());
    }
    const v1::ClassifyResponse single = server_->Must(alone);
    const std::vector<float> alone_logits = Logits(single.classifications(0));
    EXPECT_EQ(std::memcmp(alone_logits.data(), logits.data(), logits.size() * sizeof(float)), 0)
        << questions[i];
  }
}

TEST_F(ServingTest, ClassifyAnswersEveryField) {
  v1::ClassifyRequest request;
  request.set_model("trec");
  request.set_version(1);
  request.add_sequences()->set_text("How many moons does Mars have?");
  request.set_top_k(2);
  v1::ClassifyResponse response = server_->Must(request);
  EXPECT_EQ(response.model(), "trec");
  EXPECT_EQ(response.version(), 1);
  ASSERT_EQ(response.classifications_size(), 1);
  const v1::Classification& answer = response.classifications(0);
  ASSERT_EQ(answer.labels_size(), 2);
  EXPECT_EQ(answer.labels(0).name(), "NUM");
  EXPECT_EQ(answer.labels(0).index(), 5);
  EXPECT_GT(answer.labels(0).probability(), answer.labels(1).probability());
  EXPECT_GT(answer.labels(0).logit(), answer.labels(1).logit());
  EXPECT_EQ(answer.token_count(), 7);
  EXPECT_FALSE(answer.truncated());
  EXPECT_GT(response.times().compute_us(), 0);
  EXPECT_GE(
      response.times().total_us(),
      response.times().tokenize_us() + response.times().queue_us() + response.times().compute_us());

  request.set_top_k(0);  // all
  response = server_->Must(request);
  ASSERT_EQ(response.classifications(0).labels_size(), 6);
  double sum = 0;
  for (const v1::Label& label : response.classifications(0).labels()) sum += label.probability();
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST_F(ServingTest, EncodeInEveryPoolingAndFormat) {
  v1::EncodeRequest request;
  request.add_sequences()->set_text("What is a lighthouse for?");
  const v1::EncodeResponse pooled = server_->Must(request);
  ASSERT_EQ(pooled.encodings_size(), 1);
  EXPECT_THAT(pooled.encodings(0).shape(), ElementsAre(128));
  ASSERT_EQ(pooled.encodings(0).values_size(), 128);
  EXPECT_EQ(pooled.encodings(0).token_count(), 6);

  request.set_pooling(v1::POOLING_NONE);
  v1::EncodeResponse tokens = server_->Must(request);
  EXPECT_THAT(tokens.encodings(0).shape(), ElementsAre(6, 128));
  ASSERT_EQ(tokens.encodings(0).values_size(), 6 * 128);

  // The other poolings follow from the token vectors.
  const auto value = [&tokens](int token, int column) {
    return tokens.encodings(0).values(token * 128 + column);
  };
  for (const v1::Pooling pooling :
       {v1::POOLING_MAX, v1::POOLING_MEAN, v1::POOLING_LAST, v1::POOLING_FIRST}) {
    request.set_pooling(pooling);
    const v1::EncodeResponse response = server_->Must(request);
    for (int column = 0; column < 128; ++column) {
      float expected = pooling == v1::POOLING_MEAN ? 0 : -INFINITY;
      for (int token = 0; token < 6; ++token) {
        if (pooling == v1::POOLING_MAX) expected = std::max(expected, value(token, column));
        if (pooling == v1::POOLING_MEAN) expected += value(token, column) / 6;
      }
      if (pooling == v1::POOLING_LAST) expected = value(column < 64 ? 5 : 0, column);
      if (pooling == v1::POOLING_FIRST) expected = value(0, column);
      ASSERT_NEAR(response.encodings(0).values(column), expected, 1e-6)
          << v1::Pooling_Name(pooling) << " column " << column;
      if (pooling == v1::POOLING_MAX) {  // the model's own
        EXPECT_EQ(response.encodings(0).values(column), pooled.encodings(0).values(column));
      }
    }
  }

  request.set_pooling(v1::POOLING_DEFAULT);
  request.set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  v1::EncodeResponse raw = server_->Must(request);
  EXPECT_EQ(raw.encodings(0).values_size(), 0);
  ASSERT_EQ(raw.encodings(0).data().size(), 128 * sizeof(float));
  EXPECT_EQ(std::memcmp(raw.encodings(0).data().data(), pooled.encodings(0).values().data(),
                        128 * sizeof(float)),
            0);
  for (const v1::OutputFormat format :
       {v1::OUTPUT_FORMAT_RAW_FLOAT16, v1::OUTPUT_FORMAT_RAW_BFLOAT16}) {
    request.set_output_format(format);
    raw = server_->Must(request);
    EXPECT_EQ(raw.encodings(0).data().size(), 128 * 2u);
  }

  request.set_output_format(v1::OUTPUT_FORMAT_FLOATS);
  request.set_normalize(true);
  const v1::EncodeResponse normalized = server_->Must(request);
  double length = 0;
  for (const float x : normalized.encodings(0).values()) length += static_cast<double>(x) * x;
  EXPECT_NEAR(length, 1, 1e-5);
}

std::vector<float> LogProbs(const v1::Score& score) {
  return {score.token_log_probs().begin(), score.token_log_probs().end()};
}

// The bundled language model against its equations in float64 (tests/data). No call names it: it is
// the only model that scores.
TEST_F(ServingTest, ScoresAgreeWithTheEquations) {
  const std::vector<nlohmann::json> lines = ReadJsonLines(kScores);
  ASSERT_EQ(lines.size(), 8u);
  v1::ScoreRequest request;
  request.set_token_log_probs(true);
  request.set_return_states(true);
  for (const nlohmann::json& line : lines) {
    request.add_sequences()->set_text(line["text"].get<std::string>());
  }
  const v1::ScoreResponse together = server_->Must(request);
  EXPECT_EQ(together.model(), "war_and_peace");
  EXPECT_EQ(together.version(), 1);
  ASSERT_EQ(together.scores_size(), 8);
  for (int i = 0; i < 8; ++i) {
    const v1::Score& score = together.scores(i);
    const auto text = lines[i]["text"].get<std::string>();
    const auto expected = lines[i]["log_probs"].get<std::vector<double>>();
    const std::vector<float> log_probs = LogProbs(score);
    EXPECT_EQ(score.token_count(), static_cast<int>(text.size()));
    EXPECT_EQ(score.scored_count(), static_cast<int>(expected.size()));
    ASSERT_EQ(log_probs.size(), expected.size());
    double sum = 0;
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_NEAR(log_probs[k], expected[k], 5e-5) << text << " at " << k;
      sum += log_probs[k];
    }
    EXPECT_NEAR(score.log_prob(), sum, 1e-6 * text.size());

    // Cut in two, and alone, the text gets the same bits: the first part a log-probability less
    // than it has tokens, the second part one for each.
    v1::ScoreRequest part = request;
    part.clear_sequences();
    part.add_sequences()->set_text(text.substr(0, 1));
    const v1::ScoreResponse first = server_->Must(part);
    EXPECT_EQ(first.scores(0).scored_count(), 0);
    part.add_states(first.scores(0).state());
    part.mutable_sequences(0)->set_text(text.substr(1));
    const v1::ScoreResponse rest = server_->Must(part);
    EXPECT_EQ(LogProbs(rest.scores(0)), log_probs) << text;
    EXPECT_EQ(rest.scores(0).state(), score.state()) << text;
  }
}

TEST_F(ServingTest, TellsHowManyWordsAreUnknown) {
  const char* const kTextTokens = "sru_text_tokens_total{model=\"trec\",version=\"1\"}";
  const char* const kUnknown = "sru_unknown_tokens_total{model=\"trec\",version=\"1\"}";
  const double text_tokens = server_->Metric(kTextTokens);
  const double unknown = server_->Metric(kUnknown);
  v1::ClassifyRequest classify;
  classify.add_sequences()->set_text("Who wrote qqqzz and qqqyy?");
  classify.add_sequences()->mutable_tokens()->add_values("qqqzz");
  classify.add_sequences()->mutable_token_ids()->add_values(1);  // its oov_id
  const v1::ClassifyResponse classified = server_->Must(classify);
  EXPECT_EQ(classified.classifications(0).token_count(), 6);
  EXPECT_EQ(classified.classifications(0).unknown_tokens(), 2);
  EXPECT_EQ(classified.classifications(1).unknown_tokens(), 1);
  EXPECT_EQ(classified.classifications(2).unknown_tokens(), 0);
  v1::EncodeRequest encode;
  *encode.mutable_sequences() = classify.sequences();
  const v1::EncodeResponse encoded = server_->Must(encode);
  EXPECT_EQ(encoded.encodings(0).unknown_tokens(), 2);
  // Twice the words of both calls; an id is nobody's word.
  EXPECT_EQ(server_->Metric(kTextTokens), text_tokens + 2 * 7);
  EXPECT_EQ(server_->Metric(kUnknown), unknown + 2 * 3);
}

// Bytes are never unknown; those of prompts are counted as well.
TEST_F(ServingTest, CountsTheTokensOfPrompts) {
  const char* const kTextTokens = "sru_text_tokens_total{model=\"war_and_peace\",version=\"1\"}";
  const double text_tokens = server_->Metric(kTextTokens);
  v1::GenerateRequest request;
  request.mutable_prompt()->set_text("The prince");
  request.set_max_new_tokens(2);
  grpc::ClientContext context;
  const auto reader = server_->stub().Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(server_->Metric(kTextTokens), text_tokens + 10);
  EXPECT_EQ(server_->Metric("sru_unknown_tokens_total{model=\"war_and_peace\",version=\"1\"}"), 0);
}

TEST_F(ServingTest, EmptySequencesAreSkippedIfTheCallSaysSo) {
  v1::ClassifyRequest classify;
  classify.add_sequences()->set_text("");
  classify.add_sequences()->set_text("Who wrote it?");
  classify.add_sequences()->set_text(" \n ");
  classify.add_sequences()->mutable_token_ids();
  EXPECT_THAT(
      server_->Call(classify),
      Fails(grpc::StatusCode::INVALID_ARGUMENT,
            "sequences[0].text: no tokens are left after preprocessing, expected at least one "
            "word; with skip_empty such a sequence gets an empty answer"));
  classify.set_skip_empty(true);
  const v1::ClassifyResponse classified = server_->Must(classify);
  ASSERT_EQ(classified.classifications_size(), 4);
  for (const int i : {0, 2, 3}) {
    EXPECT_EQ(classified.classifications(i).token_count(), 0) << i;
    EXPECT_EQ(classified.classifications(i).labels_size(), 0) << i;
  }
  // The others have the bits that they have alone.
  v1::ClassifyRequest alone;
  *alone.add_sequences() = classify.sequences(1);
  const v1::ClassifyResponse single = server_->Must(alone);
  EXPECT_EQ(classified.classifications(1).SerializeAsString(),
            single.classifications(0).SerializeAsString());

  v1::EncodeRequest encode;
  *encode.mutable_sequences() = classify.sequences();
  encode.set_skip_empty(true);
  for (const v1::OutputFormat format : {v1::OUTPUT_FORMAT_FLOATS, v1::OUTPUT_FORMAT_RAW_FLOAT32}) {
    for (const v1::Pooling pooling : {v1::POOLING_MAX, v1::POOLING_NONE}) {
      encode.set_output_format(format);
      encode.set_pooling(pooling);
      const v1::EncodeResponse encoded = server_->Must(encode);
      ASSERT_EQ(encoded.encodings_size(), 4);
      for (const int i : {0, 2, 3}) {
        const v1::Encoding& encoding = encoded.encodings(i);
        EXPECT_THAT(encoding, Sends(pooling == v1::POOLING_NONE ? "shape: [0, 128]" : "shape: 0"));
      }
      EXPECT_GT(encoded.encodings(1).token_count(), 0);
    }
  }
}

TEST_F(ServingTest, AnEmptyScoreKeepsItsState) {
  v1::ScoreRequest request;
  request.add_sequences()->set_text("The prince");
  request.set_return_states(true);
  const v1::ScoreResponse first = server_->Must(request);
  const std::string& state = first.scores(0).state();
  request.Clear();
  request.add_sequences()->set_text("");
  request.add_sequences()->set_text(" said");
  request.add_sequences()->set_text("");
  request.add_states(state);
  request.add_states(state);
  request.add_states("");
  request.set_return_states(true);
  request.set_token_log_probs(true);
  request.set_top_candidates(2);
  EXPECT_EQ(server_->Call(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_skip_empty(true);
  const v1::ScoreResponse response = server_->Must(request);
  ASSERT_EQ(response.scores_size(), 3);
  v1::Score expected;
  expected.set_state(state);
  EXPECT_EQ(response.scores(0).SerializeAsString(), expected.SerializeAsString());
  EXPECT_THAT(response.scores(2), Sends(""));
  EXPECT_EQ(response.scores(1).scored_count(), 5);
}

// Nothing is computed, but the call ends as any other.
TEST_F(ServingTest, ACallOfNothingButEmptySequencesNeedsNoBatch) {
  const std::string calls =
      "sru_requests_total{code=\"OK\",method=\"Classify\",model=\"trec\",version=\"1\"}";
  const char* const kBatches = "sru_batch_sequences_count{model=\"trec\",version=\"1\"}";
  const double calls_before = std::max(0.0, server_->Metric(calls));
  const double batches_before = server_->Metric(kBatches);
  v1::ClassifyRequest request;
  for (int i = 0; i < 200; ++i) request.add_sequences()->set_text("");
  request.set_skip_empty(true);
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "empty-1");
  v1::ClassifyResponse response;
  ASSERT_TRUE(server_->stub().Classify(&context, request, &response).ok());
  EXPECT_EQ(response.classifications_size(), 200);
  EXPECT_EQ(response.model(), "trec");
  EXPECT_GT(response.times().total_us(), 0);
  EXPECT_EQ(response.times().compute_us(), 0);
  EXPECT_EQ(context.GetServerInitialMetadata().count("x-request-id"), 1u);
  EXPECT_EQ(server_->Metric(calls), calls_before + 1);
  EXPECT_EQ(server_->Metric(kBatches), batches_before);
  server_->ExpectIdle();
}

TEST_F(ServingTest, ListAndGetModels) {
  const v1::ListModelsResponse list = server_->Must(v1::ListModelsRequest());
  ASSERT_EQ(list.models_size(), 2);

  const auto got = server_->Must(Message<v1::GetModelRequest>("model: 'trec'"));
  const v1::ModelInfo& info = got.model();
  EXPECT_EQ(info.SerializeAsString(), list.models(0).SerializeAsString());
  EXPECT_THAT(info, HasFieldsOf(R"(
      name: 'trec' version: 1 task: 'classifier' input_size: 128 output_size: 128 hidden_size: 64
      num_layers: 2 bidirectional: true pooling: POOLING_MAX vocabulary_size: 8759
      labels: ['DESC', 'ENTY', 'ABBR', 'HUM', 'LOC', 'NUM'] preprocessing: 'sentence_classification'
      max_sequence_tokens: 2048 dtype: 'float32' parameter_count: 1221254)"));
  EXPECT_FALSE(info.backend().empty());
  EXPECT_GE(info.instances(), 1);
  EXPECT_THAT(list.models(1), HasFieldsOf(R"(
      name: 'war_and_peace' task: 'language_model' vocabulary_size: 113 preprocessing: 'bytes'
      hidden_size: 512 num_layers: 4 parameter_count: 990897)"));
  EXPECT_TRUE(list.models(1).labels().empty());

  // Which of the two is meant, nobody can know.
  EXPECT_THAT(server_->Call(v1::GetModelRequest()),
              Fails(grpc::StatusCode::INVALID_ARGUMENT, HasSubstr("trec, war_and_peace")));

  EXPECT_THAT(server_->Call(Message<v1::GetModelRequest>("model: 'nope'")),
              Fails(grpc::StatusCode::NOT_FOUND, HasSubstr("trec")));
}

TEST_F(ServingTest, HealthCheckKnowsTheServerTheServiceAndTheModel) {
  for (const char* name : {"", "sru.v1.InferenceService", "trec"}) {
    EXPECT_EQ(server_->Health(name), "SERVING") << name;
  }
  EXPECT_EQ(server_->Health("nope"), absl::StrCat("code ", grpc::StatusCode::NOT_FOUND));
}

// A stream of messages from a method, one request.
class Stream {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
         const std::string& request)
      : stub_(channel) {
    stream_ = stub_.PrepareCall(&context_, method, &queue_);
    stream_->StartCall(this);
    EXPECT_TRUE(Next());
    stream_->Write(ToBytes(request), this);
    EXPECT_TRUE(Next());
  }
  ~Stream() {
    context_.TryCancel();
    grpc::Status status;
    stream_->Finish(&status, this);
    Next();
    queue_.Shutdown();
    while (Next()) {
    }
  }

  // The next message, "end" when the stream ends.
  std::string Read() {
    grpc::ByteBuffer bytes;
    stream_->Read(&bytes, this);
    return Next() ? FromBytes(bytes) : "end";
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

TEST(HealthTest, HealthWatchSeesTheDrain) {
  RunningServer server(TestOptions(kBundledRepository));
  Stream watch(server.channel(), "/grpc.health.v1.Health/Watch", HealthRequest("trec"));
  EXPECT_EQ(watch.Read(), kServing);
  EXPECT_EQ(server.Get("/readyz").status, 200);
  EXPECT_EQ(server.Metric("sru_ready"), 1);
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(watch.Read(), std::string("\x08\x02", 2));
  EXPECT_EQ(server.Get("/readyz").status, 503);
  EXPECT_EQ(server.Get("/readyz").body, "not ready: draining\n");
  EXPECT_EQ(server.Get("/healthz").status, 200);
  EXPECT_EQ(server.Metric("sru_ready"), 0);
}

// The addresses that --listen accepts.
TEST(ListenTest, EveryAddressIsOfBothFamilies) {
  server::Options options = TestOptions(kBundledRepository);
  options.listen = {"0.0.0.0", 0};
  RunningServer server(options);
  std::vector<std::string> hosts = {"127.0.0.1"};
  // The file is empty or missing on a machine without IPv6.
  if (std::ifstream("/proc/net/if_inet6").peek() != std::ifstream::traits_type::eof()) {
    hosts.emplace_back("[::1]");
  }
  for (const std::string& host : hosts) {
    const auto stub =
        v1::InferenceService::NewStub(MakeChannel(host + ":" + std::to_string(server.port())));
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    const grpc::Status status = stub->ListModels(&context, v1::ListModelsRequest(), &response);
    EXPECT_TRUE(status.ok()) << host << ": " << status.error_message();
  }
}

TEST_F(ServingTest, ReflectionListsTheService) {
  // ServerReflectionRequest{list_services = 7}.
  Stream stream(server_->channel(),
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                std::string("\x3a\x01*", 3));
  const std::string services = stream.Read();
  EXPECT_THAT(services, HasSubstr("sru.v1.InferenceService"));
  EXPECT_THAT(services, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(ServingTest, MetricsFollowTheCalls) {
  const std::string ok =
      "sru_requests_total{code=\"OK\",method=\"Classify\",model=\"trec\",version=\"1\"}";
  const double before = std::max(0.0, server_->Metric(ok));
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Who wrote it?");
  request.add_sequences()->set_text("Where is it?");
  for (int i = 0; i < 3; ++i) server_->Must(request);
  EXPECT_EQ(server_->Metric(ok), before + 3);
  EXPECT_GE(server_->Metric("sru_batch_sequences_sum{model=\"trec\",version=\"1\"}"), 6);
  EXPECT_GE(server_->Metric("sru_compute_duration_seconds_count{model=\"trec\",version=\"1\"}"), 1);
  EXPECT_EQ(server_->Metric("sru_models_loaded"), 2);
  EXPECT_EQ(server_->Metric("sru_model_info{model=\"trec\",version=\"1\",task=\"classifier\"}"), 1);
  EXPECT_EQ(server_->Metric("sru_queue_sequences{model=\"trec\",version=\"1\"}"), 0);
  // A call leaves the count when gRPC is done with it, a moment after its answer.
  EXPECT_TRUE(server_->Becomes("sru_requests_in_flight", 0));

  // A name that a caller invents makes no series.
  request.set_model("no-such-model");
  EXPECT_EQ(server_->Call(request).error_code(), grpc::StatusCode::NOT_FOUND);
  const std::string text = server_->Get("/metrics").body;
  EXPECT_THAT(text, ::testing::Not(HasSubstr("no-such-model")));
  EXPECT_THAT(text, HasSubstr("sru_requests_total{code=\"NOT_FOUND\",method=\"Classify\","
                              "model=\"\",version=\"\"}"));
}

}  // namespace
}  // namespace sru::testing
