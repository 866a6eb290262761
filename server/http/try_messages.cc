#include "server/http/try_messages.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/json.h"

namespace sru::server {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTimeoutMs = 10000;

constexpr int64_t kMaxGenerateTimeoutMs = 60000;
constexpr int kDefaultNewTokens = 200;
constexpr int64_t kMaxNewTokens = 1000;

constexpr int kDefaultAnswers = 3;
constexpr int64_t kMaxAnswers = 10;

constexpr int64_t kMaxTranslateTimeoutMs = 60000;
constexpr int64_t kMaxBeamSize = 64;
constexpr int64_t kMaxHypotheses = 10;
// A larger alignment is left out of an answer: nobody could see it.
constexpr int kMaxAlignmentValues = 20000;

constexpr char kAskedForBody[] = R"(expected {"text": "...", "model": "NAME", "version": N})";
constexpr char kAskedForPrompt[] =
    R"(expected {"prompt": "...", "model": "NAME", "version": N, "max_new_tokens": N, )"
    R"("temperature": T, "top_p": P, "seed": N})";
constexpr char kAskedForQuestion[] =
    R"(expected {"question": "...", "passage": "...", "model": "NAME", "version": N, "top_n": N})";
constexpr char kAskedForTranslation[] =
    R"(expected {"text": "...", "model": "NAME", "version": N, "beam_size": N, )"
    R"("num_hypotheses": N})";

json TimesJson(const v1::StageTimes& times) {
  return {{"tokenize_us", times.tokenize_us()},
          {"queue_us", times.queue_us()},
          {"compute_us", times.compute_us()},
          {"total_us", times.total_us()}};
}

std::string Dump(const json& body) {
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

// [tokens][source tokens], in thousandths, which is what a shade can show; empty if there is none.
json AlignmentJson(const v1::Hypothesis& hypothesis, int source_tokens) {
  json rows = json::array();
  const int values = hypothesis.alignment_size();
  if (source_tokens == 0 || values % source_tokens != 0 || values > kMaxAlignmentValues) {
    return rows;
  }
  for (int begin = 0; begin < values; begin += source_tokens) {
    json row = json::array();
    for (int s = 0; s < source_tokens; ++s) {
      row.push_back(std::lround(1000 * hypothesis.alignment(begin + s)));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// nullopt for a text that is no integer or too large.
std::optional<int64_t> IntegerOf(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

absl::Status WrongType(absl::string_view key, absl::string_view expected, const json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected ", expected, ", found ", models::JsonExcerpt(found)));
}

absl::Status UnknownKey(absl::string_view key, absl::string_view asked_for) {
  return absl::InvalidArgumentError(absl::StrCat("body: there is no key ",
                                                 models::Quoted({key.data(), key.size()}), ", ",
                                                 asked_for, " and perhaps \"timeout_ms\""));
}

absl::StatusOr<json> ParseBody(absl::string_view body, absl::string_view asked_for) {
  absl::StatusOr<json> object =
      models::ParseJsonObject({body.data(), body.size()}, {/*max_depth=*/4}, "body");
  if (object.ok()) return object;
  return absl::InvalidArgumentError(absl::StrCat(object.status().message(), "; ", asked_for));
}

// Reads an integer from `low` to `high`.
absl::StatusOr<int32_t> ReadInteger(const std::string& key, const json& value, int64_t low,
                                    int64_t high) {
  const std::optional<int64_t> number = IntegerOf(value);
  if (!number.has_value() || *number < low || *number > high) {
    return WrongType(key, absl::StrCat(low, " to ", high), value);
  }
  return static_cast<int32_t>(*number);
}

// Reads the keys that all requests have; false if `key` is none of them.
template <typename Request>
absl::StatusOr<bool> ReadCommonKey(const std::string& key, const json& value,
                                   int64_t max_timeout_ms, Request* request,
                                   absl::Duration* timeout) {
  if (key == "model") {
    if (!value.is_string()) return WrongType(key, "a string", value);
    request->set_model(value.get<std::string>());
  } else if (key == "version") {
    const std::optional<int64_t> version = IntegerOf(value);
    if (!version.has_value()) {
      return WrongType(key, "a version number, or 0 for the latest", value);
    }
    request->set_version(*version);
  } else if (key == "timeout_ms") {
    const std::optional<int64_t> timeout_ms = IntegerOf(value);
    if (!timeout_ms.has_value() || *timeout_ms < 1 || *timeout_ms > max_timeout_ms) {
      return WrongType(key, absl::StrCat("1 to ", max_timeout_ms), value);
    }
    *timeout = absl::Milliseconds(*timeout_ms);
  } else {
    return false;
  }
  return true;
}

}  // namespace

const char* TryBodyAt(absl::string_view path) {
  if (path == kTryGeneratePath) return kAskedForPrompt;
  if (path == kTryAnswerPath) return kAskedForQuestion;
  if (path == kTryTranslatePath) return kAskedForTranslation;
  return kAskedForBody;
}

absl::StatusOr<TryRequest> ParseTryRequest(absl::string_view body) {
  absl::StatusOr<json> object = ParseBody(body, kAskedForBody);
  if (!object.ok()) return object.status();
  TryRequest request;
  bool has_text = false;
  for (const auto& [key, value] : object->items()) {
    if (key == "text") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      request.classify.add_sequences()->set_text(value.get<std::string>());
      has_text = true;
      continue;
    }
    absl::StatusOr<bool> common =
        ReadCommonKey(key, value, kMaxTimeoutMs, &request.classify, &request.timeout);
    if (!common.ok()) return common.status();
    if (!*common) return UnknownKey(key, kAskedForBody);
  }
  if (!has_text) {
    return absl::InvalidArgumentError(absl::StrCat("text: is missing, ", kAskedForBody));
  }
  return request;
}

absl::StatusOr<TryGenerateRequest> ParseTryGenerateRequest(absl::string_view body) {
  absl::StatusOr<json> object = ParseBody(body, kAskedForPrompt);
  if (!object.ok()) return object.status();
  TryGenerateRequest request;
  v1::GenerateRequest& generate = request.generate;
  generate.set_max_new_tokens(kDefaultNewTokens);
  for (const auto& [key, value] : object->items()) {
    if (key == "prompt") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      generate.mutable_prompt()->set_text(value.get<std::string>());
    } else if (key == "max_new_tokens") {
      const std::optional<int64_t> tokens = IntegerOf(value);
      if (!tokens.has_value() || *tokens < 1 || *tokens > kMaxNewTokens) {
        return WrongType(key, absl::StrCat("1 to ", kMaxNewTokens), value);
      }
      generate.set_max_new_tokens(static_cast<int32_t>(*tokens));
    } else if (key == "temperature" || key == "top_p") {
      // The call checks the range.
      if (!value.is_number()) return WrongType(key, "a number", value);
      if (key == "top_p") {
        generate.mutable_sampling()->set_top_p(value.get<float>());
      } else {
        generate.mutable_sampling()->set_temperature(value.get<float>());
      }
    } else if (key == "seed") {
      if (!value.is_number_unsigned()) return WrongType(key, "a number from 0 to 2^64 - 1", value);
      generate.mutable_sampling()->set_seed(value.get<uint64_t>());
    } else {
      absl::StatusOr<bool> common =
          ReadCommonKey(key, value, kMaxGenerateTimeoutMs, &generate, &request.timeout);
      if (!common.ok()) return common.status();
      if (!*common) return UnknownKey(key, kAskedForPrompt);
    }
  }
  if (!generate.has_prompt()) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: is missing, ", kAskedForPrompt));
  }
  return request;
}

absl::StatusOr<TryAnswerRequest> ParseTryAnswerRequest(absl::string_view body) {
  absl::StatusOr<json> object = ParseBody(body, kAskedForQuestion);
  if (!object.ok()) return object.status();
  TryAnswerRequest request;
  request.answer.set_top_n(kDefaultAnswers);
  // Three spans that differ by a word would tell a reader little.
  request.answer.set_no_overlap(true);
  v1::Query* query = request.answer.add_queries();
  bool has_question = false;
  for (const auto& [key, value] : object->items()) {
    if (key == "question" || key == "passage") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      has_question = has_question || key == "question";
      if (key == "question") {
        query->set_question(value.get<std::string>());
      } else {
        query->add_passages(value.get<std::string>());
      }
    } else if (key == "top_n") {
      absl::StatusOr<int32_t> top_n = ReadInteger(key, value, 1, kMaxAnswers);
      if (!top_n.ok()) return top_n.status();
      request.answer.set_top_n(*top_n);
    } else {
      absl::StatusOr<bool> common =
          ReadCommonKey(key, value, kMaxTimeoutMs, &request.answer, &request.timeout);
      if (!common.ok()) return common.status();
      if (!*common) return UnknownKey(key, kAskedForQuestion);
    }
  }
  if (!has_question || query->passages_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(has_question ? "passage" : "question", ": is missing, ", kAskedForQuestion));
  }
  return request;
}

