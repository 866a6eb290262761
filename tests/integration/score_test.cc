// Score over the wire: values, states that are carried and used again, and every way to ask
// wrongly.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/digest.h"
#include "models/language_model.h"
#include "models/safetensors.h"
#include "models/state_codec.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/protos.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;
using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Models of tests/golden, whose tokens are the bytes from 32 on.
constexpr char kGolden[] = "tests/golden/language_model";
constexpr int kVocabulary = 33;  // of carried_projection: from ' ' to '@'
constexpr char kText[] = "3.14159 + 2.71828 = 5.85987 (0)";

void CopyModel(const std::string& golden, const models::TempDirectory& to,
               const std::string& name) {
  fs::create_directories(to.path(name));
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(fs::path(kGolden) / golden / file, fs::path(to.path(name)) / file);
  }
}

class ScoreTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    repository_ = new models::TempDirectory;
    CopyModel("carried_projection", *repository_, "lm/1");
    CopyModel("carried_projection", *repository_, "lm/2");
    CopyModel("fresh", *repository_, "other/1");
    models::WriteSmallModel(*repository_, "classifier/1");
    server_ = new RunningServer(Options(kernels::DataType::kFloat32));
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }

  static server::Options Options(kernels::DataType dtype) {
    server::Options options = TestOptions(repository_->path());
    options.batching.compile.dtype = dtype;
    options.models.version_policy = models::VersionPolicy::All();
    return options;
  }

  void SetUp() override {
    request_.set_model("lm");
    request_.set_version(1);
    request_.add_sequences()->set_text(kText);
  }

  // The state after `text`.
  std::string StateAfter(const std::string& text, RunningServer* server = server_) {
    auto request = Message<v1::ScoreRequest>("model: 'lm' version: 1 return_states: true");
    request.add_sequences()->set_text(text);
    return server->Must(request).scores(0).state();
  }

  // Of the model "lm" in float32.
  static models::StateCodec Codec() {
    models::StateOwner owner;
    owner.model = "lm";
    owner.version = 1;
    owner.weights_digest = *models::DigestOfFile(
        *models::OpenFile::Open(repository_->path("lm/1/model.safetensors"), 1 << 20));
    const std::vector<kernels::FieldSpec> fields = {{"c", kLayers * kWidth, false},
                                                    {"h", kWidth, false}};
    return {owner, fields, 5};
  }

  // The call fails so, and the next one is answered.
  void ExpectError(const std::string& start, StatusCode code = StatusCode::INVALID_ARGUMENT) {
    EXPECT_THAT(server_->Call(request_), Fails(code, StartsWith(start)));
    v1::ScoreRequest good;
    good.set_model("lm");
    good.add_sequences()->set_text(kText);
    EXPECT_EQ(server_->Must(good).scores_size(), 1);
  }

  static constexpr int kWidth = 24;
  static constexpr int kLayers = 3;
  static inline models::TempDirectory* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  v1::ScoreRequest request_;
};

std::vector<float> LogProbs(const v1::Score& score) {
  return {score.token_log_probs().begin(), score.token_log_probs().end()};
}

TEST_F(ScoreTest, GivesTheRecordedLogProbabilities) {
  auto expected = models::SafetensorsFile::Open(
      (fs::path(kGolden) / "fresh" / "expected.safetensors").string());
  ASSERT_TRUE(expected.ok()) << expected.status();
  const models::TensorView& lengths = *(*expected)->Find("input.lengths");
  const auto* tokens = static_cast<const int64_t*>((*expected)->Find("input.tokens")->data);
  const auto* recorded = static_cast<const float*>((*expected)->Find("expected.log_probs")->data);
  v1::ScoreRequest request;
  request.set_model("other");
  request.set_token_log_probs(true);
  int at = 0;
  for (int64_t b = 0; b < lengths.shape[0]; ++b) {
    v1::TokenIds* const ids = request.add_sequences()->mutable_token_ids();
    for (int64_t t = 0; t < static_cast<const int64_t*>(lengths.data)[b]; ++t) {
      ids->add_values(static_cast<int32_t>(tokens[at++]));
    }
  }
  const v1::ScoreResponse response = server_->Must(request);
  ASSERT_EQ(response.scores_size(), request.sequences_size());
  EXPECT_EQ(response.model(), "other");
  EXPECT_EQ(response.version(), 1);
  EXPECT_GT(response.times().total_us(), 0);
  int first = 0;
  for (int b = 0; b < response.scores_size(); ++b) {
    const v1::Score& score = response.scores(b);
    const int count = request.sequences(b).token_ids().values_size();
    EXPECT_EQ(score.token_count(), count);
    ASSERT_EQ(score.scored_count(), count - 1);
    ASSERT_EQ(score.token_log_probs_size(), count - 1);
    EXPECT_EQ(score.candidates_size(), 0);
    EXPECT_TRUE(score.state().empty());
    double sum = 0;
    for (int t = 1; t < count; ++t) {
      EXPECT_NEAR(score.token_log_probs(t - 1), recorded[first + t], 5e-5);
      sum += score.token_log_probs(t - 1);
    }
    EXPECT_DOUBLE_EQ(score.log_prob(), sum);
    first += count;
  }
}

