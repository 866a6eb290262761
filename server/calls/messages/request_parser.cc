#include "server/calls/messages/request_parser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/interruption.h"
#include "server/calls/bounds/request_errors.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/bounds/wire_check.h"
#include "server/calls/message_cord.h"

namespace sru::server::calls {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "features are little-endian on the wire");

// Parses one sequence of a request: entry `index` of the list `name`, or the field `name` itself.
// Its path is made only for an error.
class SequenceParser {
 public:
  SequenceParser(absl::string_view name, int index, bool truncate, const ModelInput& input,
                 const RequestLimits& limits)
      : name_(name), index_(index), truncate_(truncate), input_(input), limits_(limits) {}

  absl::Status Parse(const v1::Sequence& sequence, TokenTask* task, TokenCounts* counts) const {
    absl::Status status = ParseForm(sequence, task, counts);
    counts->computed = task->num_tokens;
    return status;
  }

  static constexpr int kNoIndex = -1;

 private:
  absl::Status ParseForm(const v1::Sequence& sequence, TokenTask* task, TokenCounts* counts) const {
    switch (sequence.input_case()) {
      case v1::Sequence::kText:
        return ParseText(sequence.text(), task, counts);
      case v1::Sequence::kTokens:
        return ParseTokens(sequence.tokens(), task, counts);
      case v1::Sequence::kTokenIds:
        return ParseTokenIds(sequence.token_ids(), task, counts);
      case v1::Sequence::kFeatures:
        return ParseFeatures(sequence.features(), task, counts);
      case v1::Sequence::INPUT_NOT_SET:
        break;
    }
    return Error("", "empty sequence, expected one of text, tokens, token_ids, features");
  }

  template <typename... Args>
  absl::Status Error(absl::string_view field, const Args&... what) const {
    if (index_ == kNoIndex) {
      return InvalidArgument(name_, field, ": ", what...);
    }
    return InvalidArgument(name_, "[", index_, "]", field, ": ", what...);
  }

  // Checks the length of a sequence with `found` tokens and returns how many of them to compute.
  absl::StatusOr<int> CheckLength(absl::string_view field, int64_t found,
                                  absl::string_view at_least, TokenCounts* counts) const {
    if (found <= MaxTokens()) return static_cast<int>(found);
    if (!truncate_) {
      const bool is_flag = MaxTokens() == limits_.max_sequence_tokens;
      return Error(field, at_least, found, " tokens are too many, expected at most ", MaxTokens(),
                   " (", is_flag ? "--max_sequence_tokens" : input_.max_tokens_name, "); ",
                   index_ == kNoIndex ? "send less at a time" : input_.too_long_advice);
    }
    counts->truncated = true;
    return MaxTokens();
  }

  void CountUnknown(const TokenTask& task, TokenCounts* counts) const {
    counts->unknown = static_cast<int>(
        std::count(task.token_ids.begin(), task.token_ids.end(), input_.tokenizer->unknown_id()));
  }

  int MaxTokens() const {
    const int most = limits_.max_sequence_tokens;
    return input_.max_tokens == 0 ? most : std::min(most, input_.max_tokens);
  }

  absl::Status ParseText(const std::string& text, TokenTask* task, TokenCounts* counts) const {
    if (input_.tokenizer == nullptr) return NoWords(".text");
    // One token more than the limit shows that there are more, without reading all of a long text.
    absl::StatusOr<std::vector<int32_t>> ids =
        input_.tokenizer->Encode(text, static_cast<size_t>(MaxTokens()) + 1);
    if (!ids.ok()) return Error(".text", ids.status().message());
    if (ids->empty() && !input_.may_be_empty) {
      return Error(".text", "no tokens are left after preprocessing, expected at least one word",
                   input_.empty_advice);
    }
    SRU_ASSIGN_OR_RETURN(
        int length, CheckLength(".text", static_cast<int64_t>(ids->size()), "at least ", counts));
    ids->resize(length);
    task->token_ids = *std::move(ids);
    task->num_tokens = length;
    CountUnknown(*task, counts);
    return absl::OkStatus();
  }