absl::StatusOr<TryTranslateRequest> ParseTryTranslateRequest(absl::string_view body) {
  absl::StatusOr<json> object = ParseBody(body, kAskedForTranslation);
  if (!object.ok()) return object.status();
  TryTranslateRequest request;
  v1::TranslateRequest& translate = request.translate;
  translate.set_return_alignment(true);
  for (const auto& [key, value] : object->items()) {
    if (key == "text") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      translate.add_sequences()->set_text(value.get<std::string>());
    } else if (key == "beam_size" || key == "num_hypotheses") {
      const bool is_beam = key == "beam_size";
      absl::StatusOr<int32_t> number =
          ReadInteger(key, value, is_beam ? 0 : 1, is_beam ? kMaxBeamSize : kMaxHypotheses);
      if (!number.ok()) return number.status();
      if (is_beam) {
        translate.set_beam_size(*number);
      } else {
        translate.set_num_hypotheses(*number);
      }
    } else {
      absl::StatusOr<bool> common =
          ReadCommonKey(key, value, kMaxTranslateTimeoutMs, &translate, &request.timeout);
      if (!common.ok()) return common.status();
      if (!*common) return UnknownKey(key, kAskedForTranslation);
    }
  }
  if (translate.sequences_size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("text: is missing, ", kAskedForTranslation));
  }
  return request;
}

