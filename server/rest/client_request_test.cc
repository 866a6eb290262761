// What clients of other servers send, as calls, and what becomes of the answers; FieldReader.
#include "server/rest/client_request.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/advice.h"

namespace sru::server::rest {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A request that was read.
class Reading {
 public:
  Reading(ReadClientRequest read, const std::string& body) {
    const json tree = json::parse(body);
    FieldReader fields(tree);
    request_.max_texts = 2;
    error_ = read(&fields, &request_);
  }
  Reading(const std::string& task, const std::string& body) {
    const json tree = json::parse(body);
    FieldReader fields(tree);
    v1::ModelInfo model;
    model.set_name("m");
    model.set_task(task);
    model.mutable_translator()->set_source_language("en");
    model.mutable_translator()->set_target_language("de");
    request_.max_texts = 2;
    error_ = ReadPipeline(model, &fields, &request_);
  }

  std::string error() const { return std::string(error_.status.message()); }
  const std::string& param() const { return error_.param; }
  // The message of the call.
  std::string message() const {
    EXPECT_TRUE(error_.status.ok()) << error_.status;
    return absl::StrCat(calls::MethodName(request_.method), " ",
                        request_.request->ShortDebugString());
  }
  // What becomes of this answer.
  std::string Answer(const std::string& response) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(response, request_.response.get()));
    std::string text;
    const RestError error = request_.append(&text);
    return error.status.ok() ? text : std::string(error.status.message());
  }

 private:
  RestError error_;
  ClientRequest request_;
};

// Two values, for the text form of a message: 0.5 and -1.
constexpr char kVector[] = R"(data: "\000\000\000\077\000\000\200\277")";

TEST(ClientRequestTest, OpenAisEmbeddings) {
  Reading one(ReadOpenAiEmbeddings, R"({"input":"a b","user":"u","dimensions":2})");
  EXPECT_EQ(one.message(),
            "Encode sequences { text: \"a b\" } normalize: true "
            "output_format: OUTPUT_FORMAT_RAW_FLOAT32");
  const std::string vector = absl::StrCat("encodings { token_count: 3 shape: 2 ", kVector, " } ");
  EXPECT_EQ(one.Answer("model: 'm' " + vector + vector),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]},)"
            R"({"object":"embedding","index":1,"embedding":[0.5,-1]}],"model":"m",)"
            R"("usage":{"prompt_tokens":6,"total_tokens":6}})");
  EXPECT_EQ(one.Answer("encodings { shape: 3 }"), "dimensions: expected 3, the model's, found 2");
  EXPECT_THAT(one.Answer("model: 'm' encodings { shape: 1 shape: 2 }"),
              HasSubstr("'m' has no pooling"));
  Reading two(ReadOpenAiEmbeddings,
              R"({"model":"m","input":["a","b"],"encoding_format":"base64"})");
  EXPECT_THAT(two.message(), HasSubstr(R"(model: "m" sequences { text: "a" } sequences { text)"));
  const std::string base64 = absl::Base64Escape(std::string("\0\0\0\x3f\0\0\x80\xbf", 8));
  EXPECT_THAT(two.Answer(vector), HasSubstr("\"embedding\":\"" + base64 + "\""));
}

// Ids of another vocabulary would be answered silently wrong.
TEST(ClientRequestTest, WhatOpenAisEmbeddingsLackIsRefused) {
  const std::string ids = "input: expected a string or a list of strings, found token ids";
  for (const auto& [body, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input":[5,6]})", ids},
           {R"({"input":[[5,6]]})", ids},
           {"{}", "input: expected a string or a list of strings, found none"},
           {R"({"input":[]})", "input: expected a string or a list of strings, found []"},
           {R"({"input":5})", "input: expected a string or a list of strings, found 5"},
           {R"({"input":["a",null]})",
            "input: expected a string or a list of strings, found null at input[1]"},
           {R"({"input":["a","b","c"]})",
            "input: expected at most 2 texts (--max_sequences_per_request), found 3"},
           {R"({"input":"a","encoding_format":"int8"})",
            "encoding_format: expected \"float\" or \"base64\", found \"int8\""},
           {R"({"input":"a","dimensions":0})", "dimensions: expected a whole number from 1 to"},
           {R"({"input":"a","truncate":true})", "truncate: unknown field"}}) {
    const Reading reading(ReadOpenAiEmbeddings, body);
    EXPECT_THAT(reading.error(), HasSubstr(message)) << body;
    EXPECT_EQ(reading.param(), message.substr(0, message.find(':'))) << body;
  }
  EXPECT_THAT(Reading(ReadOpenAiEmbeddings, R"({"input":[5]})").error(),
              HasSubstr("check_embedding_ctx_length=False"));
}

