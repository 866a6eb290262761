#include "server/open_inference/tensors/infer_form.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sru::server::open_inference {
namespace {

// Takes "[3]" from the beginning of `text`; empty if it does not begin so.
absl::string_view TakeIndex(absl::string_view* text) {
  if (!absl::StartsWith(*text, "[")) return {};
  const size_t end = text->find(']');
  if (end == absl::string_view::npos) return {};
  const absl::string_view index = text->substr(1, end - 1);
  text->remove_prefix(end + 1);
  return index;
}

// "input token_ids[3, 7]: 9000 is out of range" of sequences[3].token_ids.values[7]: 9000 is out of range
std::string ExplainSequence(absl::string_view message, absl::string_view values) {
  absl::string_view rest = message;
  absl::ConsumePrefix(&rest, "sequences");
  const absl::string_view sequence = TakeIndex(&rest);
  if (sequence.empty()) return absl::StrCat("input ", values, rest);
  const size_t colon = rest.find(": ");
  if (colon == absl::string_view::npos) return std::string(message);
  absl::string_view path = rest.substr(0, colon);
  const size_t bracket = path.find('[');
  absl::string_view token;
  if (bracket != absl::string_view::npos) {
    path.remove_prefix(bracket);
    token = TakeIndex(&path);
  }
  return absl::StrCat("input ", values, "[", sequence, token.empty() ? "" : ", ", token, "]",
                      rest.substr(colon));
}

// "input passage[3]: only white space" of queries[3].passages[0]: only white space
std::string ExplainQuery(absl::string_view message) {
  absl::string_view rest = message;
  absl::ConsumePrefix(&rest, "queries");
  const absl::string_view query = TakeIndex(&rest);
  if (query.empty()) return absl::StrCat("input question", rest);
  if (absl::ConsumePrefix(&rest, ".question:")) {
    return absl::StrCat("input question[", query, "]:", rest);
  }
  if (absl::ConsumePrefix(&rest, ".passages[0]:")) {
    return absl::StrCat("input passage[", query, "]:", rest);
  }
  // The tags and lemmas, which the protocol has no tensors for.
  return absl::StrCat("model: the reader needs tags of tokens, which ",
                      "sru.v1.InferenceService/Answer takes: ", rest.substr(1));
}

}  // namespace

absl::Status ExplainField(const absl::Status& status, absl::string_view values) {
  if (!absl::IsInvalidArgument(status)) return status;
  const absl::string_view message = status.message();
  // Its own errors name tensors and fields of the protocol. The others are of sru.v1, whose fields the
  // parameters are named after.
  for (const absl::string_view own :
       {"input ", "inputs", "outputs", "parameters", "raw_input_contents", "message", "model"}) {
    if (absl::StartsWith(message, own)) return status;
  }
  std::string explained;
  if (absl::StartsWith(message, "sequences")) {
    explained = ExplainSequence(message, values);
  } else if (absl::StartsWith(message, "queries")) {
    explained = ExplainQuery(message);
  } else {
    const size_t colon = message.find(": ");
    if (colon == absl::string_view::npos) return status;
    explained = absl::StrCat("parameters[", message.substr(0, colon), "]", message.substr(colon));
  }
  return absl::InvalidArgumentError(explained);
}

}  // namespace sru::server::open_inference