std::string ClassifyBody(const v1::ClassifyResponse& response) {
  json labels = json::array();
  json body = {{"model", response.model()}, {"version", response.version()}};
  if (response.classifications_size() > 0) {
    const v1::Classification& classification = response.classifications(0);
    for (const v1::Label& label : classification.labels()) {
      labels.push_back(
          {{"name", label.name()}, {"probability", label.probability()}, {"logit", label.logit()}});
    }
    body["token_count"] = classification.token_count();
    body["truncated"] = classification.truncated();
  }
  body["labels"] = std::move(labels);
  body["times"] = TimesJson(response.times());
  return Dump(body);
}

std::string AnswerBody(const v1::AnswerResponse& response) {
  json answers = json::array();
  json body = {{"model", response.model()}, {"version", response.version()}};
  if (response.results_size() > 0) {
    const v1::QueryAnswers& result = response.results(0);
    for (const v1::SpanAnswer& answer : result.answers()) {
      answers.push_back({{"text", answer.text()},
                         {"start_char", answer.start_char()},
                         {"end_char", answer.end_char()},
                         {"log_score", answer.log_score()},
                         {"probability", answer.probability()}});
    }
    body["token_count"] = result.token_count();
  }
  body["answers"] = std::move(answers);
  body["times"] = TimesJson(response.times());
  return Dump(body);
}

std::string TranslateBody(const v1::TranslateResponse& response) {
  json hypotheses = json::array();
  json body = {{"model", response.model()}, {"version", response.version()}};
  if (response.translations_size() > 0) {
    const v1::Translation& translation = response.translations(0);
    for (const v1::Hypothesis& hypothesis : translation.hypotheses()) {
      json one = {{"text", hypothesis.text()},
                  {"score", hypothesis.score()},
                  {"log_prob", hypothesis.log_prob()},
                  {"unfinished", hypothesis.unfinished()}};
      one["tokens"] =
          std::vector<std::string>(hypothesis.tokens().begin(), hypothesis.tokens().end());
      one["alignment"] = AlignmentJson(hypothesis, translation.token_count());
      hypotheses.push_back(std::move(one));
    }
    body["token_count"] = translation.token_count();
    body["truncated"] = translation.truncated();
    body["source_tokens"] = std::vector<std::string>(translation.source_tokens().begin(),
                                                     translation.source_tokens().end());
  }
  body["hypotheses"] = std::move(hypotheses);
  body["times"] = TimesJson(response.times());
  return Dump(body);
}

std::string GenerateBody(const v1::GenerateResponse& response) {
  json body = json::object();
  if (!response.text().empty()) body["text"] = response.text();
  if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
    body["finish_reason"] = response.finish_reason() == v1::FINISH_REASON_STOP ? "stop" : "length";
    body["model"] = response.model();
    body["version"] = response.version();
    body["prompt_tokens"] = response.prompt_tokens();
    body["generated_tokens"] = response.generated_tokens();
    body["times"] = TimesJson(response.times());
  }
  if (body.empty()) return "";
  return Dump(body);
}

}  // namespace sru::server
