// The Open Inference Protocol over the wire: every task has the results of its call of sru.v1 to
// the bit, and every way to ask wrongly has an error that names the tensor.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "inference/open_inference.grpc.pb.h"
#include "server/base/log.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/small_reader.h"
#include "tests/testing/test_files.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Request = inference::ModelInferRequest;
using Response = inference::ModelInferResponse;
using Input = Request::InferInputTensor;

template <typename Value>
std::string Raw(const std::vector<Value>& values) {
  std::string raw;
  for (const Value value : values) {
    raw.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return raw;
}

std::string RawStrings(const std::vector<std::string>& texts) {
  std::string raw;
  for (const std::string& text : texts) {
    raw += Raw<uint32_t>({static_cast<uint32_t>(text.size())}) + text;
  }
  return raw;
}

// One model of each task, each with its small vocabulary where there is one.
class Repository {
 public:
  Repository() {
    models::WriteSmallModel(directory_, "classifier/1");
    models::WriteSmallModel(directory_, "classifier/2");
    models::WriteEncoder(directory_, "encoder/1", models::SmallConfig(), models::SmallTensors());
    models::WriteSmallLanguageModel(directory_, "lm/1");
    models::WriteSmallReader(directory_, "reader/1");
    models::WriteSmallReader(directory_, "tagged/1", /*tags=*/true);
    models::WriteSmallTranslator(directory_, "translator/1");
  }
  std::string path() const { return directory_.path(""); }

 private:
  models::TempDirectory directory_;
};

class OpenInferenceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    google::protobuf::SetLogHandler(nullptr);
    repository_ = new Repository();
    server::Options options = TestOptions(repository_->path());
    options.security.caller_limits =
        *server::callers::ParseLimitsFlag("caller_limits", "highest_priority=high");
    options.models.version_policy = models::VersionPolicy::All();
    options.rpc.limits.max_sequences = 40;
    options.rpc.limits.max_sequence_tokens = 24;
    server_ = new RunningServer(options);
    stub_ = inference::GRPCInferenceService::NewStub(server_->channel()).release();
  }
  static void TearDownTestSuite() {
    delete std::exchange(stub_, nullptr);
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }
  void TearDown() override { server_->ExpectIdle(); }

  Input* AddInput(const std::string& name, const std::string& datatype,
                  const std::vector<int64_t>& shape) {
    Input* const input = request_.add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    for (const int64_t size : shape) input->add_shape(size);
    return input;
  }
  void AddRaw(const std::string& name, const std::string& datatype,
              const std::vector<int64_t>& shape, std::string raw) {
    AddInput(name, datatype, shape);
    request_.add_raw_input_contents(std::move(raw));
  }
  void ClearInputs() {
    request_.clear_inputs();
    request_.clear_raw_input_contents();
  }
  void AddTexts(const std::string& name, const std::vector<std::string>& texts) {
    AddRaw(name, "BYTES", {static_cast<int64_t>(texts.size())}, RawStrings(texts));
  }
  void Request3(const std::string& model) {
    request_.set_model_name(model);
    AddTexts("text", {"a b c", "c", "b b"});
  }
  void Want(const std::string& output) { request_.add_outputs()->set_name(output); }
  inference::InferParameter& Parameter(const std::string& name) {
    return (*request_.mutable_parameters())[name];
  }

  grpc::Status Infer(Response* response) const {
    grpc::ClientContext context;
    return stub_->ModelInfer(&context, request_, response);
  }
  Response MustInfer() const {
    Response response;
    const grpc::Status status = Infer(&response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.outputs_size(), response.raw_output_contents_size());
    return response;
  }
  void ExpectError(const std::string& message, StatusCode code = StatusCode::INVALID_ARGUMENT) {
    Response response;
    const grpc::Status status = Infer(&response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message() + "$", StartsWith(message));  // which may end with "$"
  }

  // The values of an output, whose datatype and shape are as expected.
  static std::string Values(const Response& response, const std::string& name,
                            const std::string& datatype, const std::vector<int64_t>& shape) {
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (response.outputs(i).name() != name) continue;
      EXPECT_EQ(response.outputs(i).datatype(), datatype) << name;
      EXPECT_THAT(response.outputs(i).shape(), ElementsAreArray(shape)) << name;
      EXPECT_FALSE(response.outputs(i).has_contents());
      return response.raw_output_contents(i);
    }
    ADD_FAILURE() << "no output " << name;
    return "";
  }
  static std::vector<std::string> Names(const Response& response) {
    std::vector<std::string> names;
    for (const auto& output : response.outputs()) names.push_back(output.name());
    return names;
  }

  // The answers of sru.v1 for the same texts.
  static v1::ClassifyResponse Classify(const std::vector<std::string>& texts) {
    v1::ClassifyRequest request;
    request.set_model("classifier");
    for (const std::string& text : texts) request.add_sequences()->set_text(text);
    return server_->Must(request);
  }
  // The values of all encodings, one after the other.
  static std::vector<float> Encode(const v1::EncodeRequest& request) {
    const v1::EncodeResponse response = server_->Must(request);
    std::vector<float> values;
    for (const v1::Encoding& one : response.encodings()) {
      values.insert(values.end(), one.values().begin(), one.values().end());
    }
    return values;
  }
  static std::string Probabilities(const v1::ClassifyResponse& classified) {
    std::vector<float> values;
    for (const v1::Classification& one : classified.classifications()) {
      std::vector<float> row(one.labels_size());
      for (const v1::Label& label : one.labels()) row[label.index()] = label.probability();
      values.insert(values.end(), row.begin(), row.end());
    }
    return Raw(values);
  }

  static inline Repository* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  static inline inference::GRPCInferenceService::Stub* stub_ = nullptr;
  Request request_;
};

