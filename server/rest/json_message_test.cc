#include "server/rest/json_message.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Message>
absl::Status Parse(const std::string& json, Message* message) {
  MemoryHold unlimited(nullptr);
  return ParseJsonMessage(json, &unlimited, message);
}

template <typename Message>
std::string ErrorOf(const std::string& json) {
  Message message;
  const absl::Status status = Parse(json, &message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(status.message());
}

template <typename Message>
std::string Written(const Message& message, JsonFields fields) {
  MemoryHold unlimited(nullptr);
  std::string json;
  EXPECT_TRUE(WriteJsonMessage(message, fields, &unlimited, &json).ok());
  return json;
}

// What protobuf's utility reads from it.
template <typename Message>
Message ReadByProtobuf(const std::string& json) {
  Message message;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &message).ok()) << json;
  return message;
}

template <typename Message>
void ExpectAsProtobuf(const std::string& json) {
  SCOPED_TRACE(json);
  Message message;
  const absl::Status status = Parse(json, &message);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(MessageDifferencer::Equals(message, ReadByProtobuf<Message>(json)));
}

TEST(JsonMessageTest, ReadsWhatProtobufReads) {
  for (
      const char* json : {
          R"({})",
          R"( { "model" : "trec" , "version":3, "sequences":[] } )",
          R"({"version":"3","top_k":"2","truncate":true,"priority":"PRIORITY_HIGH"})",
          R"({"version":3.0,"topK":1e1,"skipEmpty":false,"priority":1})",
          R"({"sequences":[{"text":"a\u00e4\ud83d\ude00\n"},{"tokens":{"values":["x","","y"]}},{}]})",
          R"({"sequences":[{"token_ids":{"values":[0,-1,2147483647,-2147483648,"5"]}},{"tokenIds":{}}]})",
          R"({"sequences":[{"features":{"data":"AAAAPw==","feature_size":1}},{"features":{"data":"_-8"}}]})",
          R"({"model":null,"sequences":null,"top_k":null})",
          R"({"version":-9223372036854775808})",
          R"({"version":"9223372036854775807"})",
      }) {
    ExpectAsProtobuf<v1::ClassifyRequest>(json);
  }
  for (
      const char* json : {
          R"({"sampling":{"temperature":0.7,"seed":18446744073709551615,"logit_bias":{"3":-100,"-4":0.5}}})",
          R"({"sampling":{"temperature":"0.25","min_p":1e-3,"seed":"7","top_p":1}})",
          R"({"sampling":{"temperature":"NaN","min_p":"Infinity","top_p":"-Infinity"}})",
          R"({"prompt":{"text":"x"},"stop":["a","b"],"stopTokenIds":[1,2],"state":"AQID"})",
      }) {
    if (std::string(json).find("NaN") == std::string::npos)
      ExpectAsProtobuf<v1::GenerateRequest>(json);
    v1::GenerateRequest request;
    EXPECT_TRUE(Parse(json, &request).ok()) << json;
  }
  ExpectAsProtobuf<v1::TranslateRequest>(R"({"length_penalty":{"form":"FORM_GNMT","alpha":0}})");
}

// The message that the JSON describes; it must be one.
std::string BytesOf(const google::protobuf::Descriptor& type, const std::string& json) {
  MemoryHold unlimited(nullptr);
  const std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  const absl::Status status = ParseJsonMessage(json, &unlimited, message.get());
  EXPECT_TRUE(status.ok()) << json << ": " << status;
  return message->SerializeAsString();
}

struct Forms {
  const char* form;  // protobuf's
  std::vector<const char*> others;
};