TEST_F(ScoreTest, GivesTheSumAloneUnlessMoreIsAskedFor) {
  const v1::Score score = server_->Must(request_).scores(0);
  EXPECT_EQ(score.token_log_probs_size(), 0);
  EXPECT_EQ(score.token_texts_size(), 0);
  EXPECT_LT(score.log_prob(), 0);
}

TEST_F(ScoreTest, GivesTheTextOfEachTokenAlsoOfTheFirst) {
  request_.mutable_sequences(0)->set_text("12:30");
  request_.set_token_texts(true);
  request_.add_sequences()->set_text("");
  request_.set_skip_empty(true);
  const v1::ScoreResponse response = server_->Must(request_);
  EXPECT_THAT(response.scores(0).token_texts(), ElementsAre("1", "2", ":", "3", "0"));
  EXPECT_EQ(response.scores(1).token_texts_size(), 0);
}

TEST_F(ScoreTest, OneTokenHasNoProbabilityUnlessAStateComesBefore) {
  request_.mutable_sequences(0)->set_text("1");
  request_.set_token_log_probs(true);
  request_.set_top_candidates(2);
  v1::Score score = server_->Must(request_).scores(0);
  EXPECT_EQ(score.token_count(), 1);
  EXPECT_EQ(score.scored_count(), 0);
  EXPECT_EQ(score.log_prob(), 0);
  EXPECT_EQ(score.token_log_probs_size(), 0);
  EXPECT_EQ(score.candidates_size(), 0);
  request_.add_states(StateAfter("0"));
  score = server_->Must(request_).scores(0);
  EXPECT_EQ(score.scored_count(), 1);
  EXPECT_EQ(score.candidates_size(), 1);
  EXPECT_LT(score.log_prob(), 0);
}

// In any chunks, on this server and another one.
TEST_F(ScoreTest, ToGoOnFromAStateGivesTheBitsOfNeverHavingStopped) {
  RunningServer replica(Options(kernels::DataType::kFloat32));
  request_.set_token_log_probs(true);
  request_.set_return_states(true);
  const v1::Score whole = server_->Must(request_).scores(0);
  const std::string text = kText;
  for (const size_t chunk : {1, 7, 30}) {
    std::vector<float> log_probs;
    v1::ScoreRequest request = request_;
    for (size_t begin = 0; begin < text.size(); begin += chunk) {
      request.mutable_sequences(0)->set_text(text.substr(begin, chunk));
      const v1::Score part = (begin % 2 == 0 ? server_ : &replica)->Must(request).scores(0);
      const std::vector<float> values = LogProbs(part);
      log_probs.insert(log_probs.end(), values.begin(), values.end());
      request.clear_states();
      request.add_states(part.state());
    }
    EXPECT_EQ(log_probs, LogProbs(whole)) << chunk;
    EXPECT_EQ(request.states(0), whole.state()) << chunk;
  }
}

TEST_F(ScoreTest, AStateMayBeUsedAnyNumberOfTimes) {
  const std::string state = StateAfter("12:");
  request_.set_token_log_probs(true);
  request_.mutable_sequences(0)->set_text("30");
  for (int i = 0; i < 9; ++i) request_.add_sequences()->set_text("30");
  for (int i = 0; i < 10; ++i) request_.add_states(i == 4 ? "" : state);
  const v1::ScoreResponse response = server_->Must(request_);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(response.scores(i).scored_count(), i == 4 ? 1 : 2);
    if (i == 4) continue;
    EXPECT_EQ(LogProbs(response.scores(i)), LogProbs(response.scores(0)));
  }
}