TEST_F(OpenInferenceTest, ClassifierGivesWhatClassifyGives) {
  Request3("classifier");
  request_.set_id("some id");
  const Response response = MustInfer();
  EXPECT_EQ(response.model_name(), "classifier");
  EXPECT_EQ(response.model_version(), "2");
  EXPECT_EQ(response.id(), "some id");
  EXPECT_THAT(Names(response), ElementsAre("probabilities", "logits", "label"));
  const v1::ClassifyResponse classified = Classify({"a b c", "c", "b b"});
  std::vector<float> logits;
  std::vector<std::string> labels;
  for (const v1::Classification& one : classified.classifications()) {
    labels.push_back(one.labels(0).name());
    for (const int index : {0, 1}) {
      for (const v1::Label& label : one.labels()) {
        if (label.index() == index) logits.push_back(label.logit());
      }
    }
  }
  EXPECT_EQ(Values(response, "probabilities", "FP32", {3, 2}), Probabilities(classified));
  EXPECT_EQ(Values(response, "logits", "FP32", {3, 2}), Raw(logits));
  EXPECT_EQ(Values(response, "label", "BYTES", {3}), RawStrings(labels));
}

TEST_F(OpenInferenceTest, VersionsAndRequestedOutputs) {
  Request3("classifier");
  request_.set_model_version("1");
  Want("label");
  Want("probabilities");
  Response response = MustInfer();
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_THAT(Names(response), ElementsAre("label", "probabilities"));
  request_.clear_outputs();
  Want("label");
  EXPECT_EQ(Values(MustInfer(), "label", "BYTES", {3}), Values(response, "label", "BYTES", {3}));
}

TEST_F(OpenInferenceTest, EveryInputOfAClassifier) {
  request_.set_model_name("classifier");
  // a b c is 2 3 4, c is 4, b b is 3 3
  const std::string expected = Probabilities(Classify({"a b c", "c", "b b"}));
  const std::vector<int64_t> ids = {2, 3, 4, 4, 0, 0, 3, 3, -1};
  const std::vector<int64_t> lengths = {3, 1, 2};
  AddRaw("token_ids", "INT64", {3, 3}, Raw(ids));
  AddRaw("lengths", "INT64", {3}, Raw(lengths));
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {3, 2}), expected);

  ClearInputs();
  AddRaw("lengths", "INT32", {3, 1}, Raw<int32_t>({3, 1, 2}));
  AddRaw("token_ids", "INT32", {3, 3}, Raw<int32_t>({2, 3, 4, 4, 0, 0, 3, 3, 9}));
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {3, 2}), expected);

  ClearInputs();
  for (const int64_t id : ids) {
    if (request_.inputs_size() == 0) AddInput("token_ids", "INT64", {3, 3});
    request_.mutable_inputs(0)->mutable_contents()->add_int64_contents(id);
  }
  Input* const input = AddInput("lengths", "INT32", {3});
  for (const int64_t length : lengths) {
    input->mutable_contents()->add_int_contents(static_cast<int32_t>(length));
  }
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {3, 2}), expected);

  request_.clear_inputs();
  Input* const text = AddInput("text", "BYTES", {3, 1});
  for (const char* const one : {"a b c", "c", "b b"})
    text->mutable_contents()->add_bytes_contents(one);
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {3, 2}), expected);
}

