// Translate over the wire with small random translators: the same as one hypothesis at a time,
// every field that can be wrong, and what the server tells of a translator.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/plain_translator.h"
#include "tests/testing/protos.h"
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
    request_.set_model("text");
    request_.add_sequences()->set_text("a b c");
  }
  void TearDown() override {
    EXPECT_TRUE(server_->Becomes("sru_state_slots{model=\"text\",version=\"1\",kind=\"used\"}", 0));
    server_->ExpectIdle();
  }

  v1::TranslateResponse MustTranslate(const v1::TranslateRequest& request) {
    const v1::TranslateResponse response = server_->Must(request);
    EXPECT_EQ(response.translations_size(), request.sequences_size());
    return response;
  }
  void ExpectError(const std::string& message) {
    EXPECT_THAT(server_->Call(request_), Fails(StatusCode::INVALID_ARGUMENT, HasSubstr(message)));
  }

  static inline TranslatorRepository* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  v1::TranslateRequest request_;
};

// The same in process, with the backend that the server has.
class Plain {
 public:
  explicit Plain(const std::string& directory) {
    EXPECT_TRUE(kernels::CreateBackend("cpu", &backend_).ok());
    model_ = models::Model::Load(directory, "text", 1, *backend_, {}).value();
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
  InThreads(8, [&](int i) {
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
    EXPECT_THAT(translation.hypotheses(0), Sends(""));
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
  for (const auto& [request, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "sequences: empty, expected at least one"},
           {"sequences {}", "sequences[0]: empty sequence"},
           {"sequences { token_ids { values: 11 } }",
            "sequences[0].token_ids.values[0]: 11 is out of range, expected 0 to 10"},
           {"sequences { features { feature_size: 1 data: 'abcd' } }",
            "sequences[0].features: the model takes text, tokens or token_ids"},
           {"sequences { text: 'a' } beam_size: 65", "beam_size: 65"},
           {"sequences { text: 'a' } length_penalty { alpha: 11 }", "length_penalty.alpha: 11"},
           {"sequences { text: 'a' } num_hypotheses: 4",
            "num_hypotheses: 4 is out of range, expected 1 to 3 (beam_size)"},
           {"sequences { text: 'a' } max_new_tokens: 51",
            "max_new_tokens: 51 is out of range, expected 1 to 50 (--max_new_tokens)"},
           {"sequences { text: 'a' } target_prefixes: ['a', 'a']",
            "target_prefixes: expected none or 1, one per sequence, found 2"},
           {"sequences { text: 'a' } target_prefixes: 'b b b b' max_new_tokens: 3",
            "target_prefixes[0]: at least 3 tokens are too many, expected fewer than 3"},
           {"sequences { text: 'a' } priority: 7", "priority: 7 is unknown"}}) {
    SCOPED_TRACE(request);
    request_ = Message<v1::TranslateRequest>("model: 'text' " + request);
    ExpectError(message);
  }
  for (int i = 0; i < 40; ++i) request_.add_sequences()->set_text("a");
  ExpectError("sequences: 41 are too many, expected at most 40");
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
  EXPECT_THAT(call("prefix"), Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("target_prefixes[0]")));
  EXPECT_THAT(call("a b c"), Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("sequences[0].text")));
  EXPECT_EQ(server_->CallRaw("/sru.v1.InferenceService/Translate", good.substr(0, good.size() - 3))
                .error_code(),
            StatusCode::INVALID_ARGUMENT);
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
  EXPECT_THAT(server_->Call(request_),
              Fails(StatusCode::FAILED_PRECONDITION, HasSubstr("Translate needs a translator")));
  // Of two translators, a call names one.
  request_.set_model("");
  EXPECT_EQ(server_->Call(request_).error_code(), StatusCode::INVALID_ARGUMENT);
  request_.set_model("none");
  EXPECT_EQ(server_->Call(request_).error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(server_->Call(Message<v1::ClassifyRequest>("model: 'text' sequences { text: 'a' }")),
              Fails(StatusCode::FAILED_PRECONDITION, HasSubstr("the model answers Translate")));
}

TEST_F(TranslateTest, GetModelTellsOfTheSearch) {
  const v1::ModelInfo info = server_->Must(Message<v1::GetModelRequest>("model: 'text'")).model();
  EXPECT_EQ(info.task(), "translator");
  EXPECT_THAT(info.translator(), HasFieldsOf(R"(
      beam_size: 3 length_penalty { form: FORM_GNMT alpha: 0.6 } max_new_tokens: 20
      target_vocabulary_size: 11 source_language: 'en' target_language: 'de' max_positions: 100)"));
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
