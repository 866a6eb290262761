#include "server/rest/completions_request.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::rest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RestError Parse(const std::string& body, CompletionsRequest* request) {
  MemoryHold unlimited(nullptr);
  return ParseCompletionsRequest(body, &unlimited, request);
}

CompletionsRequest MustParse(const std::string& body) {
  CompletionsRequest request;
  const RestError error = Parse(body, &request);
  EXPECT_TRUE(error.status.ok()) << error.status;
  return request;
}

TEST(CompletionsRequestTest, DefaultsAreOpenAis) {
  const CompletionsRequest request = MustParse(R"({"prompt":"a"})");
  ASSERT_EQ(request.prompts.size(), 1);
  EXPECT_EQ(request.prompts[0].text(), "a");
  EXPECT_EQ(request.generate.model(), "");
  EXPECT_EQ(request.generate.max_new_tokens(), 16);
  EXPECT_EQ(request.generate.sampling().temperature(), 1);
  EXPECT_FALSE(request.generate.sampling().has_seed());
  EXPECT_EQ(request.generate.num_samples(), 1);
  EXPECT_FALSE(request.logprobs.has_value());
  EXPECT_FALSE(request.stream || request.echo || request.include_usage || request.score_only);
}

TEST(CompletionsRequestTest, EveryFieldIsTaken) {
  const CompletionsRequest request =
      MustParse(R"({"model":"m","prompt":[[1,2],[3]],"max_tokens":7,"min_tokens":2,
      "temperature":0.5,"top_p":0.9,"top_k":4,"min_p":0.1,"n":3,"stop":["x","y"],"stop_token_ids":[9],"seed":5,
      "logprobs":2,"echo":true,"stream":true,"stream_options":{"include_usage":true},"presence_penalty":0.25,
      "frequency_penalty":-0.5,"repetition_penalty":1.5,"logit_bias":{"4":-100},"user":"u","best_of":3,"suffix":null})");
  const v1::GenerateRequest& generate = request.generate;
  EXPECT_EQ(generate.model(), "m");
  ASSERT_EQ(request.prompts.size(), 2);
  EXPECT_THAT(request.prompts[0].token_ids().values(), ElementsAre(1, 2));
  EXPECT_THAT(request.prompts[1].token_ids().values(), ElementsAre(3));
  EXPECT_EQ(generate.max_new_tokens(), 7);
  EXPECT_EQ(generate.min_new_tokens(), 2);
  EXPECT_EQ(generate.num_samples(), 3);
  EXPECT_THAT(generate.stop(), ElementsAre("x", "y"));
  EXPECT_THAT(generate.stop_token_ids(), ElementsAre(9));
  EXPECT_TRUE(generate.echo());
  EXPECT_TRUE(generate.token_log_probs());
  EXPECT_TRUE(generate.token_texts());
  EXPECT_EQ(generate.top_candidates(), 2);
  const v1::Sampling& sampling = generate.sampling();
  EXPECT_EQ(sampling.temperature(), 0.5f);
  EXPECT_EQ(sampling.top_p(), 0.9f);
  EXPECT_EQ(sampling.top_k(), 4);
  EXPECT_EQ(sampling.min_p(), 0.1f);
  EXPECT_EQ(sampling.seed(), 5);
  EXPECT_EQ(sampling.presence_penalty(), 0.25f);
  EXPECT_EQ(sampling.frequency_penalty(), -0.5f);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
  EXPECT_EQ(sampling.logit_bias().at(4), -100);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.logprobs, 2);
}