TEST_F(OpenInferenceTest, FeaturesGiveWhatClassifyGives) {
  std::vector<float> features;
  for (int i = 0; i < 2 * 3 * 4; ++i) features.push_back(0.25F * static_cast<float>(i % 7) - 0.5F);
  v1::ClassifyRequest classify;
  classify.set_model("classifier");
  for (const int length : {3, 2}) {
    v1::Features* const one = classify.add_sequences()->mutable_features();
    one->set_feature_size(4);
    const float* const begin = features.data() + (length == 3 ? 0 : 12);
    one->set_data(std::string(reinterpret_cast<const char*>(begin), length * 4 * sizeof(float)));
  }
  const v1::ClassifyResponse classified = server_->Must(classify);
  request_.set_model_name("classifier");
  AddRaw("features", "FP32", {2, 3, 4}, Raw(features));
  AddRaw("lengths", "INT64", {2}, Raw<int64_t>({3, 2}));
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {2, 2}), Probabilities(classified));

  ClearInputs();
  Input* const typed = AddInput("features", "FP32", {2, 3, 4});
  for (const float value : features) typed->mutable_contents()->add_fp32_contents(value);
  Input* const lengths = AddInput("lengths", "INT64", {2});
  lengths->mutable_contents()->add_int64_contents(3);
  lengths->mutable_contents()->add_int64_contents(2);
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {2, 2}), Probabilities(classified));
}

TEST_F(OpenInferenceTest, EncodingsArePaddedTokenVectorsOrPooled) {
  Request3("encoder");
  v1::EncodeRequest encode;
  encode.set_model("encoder");
  for (const char* const text : {"a b c", "c", "b b"}) encode.add_sequences()->set_text(text);
  const v1::EncodeResponse encoded = server_->Must(encode);
  std::vector<float> padded;
  for (const v1::Encoding& one : encoded.encodings()) {
    padded.insert(padded.end(), one.values().begin(), one.values().end());
    padded.resize(padded.size() + (3 - one.token_count()) * 6);
  }
  const Response response = MustInfer();
  EXPECT_THAT(Names(response), ElementsAre("encoding", "lengths"));
  EXPECT_EQ(Values(response, "encoding", "FP32", {3, 3, 6}), Raw(padded));
  EXPECT_EQ(Values(response, "lengths", "INT32", {3}), Raw<int32_t>({3, 1, 2}));

  Parameter("pooling").set_string_param("mean");
  Parameter("normalize").set_bool_param(true);
  encode.set_pooling(v1::POOLING_MEAN);
  encode.set_normalize(true);
  const Response means = MustInfer();
  EXPECT_THAT(Names(means), ElementsAre("encoding"));
  EXPECT_EQ(Values(means, "encoding", "FP32", {3, 6}), Raw(Encode(encode)));

  request_.set_model_name("classifier");
  Want("encoding");
  encode.set_model("classifier");
  EXPECT_EQ(Values(MustInfer(), "encoding", "FP32", {3, 6}), Raw(Encode(encode)));
}

TEST_F(OpenInferenceTest, LanguageModelGivesWhatScoreGives) {
  Request3("lm");
  v1::ScoreRequest score;
  score.set_model("lm");
  for (const char* const text : {"a b c", "c", "b b"}) score.add_sequences()->set_text(text);
  const v1::ScoreResponse scored = server_->Must(score);
  std::vector<double> expected;
  for (const v1::Score& one : scored.scores()) expected.push_back(one.log_prob());
  EXPECT_EQ(Values(MustInfer(), "log_prob", "FP64", {3}), Raw(expected));
}

TEST_F(OpenInferenceTest, ReaderGivesWhatAnswerGives) {
  const std::vector<std::string> questions = {"a b?", "c"};
  const std::vector<std::string> passages = {"c d a \u00e9t\u00e9 b .", "e f a"};
  request_.set_model_name("reader");
  AddTexts("passage", passages);
  AddTexts("question", questions);
  v1::AnswerRequest ask;
  ask.set_model("reader");
  for (size_t i = 0; i < questions.size(); ++i) {
    v1::Query* const query = ask.add_queries();
    query->set_question(questions[i]);
    query->add_passages(passages[i]);
  }
  const v1::AnswerResponse answered = server_->Must(ask);
  std::vector<std::string> answers;
  std::vector<float> scores;
  std::vector<float> probabilities;
  std::vector<int32_t> starts;
  std::vector<int32_t> ends;
  for (const v1::QueryAnswers& one : answered.results()) {
    answers.push_back(one.answers(0).text());
    scores.push_back(static_cast<float>(one.answers(0).log_score()));
    probabilities.push_back(one.answers(0).probability());
    starts.push_back(one.answers(0).start_char());
    ends.push_back(one.answers(0).end_char());
  }
  const Response response = MustInfer();
  EXPECT_THAT(Names(response), ElementsAre("answer", "score", "start", "end"));
  EXPECT_EQ(Values(response, "answer", "BYTES", {2}), RawStrings(answers));
  EXPECT_EQ(Values(response, "score", "FP32", {2}), Raw(scores));
  EXPECT_EQ(Values(response, "start", "INT32", {2}), Raw(starts));
  EXPECT_EQ(Values(response, "end", "INT32", {2}), Raw(ends));
  Want("probability");
  EXPECT_EQ(Values(MustInfer(), "probability", "FP32", {2}), Raw(probabilities));

  request_.set_model_name("tagged");
  ExpectError("model: the reader needs tags of tokens");
}