  absl::Status ParseTokens(const v1::Tokens& tokens, TokenTask* task, TokenCounts* counts) const {
    if (input_.tokenizer == nullptr) return NoWords(".tokens");
    if (tokens.values_size() == 0 && !input_.may_be_empty) {
      return Error(".tokens.values", "empty, expected at least one", input_.empty_advice);
    }
    SRU_ASSIGN_OR_RETURN(int length,
                         CheckLength(".tokens.values", tokens.values_size(), "", counts));
    task->token_ids.reserve(length);
    for (int i = 0; i < length; ++i) {
      const int32_t id = input_.tokenizer->Lookup(tokens.values(i));
      if (id == models::Tokenizer::kNotFound) {
        return Error(absl::StrCat(".tokens.values[", i, "]"),
                     "not in the model's vocabulary, which has no unknown token");
      }
      task->token_ids.push_back(id);
    }
    task->num_tokens = length;
    CountUnknown(*task, counts);
    return absl::OkStatus();
  }

  absl::Status ParseTokenIds(const v1::TokenIds& ids, TokenTask* task, TokenCounts* counts) const {
    if (input_.vocabulary_size == 0) {
      return Error(".token_ids", "the model has no vocabulary, expected features of ",
                   input_.input_size, " values per frame");
    }
    if (ids.values_size() == 0 && !input_.may_be_empty) {
      return Error(".token_ids.values", "empty, expected at least one", input_.empty_advice);
    }
    for (int i = 0; i < ids.values_size(); ++i) {
      if (ids.values(i) < 0 || ids.values(i) >= input_.vocabulary_size) {
        return Error(absl::StrCat(".token_ids.values[", i, "]"), ids.values(i),
                     " is out of range, expected 0 to ", input_.vocabulary_size - 1);
      }
    }
    SRU_ASSIGN_OR_RETURN(int length,
                         CheckLength(".token_ids.values", ids.values_size(), "", counts));
    task->token_ids.assign(ids.values().begin(), ids.values().begin() + length);
    task->num_tokens = length;
    return absl::OkStatus();
  }

  absl::Status ParseFeatures(const v1::Features& features, TokenTask* task,
                             TokenCounts* counts) const {
    if (!input_.takes_features) {
      return Error(".features", "the model takes text, tokens or token_ids");
    }
    if (features.feature_size() != input_.input_size) {
      return Error(".features.feature_size", "expected ", input_.input_size,
                   " (the model's input_size), found ", features.feature_size());
    }
    const std::string& data = features.data();
    const size_t frame_bytes = static_cast<size_t>(input_.input_size) * sizeof(float);
    if (data.empty() && !input_.may_be_empty) {
      return Error(".features.data", "empty, expected at least one frame", input_.empty_advice);
    }
    if (data.size() % frame_bytes != 0) {
      return Error(".features.data", data.size(), " bytes, expected a multiple of ", frame_bytes,
                   " (feature_size ", input_.input_size, " x 4 bytes)");
    }
    SRU_ASSIGN_OR_RETURN(
        int length,
        CheckLength(".features.data", static_cast<int64_t>(data.size() / frame_bytes), "", counts));
    task->features.resize(static_cast<size_t>(length) * input_.input_size);
    const size_t bytes = task->features.size() * sizeof(float);  // less than all if they are cut
    if (bytes > 0) std::memcpy(task->features.data(), data.data(), bytes);
    for (size_t i = 0; i < task->features.size(); ++i) {
      if (!std::isfinite(task->features[i])) {
        return Error(".features.data", "value ", i % input_.input_size, " of frame ",
                     i / input_.input_size, " is ", task->features[i],
                     ", expected a finite number");
      }
    }
    task->num_tokens = length;
    return absl::OkStatus();
  }

  absl::Status NoWords(absl::string_view field) const {
    return Error(field, "the model has no tokenizer, expected features of ", input_.input_size,
                 " values per frame");
  }

  const absl::string_view name_;
  const int index_;
  const bool truncate_;
  const ModelInput& input_;
  const RequestLimits& limits_;
};

}  // namespace

