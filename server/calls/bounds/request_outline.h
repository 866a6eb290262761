// What the service must know about a request before it parses it: enough to refuse it, since under
// a flood a refusal must cost much less than an answer, and how much memory it will take, since a
// few bytes of protobuf can become a hundred times as many.
#ifndef SRU_SERVER_CALLS_BOUNDS_REQUEST_OUTLINE_H_
#define SRU_SERVER_CALLS_BOUNDS_REQUEST_OUTLINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/descriptor.h"
#include "server/calls/bounds/request_limits.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {

// The fields that the requests which compute have in common and that admission needs, and counts of
// everything that protobuf would make objects of.
struct RequestOutline {
  std::string model;
  bool long_model_name = false;  // over kMaxOutlineModelName bytes; `model` is empty then
  int64_t version = 0;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  int num_sequences = 0;  // those of an AnswerRequest are its passages
  int num_queries = 0;    // of an AnswerRequest

  int64_t num_words = 0;         // entries of tokens.values, and lemmas
  int64_t num_unpacked_ids = 0;  // entries of token_ids.values that are fields of their own,
  int64_t packed_id_bytes = 0;   // and the bytes of the others
  int64_t num_states = 0;        // of ScoreRequest and GenerateRequest
  // Entries of GenerateRequest.stop, Sampling.logit_bias, Query.passage_tags,
  // TranslateRequest.target_prefixes.
  int64_t num_entries = 0;
  // Unknown fields, which protobuf keeps, and inputs of a sequence that a later one replaces, whose
  // memory it keeps too.
  int64_t extra_fields = 0;
  int64_t message_bytes = 0;

  // Bounds on the number of tokens, not counting those of texts. A token of a query has up to three
  // tags: its lemma and two ids.
  int64_t min_tokens() const {
    const int64_t values = num_words + num_unpacked_ids + packed_id_bytes / 10;
    return num_queries > 0 ? values / 3 : values;
  }
  int64_t max_ids() const { return num_unpacked_ids + packed_id_bytes; }

  // The least that the batcher is asked for. A query is one sequence, if its passages fit into a
  // batch, with a token of the question and one of each passage.
  int least_tasks() const { return num_queries > 0 ? num_queries : num_sequences; }
  int64_t least_tokens() const { return int64_t{num_sequences} + num_queries; }
};

// How the fields of a request count, made from its descriptor: a new request needs no code here.
//   Sequence                  a sequence; a passage of a Query, too
//   Query                     a query
//   another repeated message  an entry
//   repeated string           a word; an entry if it is a field of the request itself
//   bytes                     a state if it is a field of the request itself, else nothing
//   repeated numbers          ids
//   single values             nothing; an entry in a message that comes once but has lists, such as
//                             Sampling
// In messages that come once and have no lists, such as LengthPenalty, fields beyond those that the
// type has are extra.
struct OutlineRules;
// The rules live for ever: they are made once per type.
const OutlineRules& MakeOutlineRules(const google::protobuf::Descriptor& type);

// Walks the fields of a message without reading texts, words, ids and features: O(number of
// fields), and copies nothing except the model's name. Returns false if the bytes are no message.
// If a field occurs twice, its last value counts, as in protobuf.
bool ReadOutline(const absl::Cord& bytes, const OutlineRules& rules, RequestOutline* outline);

// The same for bytes that should be a `Request`.
template <typename Request>
bool ReadOutline(const absl::Cord& bytes, RequestOutline* outline) {
  static const OutlineRules& rules = MakeOutlineRules(*Request::descriptor());
  return ReadOutline(bytes, rules, outline);
}

// kInvalidArgument when the counts alone say that the request has too many sequences or tokens, or
// more than kMaxExtraFields (request_limits.h) extra fields.
absl::Status CheckOutline(const RequestOutline& outline, const RequestLimits& limits);

// At least the memory that the call takes until it is queued: the message, its parsed form, the
// batcher's tasks and the call itself, but not its outputs.
int64_t EstimateCallBytes(const RequestOutline& outline);

// Whether the bytes of a message without sub-messages hold at most kMaxExtraFields fields, known or
// not. Also true if they are no message: the parser reports that.
bool HasFewFields(const absl::Cord& bytes);

inline constexpr int kMaxOutlineModelName = 1024;

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_REQUEST_OUTLINE_H_