// With skip_empty a row without tokens fails no call: it has what nobody takes for a result, and
// the rows beside it have the bits that they have without it.
TEST_F(OpenInferenceTest, BlankRowsHaveEmptyAnswers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::string> texts = {" ", "a b c", "", "b"};
  const auto rows = [](std::string raw, const std::string& blank) {  // of two rows: four
    const size_t row = raw.size() / 2;
    return blank + raw.substr(0, row) + blank + raw.substr(row);
  };
  const auto floats = [kNan](int count) { return Raw(std::vector<float>(count, kNan)); };
  // The answer to the rows that are not blank, and to all.
  const auto ask = [this, &texts](const std::string& model, std::vector<std::string> outputs,
                                  const std::string& input = "text") {
    request_.set_model_name(model);
    request_.clear_outputs();
    for (const std::string& output : outputs) Want(output);
    ClearInputs();
    AddTexts(input, {texts[1], texts[3]});
    Response full = MustInfer();
    ClearInputs();
    AddTexts(input, texts);
    return std::make_pair(std::move(full), MustInfer());
  };
  Parameter("skip_empty").set_bool_param(true);

  const auto [labels, blank_labels] =
      ask("classifier", {"probabilities", "logits", "label", "label_ids"});
  for (const char* const name : {"probabilities", "logits"}) {
    EXPECT_EQ(Values(blank_labels, name, "FP32", {4, 2}),
              rows(Values(labels, name, "FP32", {2, 2}), floats(2)));
  }
  const std::string ids = Values(labels, "label_ids", "INT32", {2});
  EXPECT_EQ(Values(blank_labels, "label_ids", "INT32", {4}), rows(ids, Raw<int32_t>({-1})));
  const v1::ClassifyResponse classified = Classify({texts[1], texts[3]});
  std::vector<std::string> names;
  std::vector<int32_t> best;
  for (const v1::Classification& one : classified.classifications()) {
    names.push_back(one.labels(0).name());
    best.push_back(one.labels(0).index());
  }
  EXPECT_EQ(ids, Raw(best));
  EXPECT_EQ(Values(blank_labels, "label", "BYTES", {4}), RawStrings({"", names[0], "", names[1]}));
  // The best labels alone, which need no others.
  EXPECT_EQ(Values(ask("classifier", {"label_ids"}).second, "label_ids", "INT32", {4}),
            rows(ids, Raw<int32_t>({-1})));
  EXPECT_EQ(Values(ask("classifier", {"label"}).second, "label", "BYTES", {4}),
            RawStrings({"", names[0], "", names[1]}));

  const auto [vectors, blank_vectors] = ask("encoder", {});
  const std::string padded = Values(vectors, "encoding", "FP32", {2, 3, 6});
  EXPECT_EQ(Values(blank_vectors, "encoding", "FP32", {4, 3, 6}),
            rows(padded, std::string(3 * 6 * sizeof(float), '\0')));
  EXPECT_EQ(Values(blank_vectors, "lengths", "INT32", {4}), Raw<int32_t>({0, 3, 0, 1}));
  Parameter("pooling").set_string_param("mean");
  const auto [means, blank_means] = ask("encoder", {});
  EXPECT_EQ(Values(blank_means, "encoding", "FP32", {4, 6}),
            rows(Values(means, "encoding", "FP32", {2, 6}), floats(6)));
  request_.mutable_parameters()->erase("pooling");

  const auto [scores, blank_scores] = ask("lm", {});
  EXPECT_EQ(Values(blank_scores, "log_prob", "FP64", {4}),
            rows(Values(scores, "log_prob", "FP64", {2}), Raw(std::vector<double>{double{kNan}})));

  const auto [translations, blank_translations] = ask("translator", {});
  const std::string translated = Values(blank_translations, "translation", "BYTES", {4});
  EXPECT_THAT(translated, StartsWith(RawStrings({""})));
  EXPECT_EQ(translated.size(),
            Values(translations, "translation", "BYTES", {2}).size() + 2 * sizeof(uint32_t));
  // Without the parameter as well.
  request_.clear_parameters();
  EXPECT_EQ(Values(MustInfer(), "translation", "BYTES", {4}), translated);

  // Nothing but blank rows.
  Parameter("skip_empty").set_bool_param(true);
  request_.set_model_name("encoder");
  ClearInputs();
  AddTexts("text", {"", " "});
  const Response nothing = MustInfer();
  EXPECT_EQ(Values(nothing, "encoding", "FP32", {2, 0, 6}), "");
  EXPECT_EQ(Values(nothing, "lengths", "INT32", {2}), Raw<int32_t>({0, 0}));
  ClearInputs();
  AddRaw("token_ids", "INT64", {2, 2}, Raw<int64_t>({0, 0, 2, 1}));
  AddRaw("lengths", "INT64", {2}, Raw<int64_t>({0, 2}));
  EXPECT_EQ(Values(MustInfer(), "lengths", "INT32", {2}), Raw<int32_t>({0, 2}));
}

