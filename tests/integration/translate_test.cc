// Translate over the wire with small random translators: the same as one hypothesis at a time, every field that can be
// wrong, and what the server tells of a translator.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/plain_translator.h"
#include "tests/testing/poll.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kOkCalls[] =
    "sru_requests_total{code=\"OK\",method=\"Translate\",model=\"text\",version=\"1\"}";
constexpr char kLabels[] = "{model=\"text\",version=\"1\"}";

// "text" has subwords, "ids" has none, "trec" is a classifier.
class TranslatorRepository {
 public:
  TranslatorRepository() {
    models::WriteSmallTranslator(directory_, "text/1");
    nlohmann::json config = models::SmallTranslatorConfig();
    config.erase("preprocessing");
    models::WriteTranslator(directory_, "ids/1", config, models::TranslatorTensors(config, 7));
    std::filesystem::copy(std::string(kBundledRepository) + "/trec", directory_.path("trec"),
                          std::filesystem::copy_options::recursive);
  }
  std::string path(const std::string& name = "") const { return directory_.path(name); }

 private:
  models::TempDirectory directory_;
};

class TranslateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    google::protobuf::SetLogHandler(nullptr);
    repository_ = new TranslatorRepository();
    server::Options options = TestOptions(repository_->path());
    options.rpc.limits.max_sequence_tokens = 24;
    options.rpc.limits.max_sequences = 40;
    options.rpc.limits.max_new_tokens = 50;
    server_ = new RunningServer(options);
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }
  void SetUp() override {
    ASSERT_TRUE(server_->started());
    request_.set_model("text");
    request_.add_sequences()->set_text("a b c");
  }
  void TearDown() override {
    EXPECT_TRUE(PollUntil([] {
      return server_->Metric("sru_state_slots{model=\"text\",version=\"1\",kind=\"used\"}") == 0;
    }));
    EXPECT_TRUE(PollUntil([] { return server_->Metric("sru_inflight_bytes") == 0; }));
    // A call is counted out after its answer.
    EXPECT_TRUE(PollUntil([] { return server_->Metric("sru_requests_in_flight") == 0; }));
  }

  grpc::Status Translate(const v1::TranslateRequest& request, v1::TranslateResponse* response) {
    grpc::ClientContext context;
    return server_->stub().Translate(&context, request, response);
  }
  v1::TranslateResponse MustTranslate(const v1::TranslateRequest& request) {
    v1::TranslateResponse response;
    const grpc::Status status = Translate(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.translations_size(), request.sequences_size());
    return response;
  }
  void ExpectError(const std::string& message) {
    v1::TranslateResponse response;
    const grpc::Status status = Translate(request_, &response);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }

  static TranslatorRepository* repository_;
  static RunningServer* server_;
  v1::TranslateRequest request_;
};
TranslatorRepository* TranslateTest::repository_ = nullptr;
RunningServer* TranslateTest::server_ = nullptr;

