// Tag over the wire: the labels of the published package's probabilities, through each door, and
// every way to ask wrongly.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.grpc.pb.h"
#include "models/safetensors.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;
using ::grpc::StatusCode;
using ::testing::HasSubstr;

constexpr char kTaggerFolder[] = "tests/golden/tagger/";
constexpr float kTolerance = 5e-5f;
constexpr char kAnswered[] =
    "sru_requests_total{code=\"OK\",method=\"Tag\",model=\"words\",version=\"1\"}";

class TagTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    repository_ = new models::TempDirectory;
    for (const char* name : {"words", "frames"}) {
      fs::create_directories(repository_->path(name));
      fs::copy(fs::path(kTaggerFolder) / name, repository_->path(absl::StrCat(name, "/1")));
    }
    models::WriteSmallModel(*repository_, "classifier/1");
    server_ = new RunningServer(TestOptions(repository_->path()));
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }

  void SetUp() override { request_.set_model("words"); }

  void ExpectError(const std::string& message, StatusCode code = StatusCode::INVALID_ARGUMENT) {
    EXPECT_THAT(server_->Call(request_), Fails(code, HasSubstr(message)));
  }

  // The sequences of a golden file, and for each of their tokens the log-probabilities of all
  // labels.
  void ReadGolden(const std::string& name, v1::TagRequest* request,
                  std::vector<const float*>* log_probs) {
    golden_ = models::SafetensorsFile::Open(kTaggerFolder + name + "/expected.safetensors").value();
    const models::TensorView& expected = *golden_->Find("expected.log_probs");
    for (int64_t t = 0; t < expected.shape[0]; ++t) {
      log_probs->push_back(static_cast<const float*>(expected.data) + t * expected.shape[1]);
    }
    const models::TensorView* const ids = golden_->Find("input.tokens");
    const models::TensorView* const features = golden_->Find("input.features");
    const models::TensorView& lengths = *golden_->Find("input.lengths");
    int64_t t = 0;
    for (int64_t i = 0; i < lengths.shape[0]; ++i) {
      const int64_t end = t + static_cast<const int64_t*>(lengths.data)[i];
      v1::Sequence* const sequence = request->add_sequences();
      for (; t < end; ++t) {
        if (ids != nullptr) {
          sequence->mutable_token_ids()->add_values(
              static_cast<int32_t>(static_cast<const int64_t*>(ids->data)[t]));
        } else {
          const auto width = static_cast<size_t>(features->shape[1]);
          sequence->mutable_features()->set_feature_size(static_cast<int32_t>(width));
          sequence->mutable_features()->mutable_data()->append(
              reinterpret_cast<const char*>(static_cast<const float*>(features->data) + t * width),
              width * sizeof(float));
        }
      }
    }
  }

  static inline models::TempDirectory* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  v1::TagRequest request_;
  std::unique_ptr<models::SafetensorsFile> golden_;
};

TEST_F(TagTest, GivesTheProbabilitiesOfThePackage) {
  for (const char* name : {"words", "frames"}) {
    SCOPED_TRACE(name);
    request_.Clear();
    request_.set_model(name);
    request_.set_top_k(4);
    std::vector<const float*> expected;
    ASSERT_NO_FATAL_FAILURE(ReadGolden(name, &request_, &expected));
    const v1::TagResponse response = server_->Must(request_);
    size_t t = 0;
    for (const v1::Tagging& tagging : response.taggings()) {
      EXPECT_EQ(tagging.token_count(), tagging.tokens_size());
      EXPECT_FALSE(tagging.truncated());
      for (const v1::TokenTags& token : tagging.tokens()) {
        ASSERT_LT(t, expected.size());
        ASSERT_EQ(token.labels_size(), 4);
        EXPECT_EQ(token.token().empty(), std::string(name) == "frames");
        for (const v1::TagLabel& label : token.labels()) {
          EXPECT_NEAR(label.probability(), std::exp(expected[t][label.index()]), kTolerance);
        }
        ++t;
      }
    }
    EXPECT_EQ(t, expected.size());
  }
}