// Clients send these to ask for nothing, and languages without integers write 16.0.
TEST(CompletionsRequestTest, WhatAsksForNothingIsTaken) {
  for (
      const std::string option :
      {R"("stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false})",
       R"("stream":true,"stream_options":{"continuous_usage_stats":false,"include_obfuscation":null})",
       R"("top_k":-1)", R"("top_k":-1.0)", R"("suffix":"","best_of":1.0)", R"("store":false)",
       R"("store":null,"metadata":null,"service_tier":null)", R"("service_tier":"auto")",
       R"("service_tier":"default","metadata":{"run":"7"},"user":"u")", R"("ignore_eos":false)",
       R"("safety_identifier":"s","prompt_cache_key":"k","use_beam_search":false)"}) {
    const CompletionsRequest request = MustParse(R"({"prompt":"a",)" + option + "}");
    EXPECT_EQ(request.generate.sampling().top_k(), 0) << option;
  }
  const CompletionsRequest request = MustParse(
      R"({"prompt":[1.0,2e0],"max_tokens":16.0,"min_tokens":3.0,"n":2.0,"best_of":2.0,"top_k":4e1,
          "seed":7.0,"logprobs":5.0,"stop_token_ids":[9.0],"logit_bias":{"4":1.0}})");
  EXPECT_THAT(request.prompts[0].token_ids().values(), ElementsAre(1, 2));
  const v1::GenerateRequest& generate = request.generate;
  EXPECT_EQ(generate.max_new_tokens(), 16);
  EXPECT_EQ(generate.min_new_tokens(), 3);
  EXPECT_EQ(generate.num_samples(), 2);
  EXPECT_EQ(generate.sampling().top_k(), 40);
  EXPECT_EQ(generate.sampling().seed(), 7);
  EXPECT_EQ(generate.top_candidates(), 5);
  EXPECT_THAT(generate.stop_token_ids(), ElementsAre(9));
}

// In OpenAI's API 0 leaves only the most probable token; in Sampling it means off.
TEST(CompletionsRequestTest, ATopPOf0IsGreedy) {
  EXPECT_EQ(
      MustParse(R"({"prompt":"a","temperature":2,"top_p":0})").generate.sampling().temperature(),
      0);
  EXPECT_EQ(MustParse(R"({"prompt":"a","top_p":null})").generate.sampling().temperature(), 1);
  EXPECT_EQ(MustParse(R"({"prompt":"a","top_p":1})").generate.sampling().temperature(), 1);
}

TEST(CompletionsRequestTest, PromptsHaveFourForms) {
  EXPECT_EQ(MustParse(R"({"prompt":["a","b"]})").prompts[1].text(), "b");
  EXPECT_THAT(MustParse(R"({"prompt":[5,6]})").prompts[0].token_ids().values(), ElementsAre(5, 6));
  const CompletionsRequest score =
      MustParse(R"({"prompt":"a","max_tokens":0,"echo":true,"logprobs":0})");
  EXPECT_TRUE(score.score_only);
  EXPECT_EQ(score.generate.max_new_tokens(), 1);
  EXPECT_EQ(MustParse(R"({"prompt":"a","stop":"x"})").generate.stop(0), "x");
}