TEST(JsonMessageTest, ShortFormsAreTheSameMessage) {
  const std::vector<Forms> of_sequences = {
      {R"({"model":"m","sequences":[{"text":"a b"}]})",
       {R"({"model":"m","sequences":["a b"]})", R"({"sequences":"a b","model":"m"})",
        R"({"model":"m","text":"a b"})", R"({"text":"a b","model":"m"})",
        R"({"model":"m","texts":["a b"]})", R"({"model":"m","texts":"a b"})",
        R"({"model":"m","texts":null,"sequences":["a b"]})",
        R"({"text":null,"tokens":null,"model":"m","sequences":["a b"]})",
        R"({"text":"a b","sequences":null,"model":"m","texts":null})"}},
      {R"({"sequences":[{"text":"a\u00e4"},{"text":""},{"tokens":{"values":["x","y"]}}]})",
       {R"({"sequences":["a\u00e4","",{"tokens":["x","y"]}]})"}},
      {R"({"sequences":[{"text":"a"},{"text":""}]})", {R"({"texts":["a",""]})"}},
      {R"({"sequences":[{"text":""}]})", {R"({"text":""})"}},
      {R"({"sequences":[{"tokens":{"values":["x"]}}],"version":"2"})",
       {R"({"tokens":["x"],"version":2})", R"({"version":2,"tokens":{"values":["x"]}})"}},
      {R"({"sequences":[{"tokenIds":{"values":[1,300]}},{"token_ids":{}}]})",
       {R"({"sequences":[{"token_ids":[1,300]},{"tokenIds":[]}]})"}},
      {R"({"sequences":[{"token_ids":{"values":[1]}}],"model":"m"})",
       {R"({"tokenIds":[1],"model":"m"})"}},
      {R"({"sequences":[{"features":{"data":"AAAAPw==","feature_size":1}}],"model":"m"})",
       {R"({"features":{"data":"AAAAPw==","feature_size":1},"model":"m"})"}},
      {R"({"unknown":"UNKNOWN_SKIP"})",
       {R"({"unknown":"skip"})", R"({"unknown":"SKIP"})", R"({"unknown":"unknown_skip"})"}},
  };
  const auto* const requests = v1::ClassifyRequest::descriptor()->file();
  int num_types = 0;
  for (int i = 0; i < requests->message_type_count(); ++i) {
    const google::protobuf::Descriptor& type = *requests->message_type(i);
    const auto* const list = type.FindFieldByName("sequences");
    if (list == nullptr || list->message_type() != v1::Sequence::descriptor()) continue;
    ++num_types;
    for (const auto& [form, others] : of_sequences) {
      for (const char* other : others)
        EXPECT_EQ(BytesOf(type, other), BytesOf(type, form)) << type.name() << other;
    }
  }
  EXPECT_EQ(num_types, 6);  // Classify, Encode, Score, Translate, Tag, Tokenize

  const std::pair<const google::protobuf::Descriptor*, Forms> rows[] = {
      {v1::ClassifyRequest::descriptor(),
       {R"({"priority":"PRIORITY_LOW"})",
        {R"({"priority":"low"})", R"({"priority":"Low"})", R"({"priority":"priority_LOW"})"}}},
      {v1::EncodeRequest::descriptor(),
       {R"({"pooling":"POOLING_MEAN","output_format":"OUTPUT_FORMAT_RAW_FLOAT16"})",
        {R"({"pooling":"mean","output_format":"raw_float16"})",
         R"({"pooling":4,"outputFormat":"Raw_Float16"})"}}},
      {v1::ScoreRequest::descriptor(),
       {R"({"sequences":[{"text":"a"}],"states":["AQID"]})", {R"({"text":"a","states":"AQID"})"}}},
      {v1::GenerateRequest::descriptor(),
       {R"({"prompt":{"text":"Natasha"},"stop":["."],"unknown":"UNKNOWN_REPLACE"})",
        {R"({"prompt":"Natasha","stop":".","unknown":"replace"})"}}},
      {v1::GenerateRequest::descriptor(),
       {R"({"prompt":{"token_ids":{"values":[1,2]}},"stop_token_ids":[3]})",
        {R"({"prompt":{"token_ids":[1,2]},"stop_token_ids":[3]})"}}},
      {v1::TranslateRequest::descriptor(),
       {R"({"sequences":[{"text":"a"}],"target_prefixes":["b"],"length_penalty":{"form":"FORM_GNMT"}})",
        {R"({"text":"a","target_prefixes":"b","length_penalty":{"form":"gnmt"}})"}}},
      {v1::AnswerRequest::descriptor(),
       {R"({"queries":[{"question":"q","passages":["p","r"]}],"top_n":2,"priority":"PRIORITY_HIGH"})",
        {R"({"question":"q","passages":["p","r"],"top_n":2,"priority":"high"})",
         R"({"passages":["p","r"],"top_n":2,"question":"q","priority":"HIGH","queries":null})"}}},
      {v1::AnswerRequest::descriptor(),
       {R"({"queries":[{"question":"q","passages":["p"],"passage_tags":[{"pos_ids":[1]}]}]})",
        {R"({"queries":[{"question":"q","passages":"p","passage_tags":[{"pos_ids":[1]}]}]})",
         R"({"passage_tags":[{"pos_ids":[1]}],"passages":"p","question":"q"})"}}},
      {v1::DetokenizeRequest::descriptor(),
       {R"({"sequences":[{"values":[1,2]},{"values":[]},{"values":["3"]}]})",
        {R"({"sequences":[[1,2],[],["3"]]})"}}},
  };
  for (const auto& [type, forms] : rows) {
    for (const char* other : forms.others)
      EXPECT_EQ(BytesOf(*type, other), BytesOf(*type, forms.form)) << other;
  }
}