TEST_F(TagTest, NamesTheMostProbableLabelOfEachToken) {
  request_.add_sequences()->set_text("three seven blah two");
  auto* const tokens = request_.add_sequences()->mutable_tokens();
  tokens->add_values("ten");
  tokens->add_values("nine");
  const double before = std::max(0.0, server_->Metric(kAnswered));
  const v1::TagResponse response = server_->Must(request_);
  EXPECT_EQ(response.model(), "words");
  EXPECT_EQ(response.version(), 1);
  EXPECT_GT(response.times().total_us(), 0);
  ASSERT_EQ(response.taggings_size(), 2);
  const v1::Tagging& text = response.taggings(0);
  ASSERT_EQ(text.tokens_size(), 4);
  EXPECT_EQ(text.unknown_tokens(), 1);
  EXPECT_EQ(text.tokens(0).token(), "three");
  EXPECT_EQ(text.tokens(2).token(), "<unk>");
  ASSERT_EQ(text.tokens(0).labels_size(), 1);
  EXPECT_EQ(text.tokens(0).labels(0).name(), "rises");
  EXPECT_EQ(text.tokens(3).labels(0).name(), "ends");
  EXPECT_EQ(response.taggings(1).tokens(0).labels(0).name(), "falls");
  EXPECT_EQ(response.taggings(1).tokens(0).labels(0).index(), 1);
  EXPECT_EQ(server_->Metric(kAnswered), before + 1);
}

TEST_F(TagTest, SkipsWhatHasNoTokens) {
  request_.add_sequences()->set_text("");
  ExpectError("sequences[0].text");
  request_.set_skip_empty(true);
  request_.add_sequences()->set_text("one");
  const v1::TagResponse response = server_->Must(request_);
  ASSERT_EQ(response.taggings_size(), 2);
  EXPECT_EQ(response.taggings(0).tokens_size(), 0);
  EXPECT_EQ(response.taggings(1).tokens_size(), 1);
}

TEST_F(TagTest, RefusesWhatIsWrong) {
  ExpectError("sequences: empty, expected at least one");
  request_.add_sequences()->set_text("one");
  for (const int top_k : {-1, 5}) {
    request_.set_top_k(top_k);
    ExpectError(absl::StrCat("top_k: ", top_k, " is out of range, expected 0 to 4"));
  }
  request_.set_top_k(0);
  request_.mutable_sequences(0)->mutable_features()->set_feature_size(8);
  ExpectError("sequences[0].features");
  request_.mutable_sequences(0)->set_text("one");
  request_.set_model("frames");
  ExpectError("sequences[0].text");
  request_.set_model("classifier");
  ExpectError("has the task classifier, Tag needs a tagger; the model answers Classify, Encode",
              StatusCode::FAILED_PRECONDITION);
  v1::ClassifyRequest classify;
  classify.set_model("words");
  classify.add_sequences()->set_text("one");
  EXPECT_THAT(server_->Call(classify).error_message(),
              HasSubstr("has the task tagger, Classify needs a classifier; the model answers Tag"));
}

TEST_F(TagTest, AnswersTensors) {
  const auto stub = inference::GRPCInferenceService::NewStub(server_->channel());
  inference::ModelInferRequest request;
  request.set_model_name("words");
  auto* const input = request.add_inputs();
  input->set_name("text");
  input->set_datatype("BYTES");
  input->add_shape(2);
  input->mutable_contents()->add_bytes_contents("one two");
  input->mutable_contents()->add_bytes_contents("ten nine eight");
  inference::ModelInferResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.outputs_size(), 3);
  EXPECT_EQ(response.outputs(0).name(), "label_ids");
  EXPECT_THAT(response.outputs(0).shape(), ::testing::ElementsAre(2, 3));
  const std::string& ids = response.raw_output_contents(0);
  ASSERT_EQ(ids.size(), 6 * sizeof(int32_t));
  const auto* const label = reinterpret_cast<const int32_t*>(ids.data());
  EXPECT_THAT(std::vector<int32_t>(label, label + 6), ::testing::ElementsAre(0, 3, 0, 1, 1, 3));
  EXPECT_EQ(response.outputs(1).name(), "probabilities");
  EXPECT_EQ(response.outputs(2).name(), "lengths");

  // A row without tokens has no labels.
  input->set_shape(0, 3);
  input->mutable_contents()->add_bytes_contents(" ");
  const auto infer = [&](inference::ModelInferResponse* answer) {
    grpc::ClientContext another;
    return stub->ModelInfer(&another, request, answer);
  };
  inference::ModelInferResponse with_blank;
  EXPECT_THAT(infer(&with_blank), Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("skip_empty")));
  (*request.mutable_parameters())["skip_empty"].set_bool_param(true);
  ASSERT_TRUE(infer(&with_blank).ok());
  const std::string zeros(3 * sizeof(int32_t), '\0');
  EXPECT_EQ(with_blank.raw_output_contents(0), ids + zeros);
  EXPECT_EQ(with_blank.raw_output_contents(1), response.raw_output_contents(1) + zeros);
  EXPECT_EQ(with_blank.raw_output_contents(2),
            response.raw_output_contents(2) + std::string(sizeof(int32_t), '\0'));
}

}  // namespace
}  // namespace sru::testing
