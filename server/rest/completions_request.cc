#include "server/rest/completions_request.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"
#include "server/base/advice.h"
#include "server/rest/error_response.h"
#include "server/rest/field_reader.h"
#include "server/rest/json_reader.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

// False, with a problem, if the list has anything but ids.
bool ReadTokenIds(const json& list, const std::string& name, v1::Sequence* prompt,
                  FieldReader* fields) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (!IsTokenId(list[i])) {
      fields->Wrong("prompt", absl::StrCat("a token id at ", name, "[", i, "]"), list[i]);
      return false;
    }
    prompt->mutable_token_ids()->add_values(list[i].get<int32_t>());
  }
  return true;
}

void ReadPrompts(FieldReader* fields, CompletionsRequest* request) {
  std::vector<v1::Sequence>* const prompts = &request->prompts;
  const json* const value = fields->Take("prompt");
  if (value == nullptr) {
    return fields->Fail(
        "prompt",
        "expected a string, a list of strings, a list of token ids or a list of such lists");
  }
  if (value->is_string()) {
    prompts->emplace_back().set_text(value->get<std::string>());
    return;
  }
  if (!value->is_array() || value->empty()) {
    return fields->Fail("prompt",
                        absl::StrCat("expected a string or a list that is not empty, found ",
                                     value->is_array() ? "an empty list" : Shown(*value)));
  }
  if (value->front().is_number()) {
    ReadTokenIds(*value, "prompt", &prompts->emplace_back(), fields);
    return;
  }
  if (value->size() > static_cast<size_t>(request->max_prompts)) {
    return fields->Fail(
        "prompt", absl::StrCat("expected at most ", request->max_prompts,
                               " prompts (--max_sequences_per_request), found ", value->size()));
  }
  request->has_list_of_prompts = true;
  for (size_t i = 0; i < value->size(); ++i) {
    const json& prompt = (*value)[i];
    v1::Sequence& sequence = prompts->emplace_back();
    if (prompt.is_string()) {
      sequence.set_text(prompt.get<std::string>());
    } else if (!prompt.is_array()) {
      return fields->Wrong(
          "prompt", absl::StrCat("a string or a list of token ids at prompt[", i, "]"), prompt);
    } else if (!ReadTokenIds(prompt, absl::StrCat("prompt[", i, "]"), &sequence, fields)) {
      return;
    }
  }
}

void ReadStops(FieldReader* fields, v1::GenerateRequest* generate) {
  const json* const value = fields->Take("stop");
  if (value == nullptr) return;
  if (value->is_string()) return generate->add_stop(value->get<std::string>());
  const char* const expected = "a string or a list of strings";
  if (!value->is_array()) return fields->Wrong("stop", expected, *value);
  for (const json& stop : *value) {
    if (!stop.is_string()) {
      return fields->Fail(
          "stop", absl::StrCat("expected ", expected, ", found ", Shown(stop), " in the list"));
    }
    generate->add_stop(stop.get<std::string>());
  }
}

void ReadStopTokens(FieldReader* fields, v1::GenerateRequest* generate) {
  const json* const value = fields->Take("stop_token_ids");
  if (value == nullptr) return;
  if (!value->is_array()) return fields->Wrong("stop_token_ids", "a list", *value);
  for (const json& id : *value) {
    if (!IsTokenId(id)) return fields->Wrong("stop_token_ids", "token ids", id);
    generate->add_stop_token_ids(id.get<int32_t>());
  }
}

void ReadLogitBias(FieldReader* fields, v1::Sampling* sampling) {
  const json* const value = fields->Take("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) {
    return fields->Wrong("logit_bias", "an object from token ids to numbers", *value);
  }
  for (const auto& item : value->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(item.key(), &id) || !item.value().is_number()) {
      return fields->Fail(
          "logit_bias", absl::StrCat("expected token ids and numbers, found '", Excerpt(item.key()),
                                     "': ", Shown(item.value())));
    }
    const auto bias = item.value().get<double>();
    if (!(std::abs(bias) <= 100)) {
      return fields->Wrong("logit_bias", "numbers from -100 to 100", item.value());
    }
    (*sampling->mutable_logit_bias())[id] = static_cast<float>(bias);
  }
}

void ReadSeed(FieldReader* fields, v1::Sampling* sampling) {
  const json* const value = fields->Take("seed");
  if (value == nullptr) return;
  if (!value->is_number_integer()) return fields->Wrong("seed", "a whole number", *value);
  sampling->set_seed(value->get<uint64_t>());
}

void ReadStream(FieldReader* fields, CompletionsRequest* request) {
  request->stream = fields->Boolean("stream");
  const json* const value = fields->Take("stream_options");
  if (value == nullptr) return;
  if (!value->is_object() || !request->stream) {
    return fields->Fail("stream_options",
                        request->stream ? absl::StrCat("expected an object, found ", Shown(*value))
                                        : "expected with \"stream\": true only");
  }
  FieldReader options(*value);
  request->include_usage = options.Boolean("include_usage");
  options.RefuseUnless("include_obfuscation", {false});
  options.RefuseUnless("continuous_usage_stats", {false});
  const RestError error = options.End();
  if (!error.status.ok()) fields->Fail("stream_options", std::string(error.status.message()));
}