TEST(CompletionsRequestTest, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "prompt: expected a string"},
      {R"({"prompt":[]})", "prompt: expected a string or a list that is not empty"},
      {R"({"prompt":{}})",
       "prompt: expected a string or a list that is not empty, found an object"},
      {R"({"prompt":[1,"a"]})", "prompt: expected a token id at prompt[1], found \"a\""},
      {R"({"prompt":[[1],[2.5]]})", "prompt: expected a token id at prompt[1][0], found 2.5"},
      {R"({"prompt":[2147483648]})", "prompt: expected a token id at prompt[0], found 2147483648"},
      {R"({"prompt":["a",null]})",
       "prompt: expected a string or a list of token ids at prompt[1], found null"},
      {R"({"prompt":"a","model":5})", "model: expected a string, found 5"},
      {R"({"prompt":"a","max_tokens":-1})", "max_tokens: expected a whole number from 0"},
      {R"({"prompt":"a","max_tokens":1.5})", "max_tokens: expected a whole number from 0"},
      {R"({"prompt":"a","max_tokens":18446744073709551615})",
       "max_tokens: expected a whole number from 0"},
      {R"({"prompt":"a","max_tokens":0})", "max_tokens: expected more than 0, or \"echo\": true"},
      {R"({"prompt":"a","n":0})", "n: expected a whole number from 1 to 64, found 0"},
      {R"({"prompt":"a","temperature":"hot"})",
       "temperature: expected a number from 0 to 100, found \"hot\""},
      {R"({"prompt":"a","temperature":1e999})",
       "temperature: expected a number from 0 to 100, found a number out of range"},
      {R"({"prompt":"a","seed":-1e999})",
       "seed: expected a whole number, found a number out of range"},
      {R"({"prompt":"a","logit_bias":{"5":1e999}})",
       "logit_bias: expected numbers from -100 to 100, found a number out of range"},
      {R"({"prompt":"a","top_p":1.1})", "top_p: expected a number from 0 to 1, found 1.1"},
      {R"({"prompt":"a","repetition_penalty":0})",
       "repetition_penalty: expected a number from 0.01 to 100, found 0"},
      {R"({"prompt":"a","logprobs":6})", "logprobs: expected a whole number from 0 to 5, found 6"},
      {R"({"prompt":"a","logprobs":true})",
       "logprobs: expected a whole number from 0 to 5, found true"},
      {R"({"prompt":"a","stop":5})", "stop: expected a string or a list of strings, found 5"},
      {R"({"prompt":"a","stop":["x",5]})",
       "stop: expected a string or a list of strings, found 5 in the list"},
      {R"({"prompt":"a","seed":1.5})", "seed: expected a whole number, found 1.5"},
      {R"({"prompt":"a","echo":1})", "echo: expected true or false, found 1"},
      {R"({"prompt":"a","logit_bias":{"x":1}})",
       "logit_bias: expected token ids and numbers, found 'x': 1"},
      {R"({"prompt":"a","logit_bias":{"1":101}})",
       "logit_bias: expected numbers from -100 to 100, found 101"},
      {R"({"prompt":"a","suffix":"b"})", "suffix: not supported"},
      {R"({"prompt":"a","n":2,"best_of":3})",
       "best_of: not supported, unless it is n (2), found 3"},
      {R"({"prompt":"a","stream_options":{}})",
       "stream_options: expected with \"stream\": true only"},
      {R"({"prompt":"a","stream":true,"stream_options":{"x":1}})",
       "stream_options: x: unknown field"},
      {R"({"prompt":"a","stream":true,"stream_options":{"include_obfuscation":true}})",
       "stream_options: include_obfuscation: not supported, unless it is false, found true"},
      {R"({"prompt":"a","service_tier":"flex"})",
       "service_tier: not supported, unless it is \"auto\" or \"default\", found \"flex\""},
      {R"({"prompt":"a","store":true})", "store: not supported, unless it is false, found true"},
      {R"({"prompt":"a","ignore_eos":0})", "ignore_eos: not supported, unless it is false"},
      {R"({"prompt":"a","top_k":18446744073709551615})",
       "top_k: expected a whole number from -1 to 2147483647, found 18446744073709551615"},
      {R"({"prompt":[18446744073709551615]})",
       "prompt: expected a token id at prompt[0], found 18446744073709551615"},
      {R"({"prompt":"a","top_k":-2})", "top_k: expected a whole number from -1 to"},
      {R"({"prompt":"a","n":2.5})", "n: expected a whole number from 1 to 64, found 2.5"},
      {R"({"prompt":"a","max_tokens":1e300})", "max_tokens: expected a whole number from 0"},
      {R"({"prompt":"a","messages":[]})", "messages: unknown field"},
  };
  for (const auto& [body, start] : cases) {
    CompletionsRequest request;
    const RestError error = Parse(body, &request);
    EXPECT_EQ(error.status.code(), absl::StatusCode::kInvalidArgument) << body;
    EXPECT_THAT(std::string(error.status.message()), StartsWith(start));
    EXPECT_EQ(error.param, start.substr(0, start.find(':')));
  }
}