// The same in process, with the backend that the server has.
class Plain {
 public:
  explicit Plain(const std::string& directory) {
    EXPECT_TRUE(kernels::CreateBackend("cpu", &backend_).ok());
    auto model = models::Model::Load(directory, "text", 1, *backend_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    translator_ = std::make_unique<server::PlainTranslator>(*model_);
  }
  const models::Model& model() const { return *model_; }
  server::tasks::TranslateTask Translate(const std::string& text, const std::string& prefix,
                                         const models::SearchOptions& search, bool alignment) {
    server::tasks::TranslateTask task;
    task.token_ids = *model_->tokenizer()->Encode(text);
    task.prefix = *model_->tokenizer()->Encode(prefix);
    task.search = search;
    task.alignment = alignment;
    return translator_->Translate(task);
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
  std::unique_ptr<server::PlainTranslator> translator_;
};

TEST_F(TranslateTest, TextsAreThoseOfOneHypothesisAtATime) {
  Plain plain(repository_->path("text/1"));
  request_.clear_sequences();
  const std::vector<std::string> texts = {"a",   "a b c",           "",        "cab cab",
                                          "   ", "b b b b b b b b", "a zz q b"};
  for (const std::string& text : texts) {
    request_.add_sequences()->set_text(text);
    request_.add_target_prefixes(text == "a b c" ? "c" : "");
  }
  for (const int beam : {0, 1, 4, 11}) {
    SCOPED_TRACE(absl::StrCat("beam ", beam));
    request_.set_beam_size(beam);
    request_.set_num_hypotheses(beam == 4 ? 3 : 0);
    request_.set_return_alignment(beam == 4);
    const v1::TranslateResponse response = MustTranslate(request_);
    EXPECT_EQ(response.model(), "text");
    EXPECT_EQ(response.version(), 1);
    models::SearchOptions search = plain.model().config().translator.search;
    if (beam > 0) search.beam_size = beam;
    if (beam == 1) search.length_penalty = models::LengthPenalty::kNone;
    if (beam == 4) search.num_hypotheses = 3;
    for (int i = 0; i < response.translations_size(); ++i) {
      SCOPED_TRACE(absl::StrCat("text ", i));
      const v1::Translation& translation = response.translations(i);
      const auto source = *plain.model().tokenizer()->Encode(texts[i]);
      const server::tasks::TranslateTask expected =
          plain.Translate(texts[i], request_.target_prefixes(i), search, beam == 4);
      EXPECT_EQ(translation.token_count(), static_cast<int>(source.size()));
      EXPECT_EQ(translation.unknown_tokens(), texts[i] == "a zz q b" ? 2 : 0);
      EXPECT_FALSE(translation.truncated());
      EXPECT_EQ(translation.source_tokens_size(), beam == 4 ? source.size() : 0u);
      ASSERT_EQ(translation.hypotheses_size(), static_cast<int>(expected.hypotheses.size()));
      for (int k = 0; k < translation.hypotheses_size(); ++k) {
        const v1::Hypothesis& found = translation.hypotheses(k);
        const server::tasks::TranslatedHypothesis& wanted = expected.hypotheses[k];
        const std::vector<int32_t> ids(found.token_ids().begin(), found.token_ids().end());
        EXPECT_EQ(ids, wanted.tokens);
        EXPECT_EQ(found.text(), plain.model().tokenizer()->detokenizer()->Decode(wanted.tokens));
        EXPECT_EQ(found.tokens_size(), found.token_ids_size());
        EXPECT_EQ(found.log_prob(), wanted.log_prob);
        EXPECT_EQ(found.score(), wanted.score);
        EXPECT_EQ(found.unfinished(), !wanted.finished);
        const std::vector<float> alignment(found.alignment().begin(), found.alignment().end());
        EXPECT_EQ(alignment, wanted.alignment);
      }
    }
  }
}

TEST_F(TranslateTest, AHardAlignmentNamesTheTokensOfTheGreatestWeights) {
  request_.set_return_alignment(true);
  request_.set_return_hard_alignment(true);
  const v1::TranslateResponse both = MustTranslate(request_);
  request_.set_return_alignment(false);
  const v1::TranslateResponse hard = MustTranslate(request_);
  const v1::Hypothesis& expected = both.translations(0).hypotheses(0);
  const v1::Hypothesis& found = hard.translations(0).hypotheses(0);
  const int width = hard.translations(0).token_count();
  EXPECT_EQ(hard.translations(0).source_tokens_size(), width);
  EXPECT_EQ(found.alignment_size(), 0);
  ASSERT_EQ(found.hard_alignment_size(), found.tokens_size());
  ASSERT_GT(found.hard_alignment_size(), 0);
  for (int t = 0; t < found.hard_alignment_size(); ++t) {
    EXPECT_EQ(expected.hard_alignment(t), found.hard_alignment(t));
    const auto row = expected.alignment().begin() + std::ptrdiff_t{t} * width;
    EXPECT_EQ(std::max_element(row, row + width) - row, found.hard_alignment(t));
  }
  request_.set_return_hard_alignment(false);
  EXPECT_EQ(MustTranslate(request_).translations(0).hypotheses(0).hard_alignment_size(), 0);
}

TEST_F(TranslateTest, ThePenaltiesOfWordsAndTheLengthOfTheSource) {
  request_.set_beam_size(1);
  request_.set_word_penalty(-50);
  const v1::Hypothesis plain = MustTranslate(request_).translations(0).hypotheses(0);
  const int n = plain.tokens_size() + (plain.unfinished() ? 0 : 1);
  EXPECT_EQ(plain.score(), plain.log_prob() + 50 * n);
  // Three pieces.
  ASSERT_GT(plain.tokens_size(), 3);
  request_.set_max_length_factor(1);
  const v1::TranslateResponse cut = MustTranslate(request_);
  const int source = cut.translations(0).token_count();
  EXPECT_EQ(cut.translations(0).hypotheses(0).tokens_size(), source);
  EXPECT_TRUE(cut.translations(0).hypotheses(0).unfinished());
  // A prefix has room for a token after it.
  request_.set_max_length_factor(0.1f);
  request_.add_target_prefixes("c c c");
  const v1::Hypothesis prefixed = MustTranslate(request_).translations(0).hypotheses(0);
  EXPECT_TRUE(prefixed.tokens_size() > 3 || !prefixed.unfinished());
}

TEST_F(TranslateTest, TheSameTextAloneAndUnderLoad) {
  const v1::TranslateResponse alone = MustTranslate(request_);
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      for (int k = 0; k < 10; ++k) {
        v1::TranslateRequest request = request_;
        for (int more = 0; more < (i + k) % 7; ++more) {
          request.add_sequences()->set_text(std::string(1 + more, 'b'));
        }
        const v1::TranslateResponse response = MustTranslate(request);
        EXPECT_EQ(response.translations(0).SerializeAsString(),
                  alone.translations(0).SerializeAsString());
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(TranslateTest, AnEmptyTextHasAnEmptyTranslation) {
  request_.mutable_sequences(0)->set_text("");
  request_.set_beam_size(4);
  request_.set_num_hypotheses(4);
  request_.set_return_alignment(true);
  request_.add_sequences()->mutable_token_ids();
  request_.add_sequences()->mutable_tokens();
  const v1::TranslateResponse response = MustTranslate(request_);
  for (const v1::Translation& translation : response.translations()) {
    ASSERT_EQ(translation.hypotheses_size(), 1);
    EXPECT_EQ(translation.hypotheses(0).text(), "");
    EXPECT_EQ(translation.hypotheses(0).token_ids_size(), 0);
    EXPECT_EQ(translation.hypotheses(0).log_prob(), 0);
    EXPECT_FALSE(translation.hypotheses(0).unfinished());
    EXPECT_EQ(translation.token_count(), 0);
  }
}

TEST_F(TranslateTest, TextPiecesAndIdsAreTheSame) {
  request_.mutable_sequences(0)->set_text("c");
  request_.set_return_alignment(true);
  const v1::Translation of_text = MustTranslate(request_).translations(0);
  v1::Tokens* const pieces = request_.mutable_sequences(0)->mutable_tokens();
  for (const std::string& piece : of_text.source_tokens()) pieces->add_values(piece);
  EXPECT_EQ(MustTranslate(request_).translations(0).SerializeAsString(),
            of_text.SerializeAsString());
}

TEST_F(TranslateTest, AModelWithoutSubwordsTakesIds) {
  request_.set_model("ids");
  ExpectError("sequences[0].text: the model has no tokenizer");
  request_.mutable_sequences(0)->mutable_tokens()->add_values("a");
  ExpectError("sequences[0].tokens: the model has no tokenizer");
  request_.mutable_sequences(0)->mutable_token_ids()->add_values(4);
  request_.add_target_prefixes("a");
  ExpectError("target_prefixes[0]: the model has no subwords, expected no prefix");
  request_.clear_target_prefixes();
  const v1::Hypothesis hypothesis = MustTranslate(request_).translations(0).hypotheses(0);
  EXPECT_EQ(hypothesis.text(), "");
  EXPECT_EQ(hypothesis.tokens_size(), 0);
}

TEST_F(TranslateTest, EveryFieldThatIsWrongIsNamed) {
  const v1::TranslateRequest good = request_;
  const auto expect = [&](auto spoil, const std::string& message) {
    request_ = good;
    spoil();
    ExpectError(message);
  };
  expect([&] { request_.clear_sequences(); }, "sequences: empty, expected at least one");
  expect([&] { request_.mutable_sequences(0)->Clear(); }, "sequences[0]: empty sequence");
  expect(
      [&] {
        for (int i = 0; i < 41; ++i) request_.add_sequences()->set_text("a");
      },
      "sequences: 42 are too many, expected at most 40");
  expect([&] { request_.mutable_sequences(0)->mutable_token_ids()->add_values(11); },
         "sequences[0].token_ids.values[0]: 11 is out of range, expected 0 to 10");
  expect([&] { request_.mutable_sequences(0)->mutable_token_ids()->add_values(-1); },
         "sequences[0].token_ids.values[0]: -1 is out of range");
  expect(
      [&] {
        request_.mutable_sequences(0)->mutable_features()->set_feature_size(8);
        request_.mutable_sequences(0)->mutable_features()->set_data(std::string(32, '\0'));
      },
      "sequences[0].features: the model takes text, tokens or token_ids");
  for (const int beam : {-1, 65, 1000}) {
    expect([&] { request_.set_beam_size(beam); }, absl::StrCat("beam_size: ", beam));
  }
  expect([&] { request_.mutable_length_penalty()->set_alpha(std::nanf("")); },
         "length_penalty.alpha: nan");
  expect([&] { request_.mutable_length_penalty()->set_alpha(11); }, "length_penalty.alpha: 11");
  expect(
      [&] { request_.mutable_length_penalty()->set_form(static_cast<v1::LengthPenalty::Form>(4)); },
      "length_penalty.form: 4 is unknown");
  expect([&] { request_.set_num_hypotheses(4); },
         "num_hypotheses: 4 is out of range, expected 1 to 3 (beam_size)");
  expect([&] { request_.set_max_new_tokens(51); },
         "max_new_tokens: 51 is out of range, expected 1 to 50 (--max_new_tokens)");
  expect(
      [&] {
        request_.add_target_prefixes("a");
        request_.add_target_prefixes("a");
      },
      "target_prefixes: expected none or 1, one per sequence, found 2");
  expect(
      [&] {
        request_.add_target_prefixes("b b b b");
        request_.set_max_new_tokens(3);
      },
      "target_prefixes[0]: at least 3 tokens are too many, expected fewer than 3");
  expect([&] { request_.set_priority(static_cast<v1::Priority>(7)); }, "priority: 7 is unknown");
}

TEST_F(TranslateTest, BytesThatAreNotUtf8AreNamedByTheirField) {
  // Strings are checked when a message is made, so its bytes are changed.
  request_.add_target_prefixes("prefix");
  const std::string good = request_.SerializeAsString();
  const auto call = [&](std::string part) {
    std::string bytes = good;
    bytes[bytes.find(part)] = '\xff';
    return server_->CallRaw("/sru.v1.InferenceService/Translate", bytes);
  };
  grpc::Status status = call("prefix");
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("target_prefixes[0]"));
  status = call("a b c");
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("sequences[0].text"));
  status = server_->CallRaw("/sru.v1.InferenceService/Translate", good.substr(0, good.size() - 3));
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(TranslateTest, ATextOverTheLimitIsRefusedOrCut) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "c ";
  request_.mutable_sequences(0)->set_text(text);
  ExpectError("expected at most 24 (--max_sequence_tokens)");
  request_.set_truncate(true);
  const v1::Translation translation = MustTranslate(request_).translations(0);
  EXPECT_TRUE(translation.truncated());
  EXPECT_EQ(translation.token_count(), 24);
  EXPECT_EQ(translation.hypotheses_size(), 1);
}

TEST_F(TranslateTest, OnlyATranslatorTranslates) {
  request_.set_model("trec");
  v1::TranslateResponse response;
  grpc::Status status = Translate(request_, &response);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Translate needs a translator"));
  // Of two translators, a call names one.
  request_.set_model("");
  status = Translate(request_, &response);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
  request_.set_model("none");
  EXPECT_EQ(Translate(request_, &response).error_code(), StatusCode::NOT_FOUND);
  v1::ClassifyRequest classify;
  classify.set_model("text");
  classify.add_sequences()->set_text("a");
  v1::ClassifyResponse classified;
  status = server_->Classify(classify, &classified);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("the model answers Translate"));
}

TEST_F(TranslateTest, GetModelTellsOfTheSearch) {
  v1::GetModelRequest request;
  request.set_model("text");
  v1::GetModelResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server_->stub().GetModel(&context, request, &response).ok());
  EXPECT_EQ(response.model().task(), "translator");
  const v1::TranslatorInfo& translator = response.model().translator();
  EXPECT_EQ(translator.beam_size(), 3);
  EXPECT_EQ(translator.length_penalty().form(), v1::LengthPenalty::FORM_GNMT);
  EXPECT_FLOAT_EQ(translator.length_penalty().alpha(), 0.6f);
  EXPECT_EQ(translator.max_new_tokens(), 20);
  EXPECT_EQ(translator.target_vocabulary_size(), 11);
  EXPECT_EQ(translator.source_language(), "en");
  EXPECT_EQ(translator.target_language(), "de");
  EXPECT_EQ(translator.max_positions(), 100);
}