TEST_F(ScoreTest, TheSameBitsAloneAndInACall) {
  request_.set_token_log_probs(true);
  const std::vector<float> alone = LogProbs(server_->Must(request_).scores(0));
  for (int i = 1; i < 40; ++i) {
    request_.add_sequences()->set_text(
        std::string(1 + i * 7 % 60, static_cast<char>('!' + i % 20)));
  }
  EXPECT_EQ(LogProbs(server_->Must(request_).scores(0)), alone);
}

TEST_F(ScoreTest, CandidatesAreTheDistribution) {
  request_.set_token_log_probs(true);
  request_.set_top_candidates(kVocabulary);
  const v1::Score all = server_->Must(request_).scores(0);
  ASSERT_EQ(all.candidates_size(), all.scored_count());
  for (int t = 0; t < all.scored_count(); ++t) {
    const auto& candidates = all.candidates(t).candidates();
    ASSERT_EQ(candidates.size(), kVocabulary);
    double sum = 0;
    bool found = false;
    for (int i = 0; i < candidates.size(); ++i) {
      sum += std::exp(candidates[i].log_prob());
      EXPECT_LE(candidates[i].log_prob(), candidates[std::max(i - 1, 0)].log_prob());
      EXPECT_EQ(candidates[i].text(),
                std::string(1, static_cast<char>(' ' + candidates[i].token_id())));
      if (candidates[i].token_id() == kText[t + 1] - ' ') {
        found = true;
        EXPECT_EQ(candidates[i].log_prob(), all.token_log_probs(t));
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
    EXPECT_TRUE(found);
  }
  request_.set_top_candidates(3);
  const v1::Score three = server_->Must(request_).scores(0);
  for (int t = 0; t < three.scored_count(); ++t) {
    ASSERT_EQ(three.candidates(t).candidates_size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(three.candidates(t).candidates(i).token_id(),
                all.candidates(t).candidates(i).token_id());
    }
  }
}

TEST_F(ScoreTest, IsDescribedAndCounted) {
  EXPECT_THAT(server_->Must(Message<v1::GetModelRequest>("model: 'lm'")).model(),
              HasFieldsOf("task: 'language_model' vocabulary_size: 33"));
  server_->Must(request_);
  EXPECT_GE(server_->Metric(
                "sru_requests_total{code=\"OK\",method=\"Score\",model=\"lm\",version=\"1\"}"),
            1);
}

TEST_F(ScoreTest, WrongTask) {
  request_.set_model("classifier");
  ExpectError("model: 'classifier' has the task classifier, Score needs a language_model",
              StatusCode::FAILED_PRECONDITION);
  const std::string asked = "model: 'lm' sequences { text: '1' }";
  const auto fails = [](const std::string& needed) {
    return Fails(StatusCode::FAILED_PRECONDITION,
                 StartsWith("model: 'lm' has the task language_model, " + needed));
  };
  EXPECT_THAT(server_->Call(Message<v1::ClassifyRequest>(asked)),
              fails("Classify needs a classifier"));
  EXPECT_THAT(server_->Call(Message<v1::EncodeRequest>(asked)), fails("Encode needs an encoder"));
}

TEST_F(ScoreTest, BadSequences) {
  request_.clear_sequences();
  ExpectError("sequences: empty, expected at least one");
  request_.add_sequences();
  ExpectError("sequences[0]: empty sequence");
  request_.mutable_sequences(0)->set_text("");
  ExpectError("sequences[0].text: no tokens");
  request_.mutable_sequences(0)->mutable_token_ids();
  ExpectError("sequences[0].token_ids.values: empty");
  request_.mutable_sequences(0)->mutable_token_ids()->add_values(0);
  request_.mutable_sequences(0)->mutable_token_ids()->add_values(kVocabulary);
  ExpectError("sequences[0].token_ids.values[1]: 33 is out of range, expected 0 to 32");
  request_.mutable_sequences(0)->set_text("1 + 1 = two");
  ExpectError("sequences[0].text: byte 8");
  request_.mutable_sequences(0)->mutable_tokens()->add_values("x");
  ExpectError("sequences[0].tokens.values[0]: not in the model's");
  request_.mutable_sequences(0)->mutable_features()->set_feature_size(8);
  ExpectError("sequences[0].features: the model takes text, tokens or token_ids");
}

TEST_F(ScoreTest, BadCandidates) {
  request_.set_top_candidates(-1);
  ExpectError("top_candidates: -1 is out of range, expected 0 to 33");
  request_.set_top_candidates(kVocabulary + 1);
  ExpectError("top_candidates: 34 is out of range");
}

TEST_F(ScoreTest, StatesAndSequencesOfDifferentNumber) {
  request_.add_states(StateAfter("1"));
  request_.add_states("");
  ExpectError("states: expected none or 1, one per sequence, found 2");
  request_.add_sequences()->set_text("1");
  request_.add_sequences()->set_text("1");
  ExpectError("states: expected none or 3, one per sequence, found 2");
}

TEST_F(ScoreTest, StatesThatAreNotOfThisModel) {
  const std::string state = StateAfter("12");
  request_.add_sequences()->set_text("2");
  request_.add_states(state);
  request_.add_states("x");
  ExpectError("states[1]: 1 bytes that are not a state");
  request_.set_states(1, state.substr(0, state.size() - 1));
  ExpectError("states[1]: the state was cut or changed");
  request_.set_states(1, state);
  request_.mutable_states(1)->back() ^= 1;
  ExpectError("states[1]: the state was cut or changed");
  request_.set_states(1, state);
  request_.set_version(2);
  ExpectError("states[0]: the state of version 1 of the model, expected one of version 2");
  request_.set_model("other");
  request_.set_version(1);
  for (v1::Sequence& sequence : *request_.mutable_sequences()) sequence.set_text("!");
  ExpectError("states[0]: the state of another model, expected one of 'other'");
}

TEST_F(ScoreTest, AStateOfAnotherDataType) {
  RunningServer bfloat16(Options(kernels::DataType::kBFloat16));
  request_.add_states(StateAfter("12", &bfloat16));
  ExpectError("states[0]: a state in bfloat16, expected float32");
}

TEST_F(ScoreTest, AStateKnowsItsPlaceInTheText) {
  const models::StateCodec codec = Codec();
  models::SequenceState state;
  const std::string after_two = StateAfter("12");
  ASSERT_TRUE(codec.Decode(after_two, &state).ok());
  EXPECT_EQ(state.memo.position, 2);
  EXPECT_FALSE(state.memo.text_position.at_start);
  // One of a text that was generated: what it counts stays, what was pending is not gone on with.
  state.memo.counts = {{1, 2}};
  state.memo.prompt_ids = {3};
  state.memo.pending_text = "x";
  request_.mutable_sequences(0)->set_text("300");
  request_.add_states(codec.Encode(state.state, state.memo));
  request_.set_return_states(true);
  models::SequenceState next;
  ASSERT_TRUE(codec.Decode(server_->Must(request_).scores(0).state(), &next).ok());
  EXPECT_EQ(next.memo.position, 5);
  EXPECT_EQ(next.memo.counts, state.memo.counts);
  EXPECT_EQ(next.memo.prompt_ids, state.memo.prompt_ids);
  EXPECT_EQ(next.memo.pending_text, "");
}

TEST_F(ScoreTest, NotANumberInAState) {
  const models::StateCodec codec = Codec();
  kernels::StateArena::State state;
  state.rows = {1, 1};
  state.values.assign((kLayers + 1) * kWidth, 0.5f);
  request_.add_states(codec.Encode(state, {}));
  server_->Must(request_);  // it is a state of this model
  state.values[3] = std::numeric_limits<float>::quiet_NaN();
  request_.set_states(0, codec.Encode(state, {}));
  ExpectError("states[0]: value 3 of the state is nan");
}

TEST_F(ScoreTest, BytesThatAreNoMessage) {
  const std::string method = "/sru.v1.InferenceService/Score";
  EXPECT_EQ(server_->CallRaw(method, "\xff\xff").error_code(), StatusCode::INVALID_ARGUMENT);
  // A model's name that is not UTF-8.
  EXPECT_THAT(server_->CallRaw(method, std::string("\x0a\x01\xff", 3)),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("model")));
}

}  // namespace
}  // namespace sru::testing
