// Checks what a caller sent and turns it into work for the batcher. Pure functions, thread-safe.
//
// Every error is kInvalidArgument unless said otherwise and starts with the path of the field:
//   sequences[3].token_ids.values[7]: 9000 is out of range, expected 0 to 8758
#ifndef SRU_SERVER_CALLS_MESSAGES_REQUEST_PARSER_H_
#define SRU_SERVER_CALLS_MESSAGES_REQUEST_PARSER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "models/model.h"
#include "models/text/tokenizer.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/messages/token_task.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {

// The inputs that a model takes.
struct ModelInput {
  const models::Tokenizer* tokenizer = nullptr;  // null: no text and no tokens
  int vocabulary_size = 0;                       // 0: no token ids
  int input_size = 0;                            // features per token
  bool takes_features = true;
  bool may_be_empty = false;  // a sequence may have no tokens, but must have one of its forms
  // How a caller gets by with one that has none, for the error; empty: it cannot.
  absl::string_view empty_advice = {};
  // Most tokens of a sequence that the model takes, and what says so; 0: as many as the server
  // allows.
  int max_tokens = 0;
  absl::string_view max_tokens_name = {};
  // How a caller gets by with a sequence that has too many tokens, for the error.
  absl::string_view too_long_advice = "shorten the sequence or set truncate";
  models::UnknownUse unknown = models::UnknownUse::kDefault;
  // Gets the places of the tokens of each text; null: they are not asked for.
  std::vector<std::vector<models::TextSpan>>* spans = nullptr;
};

// With the model's own use of what its vocabulary lacks.
ModelInput InputOf(const models::Model& model);

// The same of a translator, with the longest source.
ModelInput SourceOf(const models::Model& model, const RequestLimits& limits);

// What the caller asks for or, without that, the model's own.
absl::StatusOr<models::UnknownUse> ParseUnknown(v1::Unknown asked, const models::Model& model);

// At least the memory that the places of the tokens of the sequences take while they are found.
int64_t SpanBytes(const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences,
                  int max_tokens);

// What an answer says of the tokens of a sequence.
struct TokenCounts {
  int computed = 0;
  int unknown = 0;         // that the vocabulary does not have, computed or left out
  bool truncated = false;  // tokens were cut off
};

// How many tokens the texts and words of a request became. Ids and features are not counted.
struct WordCounts {
  int64_t words = 0;
  int64_t unknown = 0;  // of those: the vocabulary does not have them
};

struct ParsedSequences {
  std::vector<TokenCounts> counts;  // per sequence
  WordCounts words;
};

// Parses the bytes of a message. Strings that are not UTF-8 and broken wire format are
// kInvalidArgument with the field's path: gRPC's own parsing would answer UNIMPLEMENTED.
absl::Status ParseMessage(const absl::Cord& bytes, google::protobuf::Message* message);

// The same for a message without sub-messages, which is refused unparsed if it has more fields than
// any caller would set: each takes many times its bytes.
absl::Status ParseSmallMessage(const absl::Cord& bytes, google::protobuf::Message* message);

// The error of ParseMessage() for bytes that it cannot parse.
absl::Status ExplainParseFailure(const google::protobuf::Descriptor& type, const absl::Cord& bytes);

// The task of sequence `index`, which has been made.
using TaskOfSequence = absl::FunctionRef<TokenTask*(int index)>;

// Checks how many there are before it asks for the first task.
absl::StatusOr<ParsedSequences> ParseSequences(
    const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences, bool truncate,
    const ModelInput& input, const RequestLimits& limits, TaskOfSequence task_of);

// Into `tasks`, which derive from TokenTask.
template <typename Task>
absl::StatusOr<ParsedSequences> ParseSequences(
    const google::protobuf::RepeatedPtrField<v1::Sequence>& sequences, bool truncate,
    const ModelInput& input, const RequestLimits& limits, std::vector<Task>* tasks) {
  return ParseSequences(sequences, truncate, input, limits, [&](int index) {
    if (index == 0) tasks->resize(sequences.size());
    return &(*tasks)[index];
  });
}

// One sequence that is the field `name` of its message, and is not cut.
absl::Status ParseSequence(const v1::Sequence& sequence, absl::string_view name,
                           const ModelInput& input, const RequestLimits& limits, TokenTask* task,
                           TokenCounts* counts);

// Adds a sequence to the words of its request, if it has a form that is counted.
void AddWords(v1::Sequence::InputCase form, const TokenCounts& counts, WordCounts* words);

absl::StatusOr<batching::Priority> ParsePriority(v1::Priority priority);

// How many candidates to return: 0 to `max_candidates`.
absl::StatusOr<int> ParseTopCandidates(int32_t top_candidates, int max_candidates);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_REQUEST_PARSER_H_