TEST(JsonMessageTest, OnlyOneFormIsTaken) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"sequences":["a"],"texts":["a"]})", "sequences, texts: expected one of them"},
      {R"({"text":"a","sequences":[]})", "sequences, text: expected one of them"},
      {R"({"text":"a","texts":["b"],"sequences":"c"})",
       "sequences, texts, text: expected one of them"},
      {R"({"tokens":["a"],"sequences":["c"]})", "sequences, tokens: expected one of them"},
      {R"({"text":"a","tokens":["b"]})", "tokens: text is set already; expected one of them"},
      {R"({"text":"a","model":"m","text":"b"})", "text: the key comes twice"},
      {R"({"texts":["a"],"texts":["b"]})", "texts: the key comes twice"},
      {R"({"text":["a"]})", "text: expected a string, found a list"},
      {R"({"texts":[{"text":"a"}]})", "texts[0]: expected a string, found an object"},
      {R"({"texts":["a",5]})", "texts[1]: expected a string, found the number 5"},
      {R"({"texts":[null]})", "texts[0]: expected a string, found null"},
      {R"({"sequences":[["a"]]})",
       R"(sequences[0]: expected a string or an object, as in {"sequences": ["..."]}, found a list)"},
      {R"({"tokens":"a b"})",
       R"(tokens: expected a list, as in {"tokens": ["..."]}, found a string)"},
      {R"({"tokens":{"values":"a b"}})",
       R"(tokens.values: expected a list, as in {"values": ["..."]}, found a string)"},
      {R"({"sequences":[{"tokens":["a",5]}]})",
       "sequences[0].tokens[1]: expected a string, found the number 5"},
      {R"({"sequences":[{"text":{"text":"a"}}]})",
       "sequences[0].text: expected a string, found an object"},
      {R"({"priority":""})", "priority: expected one of unspecified, low, normal, high, found ''"},
      {R"({"priority":"priority_priority_low"})",
       "priority: expected one of unspecified, low, normal, high, found 'priority_priority_low'"},
  };
  for (const auto& [json, message] : cases)
    EXPECT_EQ(ErrorOf<v1::ClassifyRequest>(json), message) << json;
  EXPECT_EQ(ErrorOf<v1::AnswerRequest>(R"({"question":"a","passages":["b"],"queries":[{}]})"),
            "queries, passages: expected one of them");
  EXPECT_EQ(ErrorOf<v1::DetokenizeRequest>(R"({"sequences":[[1,[2]]]})"),
            "sequences[0][1]: expected a whole number of 32 bits, found a list");
}