TEST_F(OpenInferenceTest, ABlankQuestionOrPassageHasAnEmptyAnswer) {
  request_.set_model_name("reader");
  for (const char* const output : {"answer", "score", "probability", "start", "end"}) Want(output);
  AddTexts("passage", {"c d a b"});
  AddTexts("question", {"a b?"});
  const Response alone = MustInfer();
  ClearInputs();
  AddTexts("passage", {"c d", " ", "c d a b"});
  AddTexts("question", {"", "a", "a b?"});
  ExpectError("input question[0]: empty, expected at least one token");
  Parameter("skip_empty").set_bool_param(true);
  const Response response = MustInfer();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Values(response, "answer", "BYTES", {3}),
            RawStrings({"", ""}) + Values(alone, "answer", "BYTES", {1}));
  for (const char* const name : {"score", "probability"}) {
    EXPECT_EQ(Values(response, name, "FP32", {3}),
              Raw<float>({kNan, kNan}) + Values(alone, name, "FP32", {1}));
  }
  for (const char* const name : {"start", "end"}) {
    EXPECT_EQ(Values(response, name, "INT32", {3}),
              Raw<int32_t>({-1, -1}) + Values(alone, name, "INT32", {1}));
  }
  *request_.mutable_raw_input_contents(1) = RawStrings({"", "a", "b \xff"});
  ExpectError("input question[2]: invalid UTF-8 at byte 2");
}

TEST_F(OpenInferenceTest, TranslatorGivesWhatTranslateGives) {
  request_.set_model_name("translator");
  AddTexts("text", {"a b c", "b"});
  v1::TranslateRequest translate;
  translate.set_model("translator");
  for (const char* const text : {"a b c", "b"}) translate.add_sequences()->set_text(text);
  for (const int beam : {0, 1, 3}) {
    SCOPED_TRACE(beam);
    Parameter("beam_size").set_int64_param(beam);
    Parameter("max_new_tokens").set_uint64_param(5);
    Parameter("word_penalty").set_double_param(-0.5);
    Parameter("max_length_factor").set_int64_param(1);
    translate.set_word_penalty(-0.5f);
    translate.set_max_length_factor(1);
    translate.set_beam_size(beam);
    translate.set_max_new_tokens(5);
    const v1::TranslateResponse translated = server_->Must(translate);
    EXPECT_EQ(Values(MustInfer(), "translation", "BYTES", {2}),
              RawStrings({translated.translations(0).hypotheses(0).text(),
                          translated.translations(1).hypotheses(0).text()}));
  }
  Parameter("word_penalty").set_string_param("some");
  ExpectError("parameters[word_penalty]: expected a number, found a string");
}

TEST_F(OpenInferenceTest, LargeMessages) {
  // Of several pieces, as they arrive.
  request_.set_model_name("classifier");
  const std::string padding(100000, ' ');
  AddTexts("text", {"a b c" + padding, padding + "c", "b" + padding + "b"});
  EXPECT_EQ(Values(MustInfer(), "probabilities", "FP32", {3, 2}),
            Probabilities(Classify({"a b c", "c", "b b"})));
}

TEST_F(OpenInferenceTest, WrongNames) {
  Request3("");
  ExpectError("model_name: empty");
  request_.set_model_name("nope");
  ExpectError("model: 'nope' is not loaded", StatusCode::NOT_FOUND);
  request_.set_model_name("classifier");
  for (const char* const version : {"x", "-1", "0", "1.5"}) {
    request_.set_model_version(version);
    ExpectError(absl::StrCat("model_version: '", version, "'"));
  }
  request_.set_model_version("7");
  ExpectError("version: ", StatusCode::NOT_FOUND);
  request_.clear_model_version();

  request_.mutable_inputs(0)->set_name("txt");
  ExpectError(
      "inputs[0].name: 'txt' is not an input of 'classifier', expected one of text, "
      "token_ids, features, lengths");
  request_.mutable_inputs(0)->set_name("text");
  Want("label");
  Want("lable");
  ExpectError(
      "outputs[1].name: 'lable' is not an output of 'classifier', expected one of "
      "probabilities, logits, label, label_ids, encoding, lengths");
  request_.mutable_outputs(1)->set_name("label");
  ExpectError("outputs[1].name: label is requested twice");
  request_.mutable_outputs(1)->set_name("encoding");
  ExpectError("outputs[1].name: encoding does not go with label");
  request_.clear_outputs();
  ClearInputs();
  ExpectError("inputs: no values, expected one of text");
  AddTexts("text", {"a"});
  AddTexts("text", {"a"});
  ExpectError("input text: given beside text");
}

