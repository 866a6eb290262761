#include "server/rest/completions_request.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"
#include "server/rest/json_body.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

// The most bytes that a tree of values takes for each byte of its text. Lists of empty lists are
// the worst: three bytes of text become a value, the list that it owns and, while the outer list
// grows, a second place for the value.
constexpr int64_t kBytesPerByte = 40;
constexpr size_t kMostDepth = 4;
constexpr int kMostLogprobs = 5;
constexpr int kDefaultMaxTokens = 16;

// What the field must be and what it is, as the error says it.
struct Problem {
  std::string param;
  std::string message;
};

std::string Shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  if (value.is_number() && std::isinf(value.get<double>())) return "a number out of range";
  return Excerpt(JsonText(value));
}

// Builds the tree of a value, until a key comes twice or the nesting is too deep. Each step takes
// constant time, or logarithmic for a key: a hostile body must not cost more than its bytes.
absl::Status BuildTree(JsonReader* reader, size_t depth, json* tree) {  // NOLINT(misc-no-recursion)
  if (depth > kMostDepth) return absl::InvalidArgumentError("the body is nested too deeply");
  using Kind = JsonReader::Kind;
  absl::string_view text;
  std::string scratch;
  bool flag = false;
  switch (reader->Next()) {
    case Kind::kObject:
      *tree = json::object();
      reader->EnterObject();
      while (reader->NextKey(&text)) {
        const auto [place, is_new] = tree->emplace(std::string(text), nullptr);
        if (!is_new) return InvalidArgument(Excerpt(text), ": the key comes twice");
        SRU_RETURN_UNLESS_OK(BuildTree(reader, depth + 1, &*place));
      }
      break;
    case Kind::kArray:
      *tree = json::array();
      reader->EnterArray();
      while (reader->NextElement()) {
        SRU_RETURN_UNLESS_OK(BuildTree(reader, depth + 1, &tree->emplace_back()));
      }
      break;
    case Kind::kString:
      if (reader->ReadString(&scratch, &text)) *tree = std::string(text);
      break;
    case Kind::kNumber:
      if (reader->ReadNumber(&text)) {
        const JsonNumber number = ParseJsonNumber(text);
        *tree = number.as_unsigned.has_value() ? json(*number.as_unsigned)
                : number.as_signed.has_value() ? json(*number.as_signed)
                                               : json(number.real);
      }
      break;
    case Kind::kBool:
      if (reader->ReadBool(&flag)) *tree = flag;
      break;
    default:
      reader->Skip();  // null, or no value
  }
  return absl::OkStatus();
}

absl::Status ParseTree(absl::string_view body, MemoryHold* memory, json* tree) {
  if (!memory->Grow(kBytesPerByte * static_cast<int64_t>(body.size()))) return memory->NoMemory();
  SRU_RETURN_UNLESS_OK(ReadJsonBody(body, JsonErrors::kSyntaxFirst, [tree](JsonReader* reader) {
    return BuildTree(reader, 0, tree);
  }));
  if (tree->is_object()) return absl::OkStatus();
  return InvalidArgument("expected an object, found ", Shown(*tree));
}

// The fields of the object, one after the other; each function takes what it knows. The first
// problem counts.
class FieldReader {
 public:
  explicit FieldReader(const json& object) : object_(object) {}

  const std::optional<Problem>& problem() const { return problem_; }
  void Fail(const std::string& name, const std::string& message) {
    if (!problem_.has_value()) problem_ = Problem{name, absl::StrCat(name, ": ", message)};
  }

  void Wrong(const std::string& name, absl::string_view expected, const json& found) {
    Fail(name, absl::StrCat("expected ", expected, ", found ", Shown(found)));
  }