TEST(JsonMessageTest, ErrorsShowTheForm) {
  const std::pair<const google::protobuf::Descriptor*, const char*> rows[] = {
      {v1::ClassifyRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::EncodeRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::ScoreRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::TagRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::TranslateRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::TokenizeRequest::descriptor(), R"({"sequences": ["..."]})"},
      {v1::DetokenizeRequest::descriptor(), R"({"sequences": [[1]]})"},
      {v1::GenerateRequest::descriptor(), R"({"prompt": "..."})"},
      {v1::AnswerRequest::descriptor(),
       R"({"queries": [{"question": "...", "passages": ["..."]}]})"},
      {v1::GetModelRequest::descriptor(), R"({"model": "...", "version": 1})"},
      {v1::ListModelsRequest::descriptor(), "{}"},
  };
  for (const auto& [type, example] : rows) {
    MemoryHold unlimited(nullptr);
    std::string wire;
    EXPECT_EQ(ParseJsonMessage(*type, "[]", &unlimited, &wire).message(),
              absl::StrCat("expected an object, as in ", example, ", found a list"));
    BytesOf(*type, example);
  }
  EXPECT_EQ(ErrorOf<v1::ClassifyRequest>(R"({"inputs":"Where"})"),
            "unknown field 'inputs'; expected one of model, version, sequences, top_k, truncate, "
            "priority, skip_empty, unknown, texts, text, tokens, token_ids, features, as in "
            R"({"sequences": ["..."]})");
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>(R"({"sequence":"Where"})"),
              StartsWith("unknown field 'sequence'; did you mean 'sequences'? expected one of "));
  EXPECT_THAT(ErrorOf<v1::AnswerRequest>(R"({"pasages":["a"]})"),
              HasSubstr("did you mean 'passages'?"));
  EXPECT_LT(ErrorOf<v1::ClassifyRequest>("{\"" + std::string(100000, 't') + "\":1}").size(), 500);
  EXPECT_EQ(ErrorOf<v1::TranslateRequest>(R"({"length_penalty":"gnmt"})"),
            "length_penalty: expected an object, as in "
            R"({"length_penalty": {"form": "none", "alpha": 1}}, found a string)");
}

TEST(JsonMessageTest, ErrorsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"sequences":[{},{"text":5}]})",
       "sequences[1].text: expected a string, found the number 5"},
      {R"({"sequences":[{"tokens":{"values":["a",{}]}}]})",
       "sequences[0].tokens.values[1]: expected a string, found an object"},
      {R"({"sequences":[{"token_ids":{"values":[1,2147483648]}}]})",
       "sequences[0].token_ids.values[1]: expected a whole number of 32 bits, found 2147483648"},
      {R"({"sequences":[{"token_ids":{"values":[1.5]}}]})",
       "sequences[0].token_ids.values[0]: expected a whole number of 32 bits, found 1.5"},
      {R"({"sequences":[{"token_ids":{"values":[null]}}]})",
       "sequences[0].token_ids.values[0]: expected a whole number of 32 bits, found null"},
      {R"({"sequences":{"text":"a"}})",
       R"(sequences: expected a list, as in {"sequences": ["..."]}, found an object)"},
      {R"({"model":["a"]})", "model: expected a string, found a list"},
      {R"({"truncate":"true"})", "truncate: expected true or false, found a string"},
      {R"({"truncate":1})", "truncate: expected true or false, found the number 1"},
      {R"({"top_k":true})", "top_k: expected a whole number of 32 bits, found true"},
      {R"({"top_k":"7x"})", "top_k: expected a whole number of 32 bits, found '7x'"},
      {R"({"version":9223372036854775808})",
       "version: expected a whole number of 64 bits, found 9223372036854775808"},
      {R"({"priority":"HIGHEST"})",
       "priority: expected one of unspecified, low, normal, high, found 'HIGHEST'"},
      {R"({"sequences":[{"text":"a","tokens":{}}]})",
       "sequences[0].tokens: text is set already; expected one of them"},
      {R"({"sequences":[{"features":{"data":"a?"}}]})",
       "sequences[0].features.data: expected a string in base64, found something else"},
      {R"({"sequences":[{"word":"a"}]})",
       "sequences[0]: unknown field 'word'; expected one of text, tokens, token_ids, features, as "
       R"(in {"text": "..."})"},
      {R"({"top_k":1,"top_k":1})", "top_k: the key comes twice"},
      {R"({"top_k":1,"topK":1})", "top_k: the key comes twice"},
      {R"([])", R"(expected an object, as in {"sequences": ["..."]}, found a list)"},
      {R"("a")", R"(expected an object, as in {"sequences": ["..."]}, found a string)"},
      {R"(null)", R"(expected an object, as in {"sequences": ["..."]}, found null)"},
  };
  for (const auto& [json, message] : cases)
    EXPECT_EQ(ErrorOf<v1::ClassifyRequest>(json), message) << json;
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"temperature":1e39}})"),
            "sampling.temperature: expected a number in the range of float32, found 1e39");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"temperature":1e999}})"),
            "sampling.temperature: expected a number in the range of float32, found 1e999");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"seed":-1e999}})"),
            "sampling.seed: expected a whole number from 0 to 2^64 - 1, found -1e999");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"logit_bias":{"1":1e999}}})"),
            "sampling.logit_bias: expected an object of numbers, found 1e999");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"logit_bias":{"a":1}}})"),
            "sampling.logit_bias: expected whole numbers of 32 bits as keys, found 'a'");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"logit_bias":{"1":1,"1":2}}})"),
            "sampling.logit_bias: the key '1' comes twice");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"logit_bias":{"1":{}}}})"),
            "sampling.logit_bias: expected an object of numbers, found an object");
  EXPECT_EQ(ErrorOf<v1::GenerateRequest>(R"({"sampling":{"logit_bias":[]}})"),
            "sampling.logit_bias: expected an object of numbers, found a list");
}