TEST_F(OpenInferenceTest, WrongTypesAndShapes) {
  Request3("classifier");
  Input* const text = request_.mutable_inputs(0);
  text->set_datatype("FP32");
  ExpectError("input text: datatype 'FP32', expected BYTES");
  text->set_datatype("BYTES");
  text->add_shape(2);
  ExpectError("input text: shape [3, 2], expected [batch] or [batch, 1]");
  text->clear_shape();
  text->add_shape(-3);
  ExpectError("input text: shape [-3]");
  text->set_shape(0, 0);
  ExpectError("input text: shape [0], expected at least one sequence");
  text->set_shape(0, 41);
  ExpectError("input text: 41 sequences are too many, expected at most 40");
  text->set_shape(0, 4);
  ExpectError("input text: raw_input_contents[0] ends before element 3");
  text->set_shape(0, 3);
  request_.add_raw_input_contents("");
  ExpectError("raw_input_contents: 2 entries, expected 1");
  request_.mutable_raw_input_contents()->RemoveLast();
  text->mutable_contents()->add_bytes_contents("a");
  ExpectError("inputs[0].contents: expected none beside raw_input_contents");
  request_.clear_raw_input_contents();
  ExpectError("input text: contents.bytes_contents has another number of values");

  request_.clear_inputs();
  AddRaw("token_ids", "INT32", {2, 3}, Raw<int32_t>({2, 3, 4, 2, 3, 5}));
  ExpectError("input token_ids: 5 at [1, 2] is out of range, expected 0 to 4");
  request_.mutable_inputs(0)->mutable_shape()->RemoveLast();
  ExpectError("input token_ids: shape [2], expected [batch, length]");
  request_.mutable_inputs(0)->add_shape(3);
  AddRaw("lengths", "INT64", {2}, Raw<int64_t>({2, 4}));
  ExpectError("input lengths: 4 at [1] is out of range, expected 0 to 3 as token_ids has [2, 3]");
  *request_.mutable_raw_input_contents(1) = Raw<int64_t>({2, -1});
  ExpectError("input lengths: -1 at [1] is out of range");
  *request_.mutable_raw_input_contents(1) = Raw<int64_t>({2, 0});
  ExpectError("input token_ids[1]: empty, expected at least one");
  request_.mutable_inputs(1)->set_shape(0, 1);
  ExpectError("input lengths: shape [1], expected [2]");

  ClearInputs();
  AddRaw("features", "FP32", {1, 1, 3}, Raw<float>({1, 2, 3}));
  ExpectError("input features: shape [1, 1, 3], expected [batch, length, 4]");
  ClearInputs();
  const std::vector<float> values = {1, 2, 3, std::numeric_limits<float>::infinity()};
  AddRaw("features", "FP32", {1, 1, 4}, Raw(values));
  ExpectError("input features[0]: value 3 of frame 0 is inf");
}

TEST_F(OpenInferenceTest, WrongTexts) {
  request_.set_model_name("classifier");
  AddTexts("text", {"a", " ", "b"});
  ExpectError(
      "input text[1]: no tokens are left after preprocessing, expected at least one word; with the "
      "parameter skip_empty such a row gets an empty answer$");
  *request_.mutable_raw_input_contents(0) = RawStrings({"a", "b \xff", "b"});
  ExpectError("input text[1]: invalid UTF-8 at byte 2");
  std::string long_text;
  for (int i = 0; i < 25; ++i) long_text += "a ";
  *request_.mutable_raw_input_contents(0) = RawStrings({"a", long_text, "b"});
  ExpectError("input text[1]: at least 25 tokens are too many, expected at most 24");
  Parameter("truncate").set_bool_param(true);
  MustInfer();

  ClearInputs();
  request_.clear_parameters();
  request_.set_model_name("reader");
  AddTexts("question", {"a", "b"});
  ExpectError("input passage: expected one, found none");
  AddTexts("passage", {"a", "  "});
  ExpectError("input passage[1]: only white space");
  request_.mutable_inputs(1)->set_shape(0, 1);
  ExpectError("input passage: shape [1], expected [2]");
}