TEST(CompletionsRequestTest, ErrorsOfGenerateNameItsFields) {
  struct Case {
    std::string message, alone, in_list, param;
  };
  for (const Case& one : std::vector<Case>{
           {"prompt: empty, expected", "prompt: empty, expected", "prompt[1]: empty, expected",
            "prompt"},
           {"prompt.text: at least 9 tokens", "prompt: at least 9 tokens",
            "prompt[1]: at least 9 tokens", "prompt"},
           {"prompt.token_ids.values[3]: 9 is", "prompt[3]: 9 is", "prompt[1][3]: 9 is", "prompt"},
           {"max_new_tokens: 9 is out of range, expected 1 to 8 (--max_new_tokens), or 0 for that "
            "many",
            "max_tokens: 9 is out of range, expected 1 to 8 (--max_new_tokens)", "", "max_tokens"},
           {"min_new_tokens: 9 is out of range, expected 0 to 8 (max_new_tokens)",
            "min_tokens: 9 is out of range, expected 0 to 8 (max_tokens)", "", "min_tokens"},
           {"sampling.temperature: expected", "temperature: expected", "", "temperature"},
           {"sampling.logit_bias[7]: expected", "logit_bias[7]: expected", "", "logit_bias"},
           {"stop[1]: 0 bytes", "stop[1]: 0 bytes", "", "stop"},
           {"num_samples: 65 is", "n: 65 is", "", "n"},
           {"top_candidates: 5 is", "logprobs: 5 is", "", "logprobs"},
           {"model: 'trec' has: not", "model: 'trec' has: not", "", "model"},
           {"memory: calls hold", "memory: calls hold", "", ""},
           {"Prompt: a", "Prompt: a", "", ""},
           {"prompt", "prompt", "", ""},
           {"", "", "", ""},
       }) {
    const RestError error(absl::OutOfRangeError(one.message));
    const RestError alone = ErrorOfPrompt(error, std::nullopt);
    EXPECT_EQ(alone.status, absl::OutOfRangeError(one.alone));
    EXPECT_EQ(alone.param, one.param) << one.message;
    EXPECT_EQ(ErrorOfPrompt(error, 1).status,
              absl::OutOfRangeError(one.in_list.empty() ? one.alone : one.in_list));
  }
  EXPECT_FALSE(MustParse(R"({"prompt":"a"})").has_list_of_prompts);
  EXPECT_FALSE(MustParse(R"({"prompt":[1]})").has_list_of_prompts);
  EXPECT_TRUE(MustParse(R"({"prompt":["a"]})").has_list_of_prompts);
}

TEST(CompletionsRequestTest, RefusesWhatIsNotARequest) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "the body is not JSON"},
      {"[]", "expected an object, found a list"},
      {R"({"prompt":"a","prompt":"b"})", "prompt: the key comes twice"},
      {R"({"prompt":"a","prompt":"b","n":1e999})", "prompt: the key comes twice"},
      {R"({"prompt":"a","logit_bias":{"1":1,"1":2}})", "1: the key comes twice"},
      {R"({"prompt":[[[[1]]]]})", "the body is nested too deeply"},
      {std::string(100000, '['), "the body is nested too deeply"},
      {"{\"prompt\":\"\xff\"}", "the body is not JSON"},
  };
  for (const auto& [body, start] : cases) {
    CompletionsRequest request;
    EXPECT_THAT(std::string(Parse(body, &request).status.message()), StartsWith(start))
        << body.substr(0, 100);
  }
}

TEST(CompletionsRequestTest, PromptsAreAsManyAsTheLimitOfSequences) {
  CompletionsRequest request;
  request.max_prompts = 2;
  EXPECT_TRUE(Parse(R"({"prompt":["a","b"]})", &request).status.ok());
  for (const std::string list : {R"(["a","b","c"])", "[[1],[2],[3]]"}) {
    const RestError error = Parse("{\"prompt\":" + list + "}", &request);
    EXPECT_EQ(error.status,
              absl::InvalidArgumentError(
                  "prompt: expected at most 2 prompts (--max_sequences_per_request), found 3"));
    EXPECT_EQ(error.param, "prompt");
  }
  EXPECT_TRUE(Parse(R"({"prompt":[1,2,3]})", &request).status.ok());  // one prompt
}

// What a body costs is linear in its bytes, however many small lists or objects it has.
TEST(CompletionsRequestTest, HostileBodiesTakeLinearTime) {
  const auto seconds = [](const std::string& value, int count) {
    std::string body = "{\"prompt\":[" + value;
    for (int i = 1; i < count; ++i) body += "," + value;
    body += "]}";
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      CompletionsRequest request;
      const std::clock_t begin = std::clock();
      EXPECT_EQ(Parse(body, &request).param, "prompt");
      best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    return best;
  };
  for (const std::string value : {"{}", "[]", "[{}]"}) {
    // Where each one looks at all before it, eight times as many take 64 times as long.
    EXPECT_LT(seconds(value, 32000), 24 * seconds(value, 4000) + 0.01) << value;
  }
}

TEST(CompletionsRequestTest, MemoryIsReserved) {
  calls::ByteBudget budget(1000);
  MemoryHold hold(&budget);
  CompletionsRequest request;
  const RestError error =
      ParseCompletionsRequest("{\"prompt\":\"" + std::string(1000, 'a') + "\"}", &hold, &request);
  EXPECT_EQ(error.status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sru::server::rest