TEST(JsonMessageTest, RefusesWhatIsNotJson) {
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("{\"top_k\":}"), std::string("{} {}"),
        std::string("{\"top_k\":NaN}"), std::string("{\"top_k\":01}"),
        std::string("{\"model\":\"\xff\"}"), std::string("{\"model\":\"\xed\xa0\x80\"}"),
        std::string("{\"model\":\"\\ud800\"}"), std::string("{'model':1}"),
        std::string("{\"top_k\":1,}"), std::string("\0", 1)}) {
    const std::string error = ErrorOf<v1::ClassifyRequest>(json);
    EXPECT_THAT(error, StartsWith("the body is not JSON: "));
    EXPECT_LT(error.size(), 300);
  }
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>("{\n \"model\": x}"),
              HasSubstr("line 2, column 11: expected a value, found x"));
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>("{\n\"model\":\"\xff\"}"),
              HasSubstr("line 2, column 10: expected UTF-8"));
  // A null byte does not end the text.
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>(std::string("{}\0{}", 5)),
              HasSubstr("line 1, column 3: expected nothing after the value"));
  // An error is a message of gRPC, and so valid UTF-8.
  EXPECT_EQ(
      ErrorOf<v1::ClassifyRequest>(std::string("{}\0a\xFF{}", 7)),
      "the body is not JSON: line 1, column 3: expected nothing after the value, found ?a...");
}

TEST(JsonMessageTest, DepthIsBoundedByTheMessage) {
  const int depth = 1 << 20;
  EXPECT_EQ(ErrorOf<v1::ClassifyRequest>(std::string(depth, '[')),
            R"(expected an object, as in {"sequences": ["..."]}, found a list)");
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>("{\"sequences\":" + std::string(depth, '[')),
              StartsWith("sequences[0]: expected a string or an object, as in "));
  EXPECT_EQ(ErrorOf<v1::DetokenizeRequest>("{\"sequences\":" + std::string(depth, '[')),
            "sequences[0][0]: expected a whole number of 32 bits, found a list");
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"sequences\":[";
  EXPECT_THAT(ErrorOf<v1::ClassifyRequest>(objects),
              StartsWith("sequences[0]: unknown field 'sequences'"));
}