namespace {

absl::Status CallerHasLeft() { return absl::CancelledError("the caller has left"); }

}  // namespace

ModelInput InputOf(const models::Model& model) {
  ModelInput input;
  input.tokenizer = model.tokenizer();
  input.vocabulary_size = model.config().embedding.vocabulary_size;
  input.input_size = model.spec().input_size;
  input.takes_features = model.takes_features();
  // Score has no field `truncate`.
  if (model.task() == models::Task::kLanguageModel) {
    input.too_long_advice = "divide it and continue with the states of Score";
  }
  return input;
}

absl::Status ParseMessage(const absl::Cord& bytes, google::protobuf::Message* message) {
  if (ParseCord(bytes, message)) return absl::OkStatus();
  if (Interruption::Asked()) return CallerHasLeft();
  return ExplainParseFailure(*message->GetDescriptor(), bytes);
}

absl::Status ParseSmallMessage(const absl::Cord& bytes, google::protobuf::Message* message) {
  if (!HasFewFields(bytes)) return TooManyFields();
  return ParseMessage(bytes, message);
}

absl::Status ExplainParseFailure(const google::protobuf::Descriptor& type,
                                 const absl::Cord& bytes) {
  return ExplainParseFailure(type, std::string(bytes));
}

absl::StatusOr<ParsedSequences> ParseSequences(
    const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences, bool truncate,
    const ModelInput& input, const RequestLimits& limits, TaskOfSequence task_of) {
  if (sequences.empty()) {
    return absl::InvalidArgumentError("sequences: empty, expected at least one");
  }
  if (sequences.size() > limits.max_sequences) {
    return TooManySequences(sequences.size(), limits);
  }
  ParsedSequences parsed;
  parsed.counts.resize(sequences.size());
  int64_t total_tokens = 0;
  for (int i = 0; i < sequences.size(); ++i) {
    if (Interruption::Asked()) return CallerHasLeft();
    TokenTask* const task = task_of(i);
    SRU_RETURN_UNLESS_OK(SequenceParser("sequences", i, truncate, input, limits)
                             .Parse(sequences[i], task, &parsed.counts[i]));
    AddWords(sequences[i].input_case(), parsed.counts[i], &parsed.words);
    total_tokens += task->num_tokens;
    // Checked inside the loop, so that no request makes the server hold more than this.
    if (total_tokens > limits.max_request_tokens) {
      return TooManyTokens(limits);
    }
  }
  return parsed;
}

absl::Status ParseSequence(const v1::Sequence& sequence, absl::string_view name,
                           const ModelInput& input, const RequestLimits& limits, TokenTask* task,
                           TokenCounts* counts) {
  return SequenceParser(name, SequenceParser::kNoIndex, /*truncate=*/false, input, limits)
      .Parse(sequence, task, counts);
}

void AddWords(v1::Sequence::InputCase form, const TokenCounts& counts, WordCounts* words) {
  if (form != v1::Sequence::kText && form != v1::Sequence::kTokens) return;
  words->words += counts.computed;
  words->unknown += counts.unknown;
}

absl::StatusOr<batching::Priority> ParsePriority(v1::Priority priority) {
  static_assert(v1::Priority_MAX == v1::PRIORITY_HIGH, "a case for each priority");
  switch (priority) {
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_NORMAL:
      return batching::Priority::kNormal;
    case v1::PRIORITY_LOW:
      return batching::Priority::kLow;
    case v1::PRIORITY_HIGH:
      return batching::Priority::kHigh;
    default:
      return InvalidArgument("priority: ", static_cast<int>(priority),
                             " is unknown, expected 1 (PRIORITY_LOW), 2 (PRIORITY_NORMAL), 3 "
                             "(PRIORITY_HIGH) or 0 for normal");
  }
}

absl::StatusOr<int> ParseTopCandidates(int32_t top_candidates, int max_candidates) {
  if (top_candidates >= 0 && top_candidates <= max_candidates) return top_candidates;
  return InvalidArgument("top_candidates: ", top_candidates, " is out of range, expected 0 to ",
                         max_candidates);
}

}  // namespace sru::server::calls