// The fields of GenerateRequest that have another name here. Those of `sampling` have the name that
// they have there.
constexpr std::pair<absl::string_view, absl::string_view> kOtherNames[] = {
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"num_samples", "n"},
    {"top_candidates", "logprobs"},
};
// What is known of, and not supported.
void RefuseOptions(FieldReader* fields, int n) {
  fields->RefuseUnless("suffix", {""});  // these models write forward only
  fields->RefuseUnless("service_tier", {"auto", "default"});
  for (const char* const name : {"store", "ignore_eos", "use_beam_search"}) {
    fields->RefuseUnless(name, {false});
  }
  const json* const best_of = fields->Take("best_of");
  if (best_of != nullptr && *best_of != n) {
    fields->Fail("best_of",
                 absl::StrCat("not supported, unless it is n (", n, "), found ", Shown(*best_of)));
  }
}

}  // namespace

RestError ParseCompletionsRequest(absl::string_view body, MemoryHold* memory,
                                  CompletionsRequest* request) {
  json tree;
  SRU_RETURN_UNLESS_OK(ParseTree(body, memory, &tree));
  FieldReader fields(tree);
  v1::GenerateRequest& generate = request->generate;
  v1::Sampling& sampling = *generate.mutable_sampling();
  generate.set_model(fields.String("model"));
  ReadPrompts(&fields, request);
  request->echo = fields.Boolean("echo");
  generate.set_echo(request->echo);
  const int max_tokens = fields.Integer("max_tokens", 16, 0);
  request->score_only = max_tokens == 0;
  if (request->score_only && !request->echo)
    fields.Fail("max_tokens", "expected more than 0, or \"echo\": true");
  generate.set_max_new_tokens(request->score_only ? 1 : max_tokens);
  generate.set_min_new_tokens(fields.Integer("min_tokens", 0, 0));
  generate.set_num_samples(fields.Integer("n", 1, 1, 64));
  sampling.set_temperature(fields.Number("temperature", 1, 0, 100));
  sampling.set_top_p(fields.Number("top_p", 0, 0, 1));
  // OpenAI's 0 leaves only the most probable token; in Sampling it means off.
  if (fields.Take("top_p") != nullptr && sampling.top_p() == 0) sampling.set_temperature(0);
  sampling.set_top_k(std::max(fields.Integer("top_k", 0, -1), 0));
  sampling.set_min_p(fields.Number("min_p", 0, 0, 1));
  sampling.set_repetition_penalty(fields.Number("repetition_penalty", 0, 0.01, 100));
  sampling.set_presence_penalty(fields.Number("presence_penalty", 0, -100, 100));
  sampling.set_frequency_penalty(fields.Number("frequency_penalty", 0, -100, 100));
  ReadLogitBias(&fields, &sampling);
  ReadSeed(&fields, &sampling);
  ReadStops(&fields, &generate);
  ReadStopTokens(&fields, &generate);
  if (fields.Take("logprobs") != nullptr) {
    request->logprobs = fields.Integer("logprobs", 0, 0, 5);
    generate.set_token_log_probs(true);
    generate.set_token_texts(true);
    generate.set_top_candidates(*request->logprobs);
  }
  if (request->score_only) {
    // Which text the last token has must be known in order to leave it out, and it must not be left
    // out already.
    generate.set_token_texts(true);
    generate.clear_stop();
    generate.clear_stop_token_ids();
  }
  ReadStream(&fields, request);
  RefuseOptions(&fields, generate.num_samples());
  // These say who asks, and how to find the answer again. The answer does not depend on them.
  for (const char* const name : {"user", "metadata", "safety_identifier", "prompt_cache_key"}) {
    static_cast<void>(fields.Take(name));
  }
  return fields.End();
}

RestError ErrorOfPrompt(RestError error, std::optional<size_t> index) {
  error.status = WithAdvice(error.status, "send a shorter prompt");
  const absl::string_view message = error.status.message();
  const absl::string_view path = message.substr(0, message.find(": "));
  absl::string_view field = path;
  absl::ConsumePrefix(&field, "sampling.");
  field = field.substr(0, field.find_first_of(".["));
  const bool is_known =
      path.size() < message.size() &&
      (v1::GenerateRequest::descriptor()->FindFieldByName(std::string(field)) != nullptr ||
       v1::Sampling::descriptor()->FindFieldByName(std::string(field)) != nullptr);
  if (!is_known) return error;
  error.param = std::string(field);
  // GenerateRequest takes 0 for its default, which this API does not.
  std::vector<std::pair<std::string, std::string>> words = {{", or 0 for that many", ""}};
  for (const auto& [name, other] : kOtherNames) {
    if (field == name) error.param = std::string(other);
    words.emplace_back(absl::StrCat("(", name, ")"), absl::StrCat("(", other, ")"));
  }
  const std::string what = absl::StrReplaceAll(message.substr(path.size()), words);
  // A token of a prompt and a stop string stand in a list here, too.
  const absl::string_view place = path.substr(std::min(path.find('['), path.size()));
  const std::string prompt =
      field == "prompt" && index.has_value() ? absl::StrCat("[", *index, "]") : "";
  error.status = absl::Status(error.status.code(), absl::StrCat(error.param, prompt, place, what));
  return error;
}

}  // namespace sru::server::rest