TEST(ClientRequestTest, Embed) {
  Reading plain(ReadEmbed, R"({"inputs":"a"})");
  EXPECT_THAT(plain.message(), HasSubstr("normalize: true"));
  EXPECT_EQ(plain.Answer(absl::StrCat("encodings { shape: 2 ", kVector, " }")), "[[0.5,-1]]");
  EXPECT_THAT(plain.Answer("encodings { shape: 1 shape: 2 }"), HasSubstr("no pooling"));
  EXPECT_EQ(Reading(ReadEmbed, R"({"model":"m","inputs":["a"],"normalize":false,"truncate":true,
                       "truncation_direction":"Right","prompt_name":null})")
                .message(),
            "Encode model: \"m\" sequences { text: \"a\" } truncate: true "
            "output_format: OUTPUT_FORMAT_RAW_FLOAT32");
  EXPECT_THAT(Reading(ReadEmbed, R"({"inputs":"a","truncation_direction":"Left"})").error(),
              HasSubstr("truncation_direction: not supported, unless it is"));
  EXPECT_THAT(Reading(ReadEmbed, R"({"inputs":"a","input":"a"})").error(),
              HasSubstr("input: unknown field"));
}

TEST(ClientRequestTest, Tokens) {
  // As lm_eval sends it.
  Reading plain(ReadTokenize, R"({"prompt": "a b", "add_special_tokens": false})");
  EXPECT_EQ(plain.message(), "Tokenize sequences { text: \"a b\" }");
  const std::string answer =
      "tokenizations { tokens { id: 5 text: 'a' } tokens { id: 6 text: 'b' } } "
      "max_sequence_tokens: 9";
  EXPECT_EQ(plain.Answer(answer),
            R"({"count":2,"max_model_len":9,"tokens":[5,6],"token_strs":null})");
  Reading texts(ReadTokenize, R"({"model":"m","prompt":"a","return_token_strs":true})");
  EXPECT_THAT(texts.Answer(answer), HasSubstr(R"("token_strs":["a","b"])"));
  EXPECT_EQ(Reading(ReadTokenize, "{}").error(), "prompt: expected a string, found none");
  EXPECT_EQ(Reading(ReadTokenize, R"({"prompt":["a"]})").param(), "prompt");
  EXPECT_THAT(Reading(ReadTokenize, R"({"prompt":"a","messages":[]})").error(),
              HasSubstr("messages: unknown field"));

  Reading ids(ReadDetokenize, R"({"tokens":[5,6]})");
  EXPECT_EQ(ids.message(), "Detokenize sequences { values: 5 values: 6 }");
  EXPECT_EQ(ids.Answer("texts: 'a\"'"), R"({"prompt":"a\""})");
  EXPECT_EQ(Reading(ReadDetokenize, R"({"tokens":[5,"a"]})").error(),
            "tokens: expected a list of token ids, found \"a\"");
  EXPECT_EQ(Reading(ReadDetokenize, "{}").param(), "tokens");
}

TEST(PipelineTest, TheTaskDecides) {
  EXPECT_EQ(Reading("encoder", R"({"inputs":"a","normalize":false,"truncate":true})").message(),
            "Encode model: \"m\" sequences { text: \"a\" } truncate: true "
            "output_format: OUTPUT_FORMAT_RAW_FLOAT32");
  EXPECT_EQ(Reading("classifier", R"({"inputs":["a","b"],"options":{"use_cache":true},
                       "parameters":{"top_k":2,"truncation":true,"function_to_apply":"softmax"}})")
                .message(),
            "Classify model: \"m\" sequences { text: \"a\" } sequences { text: \"b\" } top_k: 2 "
            "truncate: true");
  EXPECT_EQ(Reading("tagger", R"({"inputs":"a"})").message(),
            "Tag model: \"m\" sequences { text: \"a\" }");
  EXPECT_EQ(Reading("translator", R"({"inputs":"a","parameters":{"src_lang":"en","tgt_lang":"de",
                       "generate_parameters":{"num_beams":3,"max_new_tokens":9}}})")
                .message(),
            "Translate model: \"m\" sequences { text: \"a\" } beam_size: 3 max_new_tokens: 9");
  EXPECT_EQ(Reading("reader", R"({"inputs":{"question":"q","context":"c"},
                       "parameters":{"max_answer_len":5}})")
                .message(),
            "Answer model: \"m\" queries { question: \"q\" passages: \"c\" } top_n: 1 "
            "max_answer_tokens: 5");
}