TEST_F(OpenInferenceTest, Parameters) {
  Request3("classifier");
  Parameter("priority").set_uint64_param(1);
  Parameter("timeout").set_int64_param(60000000);
  Parameter("triton_enable_empty_final_response").set_bool_param(false);
  MustInfer();
  Parameter("priority").set_string_param("low");
  MustInfer();
  Parameter("priority").set_string_param("lowest");
  ExpectError("parameters[priority]: 'lowest' is unknown");
  Parameter("priority").set_int64_param(4);
  ExpectError("parameters[priority]: 4 is out of range");
  Parameter("priority").set_bool_param(true);
  ExpectError("parameters[priority]: expected a number or a string, found a bool");
  request_.mutable_parameters()->erase("priority");
  Parameter("timeout").set_int64_param(-1);
  ExpectError("parameters[timeout]: expected microseconds");
  request_.mutable_parameters()->erase("timeout");
  Parameter("top_p").set_double_param(1);
  ExpectError(
      "parameters: 'top_p' is unknown, expected one of truncate, unknown, priority, "
      "timeout, skip_empty");
  request_.mutable_parameters()->erase("top_p");
  Parameter("truncate").set_string_param("yes");
  ExpectError("parameters[truncate]: expected a bool, found a string");
  request_.clear_parameters();
  Parameter("unknown").set_string_param("drop");
  ExpectError("parameters[unknown]: 'drop' is unknown, expected one of refuse, skip, replace");
  Parameter("unknown").set_string_param("replace");
  MustInfer();
  request_.clear_parameters();
  Parameter("skip_empty").set_int64_param(1);
  ExpectError("parameters[skip_empty]: expected a bool, found a number");
  request_.clear_parameters();
  Want("encoding");
  Parameter("pooling").set_string_param("median");
  ExpectError("parameters[pooling]: 'median' is unknown");
  request_.clear_outputs();
  request_.clear_parameters();
  (*request_.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("x");
  ExpectError("inputs[0].parameters: shared memory is not supported", StatusCode::UNIMPLEMENTED);
}

// The parameter that passes before there is anything to compute with.
TEST_F(OpenInferenceTest, ATimeoutThatHasPassed) {
  Request3("classifier");
  Parameter("timeout").set_int64_param(1);
  Response response;
  const grpc::Status status = Infer(&response);
  EXPECT_THAT(status.error_code(),
              ::testing::AnyOf(StatusCode::DEADLINE_EXCEEDED, StatusCode::RESOURCE_EXHAUSTED))
      << status.error_message();
}

TEST_F(OpenInferenceTest, BytesThatAreNoMessage) {
  constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelInfer";
  EXPECT_THAT(server_->CallRaw(kMethod, "\x0a\x05zz"),
              Fails(StatusCode::INVALID_ARGUMENT, HasSubstr("malformed protobuf, length 5")));
  Request3("classifier");
  const std::string bytes = request_.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const grpc::Status status = server_->CallRaw(kMethod, bytes.substr(0, size));
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << size;
  }
}

TEST_F(OpenInferenceTest, AStreamAnswersInOrder) {
  Request3("classifier");
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  constexpr int kRequests = 60;
  for (int i = 0; i < kRequests; ++i) {
    request_.set_model_name(i % 7 == 3 ? "nope" : i % 2 == 0 ? "classifier" : "lm");
    request_.set_id(absl::StrCat("id", i));
    ASSERT_TRUE(stream->Write(request_));
  }
  ASSERT_TRUE(stream->WritesDone());
  inference::ModelStreamInferResponse response;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Read(&response)) << i;
    EXPECT_EQ(response.infer_response().id(), absl::StrCat("id", i));
    if (i % 7 == 3) {
      EXPECT_THAT(response.error_message(), StartsWith("model: 'nope' is not loaded"));
    } else {
      EXPECT_EQ(response.error_message(), "");
      EXPECT_THAT(response.infer_response().outputs(), SizeIs(i % 2 == 0 ? 3 : 1));
    }
  }
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(OpenInferenceTest, AStreamMarksLastAnswersWhereThatIsWanted) {
  Request3("classifier");
  Parameter("triton_enable_empty_final_response").set_bool_param(true);
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(request_));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
  EXPECT_THAT(response.infer_response().outputs(), SizeIs(3));
  context.TryCancel();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(OpenInferenceTest, StreamsAreBoundedAndEndAtADrain) {
  Request3("classifier");
  server::Options options = TestOptions(repository_->path());
  options.rpc.max_streams = 1;
  RunningServer other(options);
  const auto stub = inference::GRPCInferenceService::NewStub(other.channel());
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(request_));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.error_message(), "");

  grpc::ClientContext second_context;
  const auto second = stub->ModelStreamInfer(&second_context);
  EXPECT_FALSE(second->Read(&response));
  EXPECT_EQ(second->Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);

  EXPECT_TRUE(other.server().Drain());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);
}

// A client that goes away in the middle of a stream leaves nothing behind: TearDown() looks.
TEST_F(OpenInferenceTest, AStreamThatIsCancelledAtAnyTime) {
  Request3("classifier");
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto stream = stub_->ModelStreamInfer(&context);
    for (int k = 0; k <= i; ++k) ASSERT_TRUE(stream->Write(request_));
    if (i % 3 == 0) {
      inference::ModelStreamInferResponse response;
      EXPECT_TRUE(stream->Read(&response));
    }
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(server_->Becomes("sru_open_streams", 0));
}