TEST(JsonMessageTest, MemoryIsReservedBeforeItIsTaken) {
  const int64_t limit = 4 << 20;
  // Three bytes each become a message, a string or a number.
  std::string messages = "{\"sequences\":[{}";
  std::string strings = "{\"sequences\":[{\"tokens\":{\"values\":[\"\"";
  std::string texts = "{\"texts\":[\"\"";
  std::string flat = "{\"tokens\":[\"\"";
  for (int i = 0; i < 100000; ++i) {
    messages += ",{}";
    for (std::string* json : {&strings, &texts, &flat}) *json += ",\"\"";
  }
  for (const std::string& json : {messages + "]}", strings + "]}}]}", texts + "]}", flat + "]}"}) {
    v1::ClassifyRequest request;
    calls::ByteBudget enough(int64_t{64} << 20);
    {
      MemoryHold hold(&enough);
      EXPECT_TRUE(ParseJsonMessage(json, &hold, &request).ok());
      EXPECT_GE(hold.bytes(), static_cast<int64_t>(request.SpaceUsedLong()));
    }
    EXPECT_EQ(enough.used(), 0);
    calls::ByteBudget little(limit);
    v1::ClassifyRequest refused;
    {
      MemoryHold hold(&little);
      EXPECT_EQ(ParseJsonMessage(json, &hold, &refused).code(),
                absl::StatusCode::kResourceExhausted);
      EXPECT_LT(refused.SpaceUsedLong(), static_cast<size_t>(limit));
    }
    EXPECT_EQ(little.used(), 0);
  }
  v1::EncodeResponse response;
  for (int i = 0; i < 100000; ++i) response.add_encodings()->add_values(0.1f);
  calls::ByteBudget little(1 << 20);
  MemoryHold hold(&little);
  std::string json;
  EXPECT_EQ(WriteJsonMessage(response, JsonFields::kAll, &hold, &json).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LT(json.size(), size_t{1} << 20);
}

TEST(JsonMessageTest, WhatTheCountsRefuseTakesNoMemory) {
  calls::RequestLimits limits;
  limits.max_sequences = 100;
  limits.max_request_tokens = 1000;
  const auto list = [](absl::string_view element, int times) {
    std::string text = "[";
    for (int i = 0; i < times; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", element);
    return text + "]";
  };
  const auto error_of = [&](const std::string& json, google::protobuf::Message* message) {
    calls::ByteBudget budget(2 * static_cast<int64_t>(json.size()) + (200 << 10));
    MemoryHold hold(&budget);
    const absl::Status status = ParseJsonMessage(json, &hold, message, &limits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  v1::ClassifyRequest classify;
  const std::string many = "(--max_sequences_per_request); send several calls";
  EXPECT_EQ(error_of("{\"sequences\":" + list("{}", 100000) + "}", &classify),
            "sequences: 101 are too many, expected at most 100 " + many);
  for (const char* key : {"sequences", "texts"}) {
    v1::ClassifyRequest request;
    EXPECT_EQ(error_of(absl::StrCat("{\"", key, "\":", list(R"("")", 100000), "}"), &request),
              "sequences: 101 are too many, expected at most 100 " + many);
  }
  for (const char* key : {"tokens", "token_ids"}) {
    v1::ClassifyRequest request;
    EXPECT_THAT(error_of(absl::StrCat("{\"", key, "\":", list(R"("1")", 2000), "}"), &request),
                StartsWith("sequences: more than 1000 tokens in all"));
  }
  v1::AnswerRequest flat;
  EXPECT_EQ(error_of("{\"passages\":" + list(R"("")", 100000) + "}", &flat),
            "queries: 101 passages are too many, expected at most 100 " + many);
  for (const std::string& tokens : {R"("tokens":{"values":)" + list(R"("")", 300) + "}",
                                    R"("token_ids":{"values":)" + list("1", 300) + "}"}) {
    v1::ClassifyRequest request;
    EXPECT_THAT(error_of("{\"sequences\":" + list("{" + tokens + "}", 100) + "}", &request),
                StartsWith("sequences: more than 1000 tokens in all"));
  }
  v1::AnswerRequest answer;
  EXPECT_EQ(error_of("{\"queries\":" + list("{}", 100000) + "}", &answer),
            "queries: 101 are too many, expected at most 100 " + many);
  v1::AnswerRequest passages;
  EXPECT_EQ(error_of("{\"queries\":[{\"passages\":" + list(R"("")", 100000) + "}]}", &passages),
            "queries: 101 passages are too many, expected at most 100 " + many);
  v1::GenerateRequest stop;
  EXPECT_EQ(error_of("{\"stop\":" + list(R"("")", 100000) + "}", &stop),
            "stop: more than 1000 entries, expected at most that");
  std::string biases;
  for (int i = 0; i < 100000; ++i) absl::StrAppend(&biases, i == 0 ? "" : ",", "\"", i, "\":1");
  v1::GenerateRequest sampling;
  EXPECT_EQ(error_of("{\"sampling\":{\"logit_bias\":{" + biases + "}}}", &sampling),
            "logit_bias: more than 1000 entries, expected at most that");
  v1::ClassifyRequest most;
  MemoryHold unlimited(nullptr);
  inference::ModelInferRequest tensor;
  EXPECT_TRUE(
      ParseJsonMessage(R"({"inputs":[{"contents":{"fp32_contents":)" + list("1", 2000) + "}}]}",
                       &unlimited, &tensor, &limits)
          .ok());
  for (const std::string& json :
       {"{\"sequences\":" + list(R"({"tokens":{"values":["a"]}})", 100) + "}",
        "{\"text\":null,\"texts\":" + list(R"("")", 100) + "}",
        "{\"tokens\":" + list(R"("")", 1000) + "}"}) {
    EXPECT_TRUE(ParseJsonMessage(json, &unlimited, &most, &limits).ok()) << json;
    most.Clear();
  }
}

TEST(JsonMessageTest, MemoryThatNeverComesIsNotToBeWaitedFor) {
  calls::ByteBudget budget(100000);
  MemoryHold other(&budget);
  ASSERT_TRUE(other.Grow(60000));
  v1::ClassifyRequest request;
  for (const auto& [bytes, expected] :
       {std::pair(30000,
                  "the requests of the server hold all the memory that they may; retry later"),
        std::pair(
            60000,
            "memory: the request would take at least 120054 bytes, those of one caller may take "
            "80000 of 100000 (--max_inflight_mb); send smaller requests")}) {
    MemoryHold hold(&budget);
    EXPECT_EQ(ParseJsonMessage("{\"sequences\":[{\"text\":\"" + std::string(bytes, 'a') + "\"}]}",
                               &hold, &request)
                  .message(),
              expected);
  }
}

v1::EncodeResponse SomeEncoding() {
  v1::EncodeResponse response;
  response.set_model("a\"\\\n\x01\u00e4\U0001F600/");
  response.set_version(std::numeric_limits<int64_t>::min());
  v1::Encoding& encoding = *response.add_encodings();
  encoding.add_shape(2);
  for (const float value :
       {0.1f, -0.0f, 1e-40f, 3.4028235e38f, std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), 16777216.0f}) {
    encoding.add_values(value);
  }
  encoding.set_data(std::string("\x00\xff\x10", 3));
  encoding.set_truncated(true);
  response.add_encodings();
  response.mutable_times()->set_total_us(0.1);
  return response;
}

TEST(JsonMessageTest, ProtobufReadsWhatIsWritten) {
  for (const JsonFields fields : {JsonFields::kAll, JsonFields::kSet}) {
    const v1::EncodeResponse response = SomeEncoding();
    const std::string json = Written(response, fields);
    EXPECT_TRUE(MessageDifferencer::Equals(ReadByProtobuf<v1::EncodeResponse>(json), response))
        << json;
    v1::EncodeResponse again;
    EXPECT_TRUE(Parse(json, &again).ok());
    EXPECT_TRUE(MessageDifferencer::Equals(again, response)) << json;
    EXPECT_TRUE(nlohmann::json::accept(json));
  }
  v1::GenerateRequest request;
  request.mutable_sampling()->set_seed(0);
  (*request.mutable_sampling()->mutable_logit_bias())[-5] = 1.5f;
  request.set_priority(v1::PRIORITY_HIGH);
  const std::string json = Written(request, JsonFields::kSet);
  EXPECT_EQ(json,
            R"({"sampling":{"seed":"0","logit_bias":{"-5":1.5}},"priority":"PRIORITY_HIGH"})");
  EXPECT_TRUE(MessageDifferencer::Equals(ReadByProtobuf<v1::GenerateRequest>(json), request));
}

TEST(JsonMessageTest, AllFieldsAreWrittenUnlessTheyCanBeAbsent) {
  EXPECT_EQ(Written(v1::Classification(), JsonFields::kAll),
            R"({"labels":[],"token_count":0,"truncated":false,"unknown_tokens":0})");
  EXPECT_EQ(Written(v1::ClassifyResponse(), JsonFields::kAll),
            R"({"model":"","version":"0","classifications":[]})");
  EXPECT_EQ(Written(v1::Sequence(), JsonFields::kAll), "{}");
  EXPECT_EQ(Written(v1::ClassifyResponse(), JsonFields::kSet), "{}");
}

TEST(JsonMessageTest, BytesOfCallsAreTheMessage) {
  const v1::EncodeResponse response = SomeEncoding();
  const absl::Cord bytes = calls::ToCord(response);
  v1::EncodeResponse again;
  ASSERT_TRUE(calls::ParseCord(bytes, &again));
  EXPECT_TRUE(MessageDifferencer::Equals(again, response));
  EXPECT_TRUE(calls::ParseCord(calls::ToCord(v1::EncodeResponse()), &again));
  EXPECT_FALSE(calls::ParseCord(absl::Cord("\xff\xff"), &again));
}

TEST(JsonMessageTest, StringsAreRepaired) {
  std::string json;
  AppendJsonString("a\xff", &json);
  EXPECT_EQ(json, "\"a\uFFFD\"");
}

}  // namespace
}  // namespace sru::server::rest