  // Null if the field is left out.
  const json* Take(const std::string& name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t Integer(const std::string& name, int64_t fallback, int64_t least, int64_t most) {
    const json* const value = Take(name);
    if (value == nullptr) return fallback;
    const bool is_small =
        value->is_number_integer() &&
        (!value->is_number_unsigned() ||
         value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!is_small || value->get<int64_t>() < least || value->get<int64_t>() > most) {
      Wrong(name, absl::StrCat("a whole number from ", least, " to ", most), *value);
      return fallback;
    }
    return value->get<int64_t>();
  }
  float Number(const std::string& name, double fallback, double least, double most) {
    const json* const value = Take(name);
    if (value == nullptr) return static_cast<float>(fallback);
    if (!value->is_number() || !(value->get<double>() >= least) ||
        !(value->get<double>() <= most)) {
      Wrong(name, absl::StrCat("a number from ", least, " to ", most), *value);
      return static_cast<float>(fallback);
    }
    return static_cast<float>(value->get<double>());
  }
  bool Boolean(const std::string& name) {
    const json* const value = Take(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) Wrong(name, "true or false", *value);
    return value->is_boolean() && value->get<bool>();
  }
  std::string String(const std::string& name) {
    const json* const value = Take(name);
    if (value == nullptr) return "";
    if (!value->is_string()) Wrong(name, "a string", *value);
    return value->is_string() ? value->get<std::string>() : "";
  }

  // After all fields have been taken.
  void RefuseOthers() {
    for (const auto& item : object_.items()) {
      if (known_.count(item.key()) == 0) {
        return Fail(Excerpt(item.key()),
                    "unknown field; docs/rest.md has those that are supported");
      }
    }
  }

 private:
  const json& object_;
  std::set<std::string> known_;
  std::optional<Problem> problem_;
};

bool IsTokenId(const json& value) {
  return value.is_number_integer() && value <= std::numeric_limits<int32_t>::max() &&
         value >= std::numeric_limits<int32_t>::min();
}

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
  if (value->size() > kMostPrompts) {
    return fields->Fail("prompt", absl::StrCat("expected at most ", kMostPrompts,
                                               " prompts, found ", value->size()));
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
  if (!value->is_number_integer()) {
    return fields->Wrong("seed", "a whole number", *value);
  }
  sampling->set_seed(value->get<uint64_t>());
}

// Refuses an option that is not supported, unless its value asks for nothing.
void RefuseUnless(FieldReader* fields, const std::string& name,
                  std::initializer_list<json> nothing) {
  const json* const value = fields->Take(name);
  if (value == nullptr || std::find(nothing.begin(), nothing.end(), *value) != nothing.end())
    return;
  fields->Fail(name, absl::StrCat("not supported, unless it is ",
                                  absl::StrJoin(nothing, " or ",
                                                [](std::string* out, const json& one) {
                                                  out->append(Shown(one));
                                                }),
                                  ", found ", Shown(*value)));
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
  RefuseUnless(&options, "include_obfuscation", {false});
  RefuseUnless(&options, "continuous_usage_stats", {false});
  options.RefuseOthers();
  if (options.problem().has_value()) fields->Fail("stream_options", options.problem()->message);
}

// The fields of GenerateRequest that have another name here. Those of `sampling` have the name that
// they have there.
constexpr std::pair<absl::string_view, absl::string_view> kOtherNames[] = {
    {"max_new_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"num_samples", "n"},
    {"top_candidates", "logprobs"},
};
// GenerateRequest takes 0 for its default, which this API does not.
constexpr absl::string_view kZeroForDefault = ", or 0 for that many";

// What is known of, and not supported.
void RefuseOptions(FieldReader* fields, int64_t n) {
  RefuseUnless(fields, "suffix", {""});  // these models write forward only
  RefuseUnless(fields, "service_tier", {"auto", "default"});
  for (const char* const name : {"store", "ignore_eos", "use_beam_search"}) {
    RefuseUnless(fields, name, {false});
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
  if (absl::Status status = ParseTree(body, memory, &tree); !status.ok()) return {status};
  FieldReader fields(tree);
  v1::GenerateRequest& generate = request->generate;
  v1::Sampling& sampling = *generate.mutable_sampling();
  generate.set_model(fields.String("model"));
  ReadPrompts(&fields, request);
  const int64_t most = std::numeric_limits<int32_t>::max();
  request->echo = fields.Boolean("echo");
  generate.set_echo(request->echo);
  const int64_t max_tokens = fields.Integer("max_tokens", kDefaultMaxTokens, 0, most);
  request->score_only = max_tokens == 0;
  if (request->score_only && !request->echo)
    fields.Fail("max_tokens", "expected more than 0, or \"echo\": true");
  generate.set_max_new_tokens(static_cast<int32_t>(request->score_only ? 1 : max_tokens));
  generate.set_min_new_tokens(static_cast<int32_t>(fields.Integer("min_tokens", 0, 0, most)));
  const int64_t n = fields.Integer("n", 1, 1, 64);
  generate.set_num_samples(static_cast<int32_t>(n));
  sampling.set_temperature(fields.Number("temperature", 1, 0, 100));
  sampling.set_top_p(fields.Number("top_p", 0, 0, 1));
  // OpenAI's 0 leaves only the most probable token; in Sampling it means off.
  if (fields.Take("top_p") != nullptr && sampling.top_p() == 0) sampling.set_temperature(0);
  sampling.set_top_k(std::max(static_cast<int32_t>(fields.Integer("top_k", 0, -1, most)), 0));
  sampling.set_min_p(fields.Number("min_p", 0, 0, 1));
  sampling.set_repetition_penalty(fields.Number("repetition_penalty", 0, 0.01, 100));
  sampling.set_presence_penalty(fields.Number("presence_penalty", 0, -100, 100));
  sampling.set_frequency_penalty(fields.Number("frequency_penalty", 0, -100, 100));
  ReadLogitBias(&fields, &sampling);
  ReadSeed(&fields, &sampling);
  ReadStops(&fields, &generate);
  ReadStopTokens(&fields, &generate);
  if (fields.Take("logprobs") != nullptr) {
    request->logprobs = static_cast<int>(fields.Integer("logprobs", 0, 0, kMostLogprobs));
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
  RefuseOptions(&fields, n);
  // These say who asks, and how to find the answer again. The answer does not depend on them.
  for (const char* const name : {"user", "metadata", "safety_identifier", "prompt_cache_key"}) {
    static_cast<void>(fields.Take(name));
  }
  fields.RefuseOthers();
  if (!fields.problem().has_value()) return {};
  RestError error(absl::InvalidArgumentError(fields.problem()->message));
  error.param = fields.problem()->param;
  return error;
}

RestError ErrorOfPrompt(RestError error, std::optional<size_t> index) {
  const absl::string_view message = error.status.message();
  const absl::string_view path = message.substr(0, message.find(": "));
  absl::string_view field = path;
  absl::ConsumePrefix(&field, "sampling.");
  field = field.substr(0, field.find_first_of(".["));
  const bool is_path = path.size() < message.size() && !field.empty() &&
                       std::all_of(field.begin(), field.end(),
                                   [](char c) { return absl::ascii_islower(c) || c == '_'; });
  const google::protobuf::Descriptor& sampling = *v1::Sampling::descriptor();
  const bool is_known = v1::GenerateRequest::descriptor()->FindFieldByName(std::string(field)) ||
                        sampling.FindFieldByName(std::string(field));
  if (!is_path || !is_known) return error;
  error.param = std::string(field);
  for (const auto& [name, other] : kOtherNames) {
    if (field == name) error.param = std::string(other);
  }
  std::string what(message.substr(path.size()));
  for (const auto& [name, other] : kOtherNames) {
    const std::string mention = absl::StrCat("(", name, ")");
    what = absl::StrReplaceAll(what, {{mention, absl::StrCat("(", other, ")")}});
  }
  what = absl::StrReplaceAll(what, {{kZeroForDefault, ""}});
  // A token of a prompt and a stop string stand in a list here, too.
  const size_t bracket = path.find('[');
  const absl::string_view place =
      bracket == absl::string_view::npos ? absl::string_view() : path.substr(bracket);
  std::string prompt;
  if (field == "prompt" && index.has_value()) prompt = absl::StrCat("[", *index, "]");
  error.status = absl::Status(error.status.code(), absl::StrCat(error.param, prompt, place, what));
  return error;
}

}  // namespace sru::server::rest