TEST_F(TranslateTest, CallsAreCountedAndTimed) {
  const double calls = std::max(server_->Metric(kOkCalls), 0.0);
  const std::string tokens = absl::StrCat("sru_generated_tokens_total", kLabels);
  const std::string steps = absl::StrCat("sru_decode_batch_sequences_count", kLabels);
  const double tokens_before = server_->Metric(tokens);
  const double steps_before = server_->Metric(steps);
  const v1::TranslateResponse response = MustTranslate(request_);
  EXPECT_EQ(server_->Metric(kOkCalls), calls + 1);
  const v1::Hypothesis& hypothesis = response.translations(0).hypotheses(0);
  const int generated = hypothesis.token_ids_size() + (hypothesis.unfinished() ? 0 : 1);
  EXPECT_EQ(server_->Metric(tokens), tokens_before + generated);
  // One that encodes, and at least one for each token.
  EXPECT_GE(server_->Metric(steps), steps_before + 1 + generated);
  EXPECT_GT(response.times().compute_us(), 0);
  EXPECT_GT(response.times().queue_us(), 0);
  EXPECT_GE(response.times().total_us(), response.times().compute_us());
  for (const char* state : {"running", "waiting"}) {
    EXPECT_EQ(server_->Metric(absl::StrCat(
                  "sru_translate_sentences{model=\"text\",version=\"1\",state=\"", state, "\"}")),
              0);
  }
}

}  // namespace
}  // namespace sru::testing
