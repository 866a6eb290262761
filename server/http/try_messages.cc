#include "server/http/try_messages.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/json.h"

namespace sru::server {
namespace {

using nlohmann::json;

constexpr char kGeneratePath[] = "/try/generate";
constexpr int64_t kMaxTimeoutMs = 10000;

constexpr int64_t kMaxGenerateTimeoutMs = 60000;
constexpr int kDefaultNewTokens = 200;
constexpr int64_t kMaxNewTokens = 1000;

constexpr char kAskedForBody[] = R"(expected {"text": "...", "model": "NAME", "version": N})";
constexpr char kAskedForPrompt[] =
    R"(expected {"prompt": "...", "model": "NAME", "version": N, "max_new_tokens": N, )"
    R"("temperature": T, "top_p": P, "seed": N})";

json TimesJson(const v1::StageTimes& times) {
  return {{"tokenize_us", times.tokenize_us()},
          {"queue_us", times.queue_us()},
          {"compute_us", times.compute_us()},
          {"total_us", times.total_us()}};
}

std::string Dump(const json& body) {
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
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
  return path == kGeneratePath ? kAskedForPrompt : kAskedForBody;
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