TEST(PipelineTest, WhatIsNotSupportedIsRefused) {
  const auto error = [](const std::string& task, const std::string& rest) {
    return Reading(task, R"({"inputs":"a",)" + rest + "}").error();
  };
  EXPECT_THAT(error("language_model", R"("parameters":{})"), HasSubstr("/v1/completions"));
  EXPECT_THAT(error("classifier", R"("parameters":{"top_k":0})"),
              HasSubstr("parameters.top_k: expected a whole number from 1 to"));
  EXPECT_EQ(error("classifier", R"("parameters":5)"), "parameters: expected an object, found 5");
  EXPECT_THAT(error("classifier", R"("parameters":{"function_to_apply":"none"})"),
              HasSubstr("parameters.function_to_apply: not supported, unless it is \"softmax\""));
  EXPECT_THAT(error("classifier", R"("top_k":1)"), HasSubstr("top_k: unknown field"));
  EXPECT_EQ(error("tagger", R"("parameters":{"aggregation_strategy":"max"})"),
            "parameters.aggregation_strategy: expected \"simple\" or \"none\", found \"max\"");
  EXPECT_EQ(error("tagger", R"("parameters":{"ignore_labels":"O"})"),
            "parameters.ignore_labels: expected a list of strings, found \"O\"");
  EXPECT_EQ(error("translator", R"("parameters":{"src_lang":"en","tgt_lang":"fr"})"),
            "parameters.tgt_lang: expected the model's, 'de', found \"fr\"");
  EXPECT_THAT(error("translator", R"("parameters":{"generate_parameters":{"do_sample":true}})"),
              HasSubstr("parameters.generate_parameters.do_sample: unknown field"));
  EXPECT_EQ(error("reader", R"("parameters":{})"), "inputs: expected an object, found \"a\"");
  EXPECT_EQ(Reading("reader", R"({"inputs":{"question":"q"}})").error(),
            "inputs.context: expected a string, found none");
  EXPECT_THAT(Reading("reader", R"({"inputs":{"question":"q","context":"c","x":1}})").error(),
              HasSubstr("inputs.x: unknown field"));
}

TEST(PipelineTest, AnswersHaveTheShapesOfTheTasks) {
  EXPECT_EQ(Reading("encoder", R"({"inputs":"a"})")
                .Answer(absl::StrCat("encodings { shape: 2 shape: 1 ", kVector, " }")),
            "[[[0.5],[-1]]]");
  EXPECT_EQ(Reading("classifier", R"({"inputs":"a"})")
                .Answer("classifications { labels { name: 'x\"' probability: 0.75 } "
                        "labels { name: 'y' probability: 0.25 } } classifications {}"),
            R"([[{"label":"x\"","score":0.75},{"label":"y","score":0.25}],[]])");
  EXPECT_EQ(Reading("translator", R"({"inputs":"a"})")
                .Answer("translations { hypotheses { text: 'Hallo' } } translations {}"),
            R"([{"translation_text":"Hallo"},{"translation_text":""}])");
  const std::string span = "answers { text: 'me' probability: 0.5 start_char: 3 end_char: 5 } ";
  const std::string one = R"({"answer":"me","score":0.5,"start":3,"end":5})";
  const std::string inputs = R"({"inputs":{"question":"q","context":"c"})";
  EXPECT_EQ(Reading("reader", inputs + "}").Answer("results {" + span + "}"), one);
  EXPECT_EQ(Reading("reader", inputs + "}").Answer("results {}"),
            R"({"answer":"","score":0,"start":0,"end":0})");
  EXPECT_EQ(Reading("reader", inputs + R"(,"parameters":{"top_k":2}})")
                .Answer("results {" + span + span + "}"),
            "[" + one + "," + one + "]");
}