TEST_F(OpenInferenceTest, LooksUpModels) {
  const auto look_up = [](const std::string& name, inference::ModelMetadataResponse* metadata) {
    inference::ModelMetadataRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    return stub_->ModelMetadata(&context, request, metadata).error_code();
  };
  inference::ModelMetadataResponse metadata;
  ASSERT_EQ(look_up("reader", &metadata), StatusCode::OK);
  EXPECT_EQ(metadata.platform(), "sru");
  EXPECT_THAT(metadata.inputs(), SizeIs(2));
  EXPECT_EQ(metadata.outputs(3).name(), "start");
  ASSERT_EQ(look_up("classifier", &metadata), StatusCode::OK);
  EXPECT_THAT(metadata.versions(), ElementsAre("1", "2"));
  EXPECT_EQ(look_up("nope", &metadata), StatusCode::NOT_FOUND);
  for (const auto& [name, version, ready] : std::vector<std::tuple<std::string, std::string, bool>>{
           {"classifier", "", true}, {"classifier", "1", true}, {"classifier", "3", false}}) {
    inference::ModelReadyRequest ask;
    ask.set_name(name);
    ask.set_version(version);
    inference::ModelReadyResponse answer;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ModelReady(&context, ask, &answer).ok());
    EXPECT_EQ(answer.ready(), ready) << name << version;
  }
}

// What Triton's perf_analyzer does: it reads the config, sends one value for each size that is
// open, and asks for all outputs.
TEST_F(OpenInferenceTest, EveryModelCanBeCalledByItsConfig) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> models = {
      {"classifier", {"text"}}, {"encoder", {"text"}},
      {"lm", {"text"}},         {"reader", {"question", "passage"}},
      {"translator", {"text"}},
  };
  for (const auto& [name, given] : models) {
    SCOPED_TRACE(name);
    inference::ModelConfigRequest ask;
    ask.set_name(name);
    inference::ModelConfigResponse answer;
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->ModelConfig(&context, ask, &answer).ok());
    request_.Clear();
    request_.set_model_name(name);
    for (const inference::ModelInput& input : answer.config().input()) {
      EXPECT_FALSE(input.dims().empty()) << input.name();
      const bool is_given = std::count(given.begin(), given.end(), input.name()) > 0;
      EXPECT_TRUE(is_given || input.optional()) << input.name();
      // A request has one of several forms.
      EXPECT_EQ(input.optional(), name != "reader") << input.name();
      if (!is_given) continue;
      std::vector<int64_t> shape = {2};
      for (const int64_t size : input.dims()) shape.push_back(std::max<int64_t>(size, 1));
      AddRaw(input.name(), "BYTES", shape, RawStrings({"a b c", "b c"}));
    }
    EXPECT_EQ(request_.inputs_size(), static_cast<int>(given.size()));
    for (const inference::ModelOutput& output : answer.config().output()) {
      request_.add_outputs()->set_name(output.name());
    }
    EXPECT_EQ(MustInfer().outputs_size(), answer.config().output_size());
  }
}

TEST_F(OpenInferenceTest, StatisticsCountCallsPerVersion) {
  const auto read = [](const std::string& version) {
    inference::ModelStatisticsRequest request;
    request.set_name("classifier");
    request.set_version(version);
    inference::ModelStatisticsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(stub_->ModelStatistics(&context, request, &response).ok());
    return response.model_stats(0);
  };
  const inference::ModelStatistics first = read("1");
  const inference::ModelStatistics second = read("2");
  Request3("classifier");
  request_.set_model_version("1");
  MustInfer();
  MustInfer();
  AddTexts("nonsense", {"x"});
  ExpectError("inputs[1].name");
  const inference::ModelStatistics after = read("1");
  EXPECT_EQ(after.inference_count(), first.inference_count() + 6);
  EXPECT_EQ(after.execution_count(), first.execution_count() + 2);
  EXPECT_EQ(after.inference_stats().success().count(),
            first.inference_stats().success().count() + 2);
  EXPECT_EQ(after.inference_stats().fail().count(), first.inference_stats().fail().count() + 1);
  EXPECT_NEAR(static_cast<double>(after.last_inference()),
              static_cast<double>(absl::ToUnixMillis(absl::Now())), 60'000);
  uint64_t batches_of_3 = 0;
  uint64_t batches = 0;
  for (const auto& of_size : after.batch_stats()) {
    batches += of_size.compute_infer().count();
    if (of_size.batch_size() == 3) batches_of_3 = of_size.compute_infer().count();
    EXPECT_GT(of_size.compute_infer().ns(), 0);
  }
  EXPECT_GE(batches_of_3, 2);
  EXPECT_EQ(batches, after.execution_count());
  const auto& stats = after.inference_stats();
  EXPECT_EQ(stats.success().ns(), stats.queue().ns() + stats.compute_input().ns() +
                                      stats.compute_infer().ns() + stats.compute_output().ns());
  EXPECT_EQ(read("2").inference_stats().success().count(),
            second.inference_stats().success().count());
  EXPECT_GE(server_->Metric("sru_requests_total{code=\"OK\",method=\"ModelInfer\",model="
                            "\"classifier\",version=\"1\"}"),
            2);
}

}  // namespace
}  // namespace sru::testing
