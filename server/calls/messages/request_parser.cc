#include "server/calls/messages/request_parser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/base/advice.h"
#include "server/base/interruption.h"
#include "server/calls/bounds/request_limits.h"
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

  absl::Status EmptyError(absl::string_view field, absl::string_view what) const {
    absl::Status error = Error(field, what);
    if (input_.empty_advice.empty()) return error;
    return Advise(error, AdviceOn::kField, input_.empty_advice);
  }

  absl::Status UnreadableText(absl::string_view why) const {
    if (!absl::ConsumeSuffix(&why, absl::StrCat("; ", models::kUnknownAdvice))) {
      return Error(".text", why);
    }
    return Advise(Error(".text", why), AdviceOn::kField, models::kUnknownAdvice);
  }

  // Checks the length of a sequence with `found` tokens and returns how many of them to compute.
  absl::StatusOr<int> CheckLength(absl::string_view field, int64_t found,
                                  absl::string_view at_least, TokenCounts* counts) const {
    if (found <= MaxTokens()) return static_cast<int>(found);
    if (!truncate_) {
      const bool is_flag = MaxTokens() == limits_.max_sequence_tokens;
      return Advise(
          Error(field, at_least, found, " tokens are too many, expected at most ", MaxTokens(),
                " (", is_flag ? "--max_sequence_tokens" : input_.max_tokens_name, ")"),
          AdviceOn::kLength, index_ == kNoIndex ? "send less at a time" : input_.too_long_advice);
    }
    counts->truncated = true;
    return MaxTokens();
  }

  int MaxTokens() const {
    const int most = limits_.max_sequence_tokens;
    return input_.max_tokens == 0 ? most : std::min(most, input_.max_tokens);
  }

  absl::Status ParseText(const std::string& text, TokenTask* task, TokenCounts* counts) const {
    if (input_.tokenizer == nullptr) return NoWords(".text");
    models::EncodeOptions options;
    // One token more than the limit shows that there are more, without reading all of a long text.
    options.max_tokens = static_cast<size_t>(MaxTokens()) + 1;
    options.unknown = input_.unknown;
    options.spans = input_.spans != nullptr;
    absl::StatusOr<models::EncodedText> encoded = input_.tokenizer->Encode(text, options);
    if (!encoded.ok()) return UnreadableText(encoded.status().message());
    if (encoded->ids.empty() && !input_.may_be_empty) {
      return EmptyError(".text",
                        "no tokens are left after preprocessing, expected at least one word");
    }
    SRU_RETURN_UNLESS_OK(Take(".text", "at least ", &*encoded, task, counts));
    if (input_.spans != nullptr) (*input_.spans)[index_] = std::move(encoded->spans);
    return absl::OkStatus();
  }

  // Takes as many tokens as are computed.
  absl::Status Take(absl::string_view field, absl::string_view at_least,
                    models::EncodedText* encoded, TokenTask* task, TokenCounts* counts) const {
    SRU_ASSIGN_OR_RETURN(
        task->num_tokens,
        CheckLength(field, static_cast<int64_t>(encoded->ids.size()), at_least, counts));
    encoded->Cut(task->num_tokens);
    task->token_ids = std::move(encoded->ids);
    counts->unknown = encoded->unknown;
    return absl::OkStatus();
  }

  absl::Status ParseTokens(const v1::Tokens& tokens, TokenTask* task, TokenCounts* counts) const {
    if (input_.tokenizer == nullptr) return NoWords(".tokens");
    if (tokens.values_size() == 0 && !input_.may_be_empty) {
      return EmptyError(".tokens.values", "empty, expected at least one");
    }
    models::EncodeOptions options;
    options.unknown = input_.unknown;
    const bool skips = input_.unknown == models::UnknownUse::kSkip;
    options.max_tokens = static_cast<size_t>(MaxTokens()) + 1;
    if (!skips) {
      SRU_ASSIGN_OR_RETURN(options.max_tokens,
                           CheckLength(".tokens.values", tokens.values_size(), "", counts));
    }
    models::EncodedText encoded;
    models::TokenSink sink = input_.tokenizer->SinkOf(options, &encoded);
    sink.Reserve(tokens.values_size());
    for (int i = 0; i < tokens.values_size() && !sink.is_full(); ++i) {
      sink.Add(input_.tokenizer->Lookup(tokens.values(i)), i, i + 1);
    }
    if (sink.refused().has_value()) {
      return Advise(Error(absl::StrCat(".tokens.values[", sink.refused()->begin_byte, "]"),
                          "not in the model's vocabulary",
                          input_.tokenizer->unknown_id() == models::Tokenizer::kNotFound
                              ? ", which has no unknown token"
                              : ""),
                    AdviceOn::kField, models::kUnknownAdvice);
    }
    if (encoded.ids.empty() && !input_.may_be_empty) {
      return EmptyError(".tokens.values",
                        "none of them is in the model's vocabulary, expected one");
    }
    return Take(".tokens.values", "at least ", &encoded, task, counts);
  }

  absl::Status ParseTokenIds(const v1::TokenIds& ids, TokenTask* task, TokenCounts* counts) const {
    if (input_.vocabulary_size == 0) {
      return Error(".token_ids", "the model has no vocabulary, expected features of ",
                   input_.input_size, " values per frame");
    }
    if (ids.values_size() == 0 && !input_.may_be_empty) {
      return EmptyError(".token_ids.values", "empty, expected at least one");
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
      return EmptyError(".features.data", "empty, expected at least one frame");
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

absl::Status CallerHasLeft() { return absl::CancelledError("the caller has left"); }

}  // namespace

ModelInput InputOf(const models::Model& model) {
  ModelInput input;
  input.tokenizer = model.tokenizer();
  input.vocabulary_size = model.config().embedding.vocabulary_size;
  input.input_size = model.spec().input_size;
  input.takes_features = model.takes_features();
  input.unknown = model.config().tokenizer.unknown;
  // Score has no field `truncate`.
  if (model.task() == models::Task::kLanguageModel) {
    input.too_long_advice = "divide it and continue with the states of Score";
  }
  return input;
}

ModelInput SourceOf(const models::Model& model, const RequestLimits& limits) {
  ModelInput input = InputOf(model);
  const models::TranslatorConfig& config = model.config().translator;
  if (config.max_positions <= limits.max_batch_tokens) {
    input.max_tokens = config.max_positions;
    input.max_tokens_name = "max_positions of the model";
  } else {
    input.max_tokens = limits.max_batch_tokens;
    input.max_tokens_name = "--max_batch_tokens";
  }
  if (config.source_end_id != models::kNoToken) {
    input.max_tokens = std::max(input.max_tokens - 1, 1);
  }
  return input;
}

absl::StatusOr<models::UnknownUse> ParseUnknown(v1::Unknown asked, const models::Model& model) {
  constexpr models::UnknownUse kUses[] = {models::UnknownUse::kRefuse, models::UnknownUse::kSkip,
                                          models::UnknownUse::kReplace};
  static_assert(v1::Unknown_MAX == std::size(kUses), "an entry for each use");
  if (asked == v1::UNKNOWN_DEFAULT) return model.config().tokenizer.unknown;
  if (v1::Unknown_IsValid(asked)) return kUses[asked - 1];
  return InvalidArgument("unknown: ", static_cast<int>(asked),
                         " is unknown, expected 1 (UNKNOWN_REFUSE), 2 (UNKNOWN_SKIP), 3 "
                         "(UNKNOWN_REPLACE) or 0 for the model's own");
}

int64_t SpanBytes(const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences,
                  int max_tokens) {
  // Lists that grow: of places, and of what SentencePiece remembers of each byte that it looks at.
  constexpr int64_t kTokenBytes = 2 * sizeof(models::TextSpan);
  constexpr int64_t kTextByteBytes = 24;
  constexpr int64_t kLongestPiece = 64;
  int64_t bytes = 0;
  for (const v1::Sequence& sequence : sequences) {
    const auto size = static_cast<int64_t>(sequence.text().size());
    const int64_t tokens = int64_t{max_tokens} + kLongestPiece;
    bytes += kTokenBytes * std::min(size, tokens) +
             kTextByteBytes * std::min(size, kLongestPiece * tokens);
  }
  return bytes;
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
  if (input.spans != nullptr) input.spans->resize(sequences.size());
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
  constexpr batching::Priority kPriorities[] = {
      batching::Priority::kNormal, batching::Priority::kLow, batching::Priority::kNormal,
      batching::Priority::kHigh};
  static_assert(v1::Priority_ARRAYSIZE == std::size(kPriorities), "an entry for each priority");
  if (v1::Priority_IsValid(priority)) return kPriorities[priority];
  return InvalidArgument("priority: ", static_cast<int>(priority),
                         " is unknown, expected 1 (PRIORITY_LOW), 2 (PRIORITY_NORMAL), 3 "
                         "(PRIORITY_HIGH) or 0 for normal");
}

absl::StatusOr<int> ParseTopCandidates(int32_t top_candidates, int max_candidates) {
  if (top_candidates >= 0 && top_candidates <= max_candidates) return top_candidates;
  return InvalidArgument("top_candidates: ", top_candidates, " is out of range, expected 0 to ",
                         max_candidates);
}

}  // namespace sru::server::calls