TEST(PipelineTest, NeighboursOfOneEntityAreGrouped) {
  const auto entities = [](const std::string& labels, const std::string& parameters,
                           bool is_list = false) {
    // The first letter has two bytes.
    const std::string text = is_list ? "[\"\xC3\x89va Li in Bonn\"]" : "\"\xC3\x89va Li in Bonn\"";
    const int begins[] = {0, 5, 8, 11};
    const int ends[] = {4, 7, 10, 15};
    std::string answer = "taggings {";
    int i = 0;
    for (const absl::string_view label : absl::StrSplit(labels, ' ')) {
      absl::StrAppend(&answer, " tokens { token: 't' labels { name: '", label,
                      "' probability: ", i % 2 == 0 ? "0.75" : "0.5", " } start_byte: ", begins[i],
                      " end_byte: ", ends[i], " start_char: ", begins[i] == 0 ? 0 : begins[i] - 1,
                      " end_char: ", ends[i] - 1, " }");
      ++i;
    }
    return Reading("tagger", R"({"inputs":)" + text + ",\"parameters\":{" + parameters + "}}")
        .Answer(answer + " }");
  };
  const std::string labels = "B-PER I-PER O B-LOC";
  EXPECT_EQ(entities(labels, ""),
            "[{\"entity_group\":\"PER\",\"score\":0.625,\"word\":\"\xC3\x89va "
            "Li\",\"start\":0,\"end\":6},"
            R"({"entity_group":"LOC","score":0.5,"word":"Bonn","start":10,"end":14}])");
  const std::string none = R"("aggregation_strategy":"none")";
  EXPECT_THAT(entities(labels, none),
              HasSubstr(R"({"entity":"I-PER","score":0.5,"word":"Li","start":4,"end":6})"));
  EXPECT_THAT(entities(labels, none), Not(HasSubstr("\"O\"")));
  EXPECT_THAT(entities(labels, none + R"(,"ignore_labels":[])"), HasSubstr(R"({"entity":"O",)"));
  // Another one begins; and labels without B- and I- are grouped by their names.
  EXPECT_THAT(entities("B-PER B-PER O O", ""), HasSubstr("\"word\":\"\xC3\x89va\""));
  EXPECT_THAT(entities("PER PER O O", ""), HasSubstr("\"word\":\"\xC3\x89va Li\""));
  EXPECT_THAT(entities(labels, "", /*is_list=*/true), StartsWith("[[{"));
}

TEST(FieldReaderTest, ErrorsAreInTheWordsOfTheApi) {
  const FieldNames names = {{"sequences", "input"}, {"top_k", "parameters.top_k"}};
  const auto words = [&](const std::string& message, bool is_list = false) {
    return InFieldsOf(names, is_list, "send less", absl::InvalidArgumentError(message));
  };
  EXPECT_EQ(words("sequences[0].text: empty").status.message(), "input: empty");
  EXPECT_EQ(words("sequences[1].text: empty", true).status.message(), "input[1]: empty");
  EXPECT_EQ(words("sequences[1].text: empty", true).param, "input");
  EXPECT_EQ(words("sequences: too many").status.message(), "input: too many");
  EXPECT_EQ(words("top_k: 5 is").status.message(), "parameters.top_k: 5 is");
  EXPECT_EQ(words("sequencesX: a").status.message(), "sequencesX: a");
  EXPECT_EQ(words("no path").status.message(), "no path");
}

// An API that has no field `truncate` must not advise it.
TEST(FieldReaderTest, AdviceIsOfTheApi) {
  const absl::Status status = Advise(absl::InvalidArgumentError("sequences[0].text: too long"),
                                     AdviceOn::kLength, "set truncate");
  EXPECT_EQ(status.message(), "sequences[0].text: too long; set truncate");
  EXPECT_EQ(WithAdvice(status, "send less").message(), "sequences[0].text: too long; send less");
  const RestError error = InFieldsOf({{"sequences", "input"}}, false, "send less", status);
  EXPECT_EQ(error.status.message(), "input: too long; send less");
  EXPECT_EQ(WithAdvice(absl::InternalError("x; set truncate"), "y").message(), "x; set truncate");
  const absl::Status empty = Advise(absl::InvalidArgumentError("sequences[0].text: empty"),
                                    AdviceOn::kField, "with skip_empty it may be");
  EXPECT_EQ(empty.message(), "sequences[0].text: empty; with skip_empty it may be");
  EXPECT_EQ(WithAdvice(empty, "send less"), absl::InvalidArgumentError("sequences[0].text: empty"));
}

}  // namespace
}  // namespace sru::server::rest
