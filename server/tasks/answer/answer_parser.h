// Checks what a caller of Answer sent and turns it into work for a reader. Pure functions,
// thread-safe.
//
// Every error is kInvalidArgument and starts with the path of the field:
//   queries[1].passages[3]: only white space, expected at least one token
//
// This goes in two steps, so that no memory is taken for tokens before it is known how many there
// are: MeasureQueries() counts them and finds every fault of the texts, ParseQueries() keeps them.
#ifndef SRU_SERVER_TASKS_ANSWER_ANSWER_PARSER_H_
#define SRU_SERVER_TASKS_ANSWER_ANSWER_PARSER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/limits.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "models/decoding/spans.h"
#include "models/reader_config.h"
#include "models/text/tokenizer.h"
#include "server/calls/bounds/request_limits.h"
#include "server/tasks/answer/reader_batch_runner.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

using Queries = google::protobuf::RepeatedPtrField<v1::Query>;

// What is wanted of each query.
struct AnswerOptions {
  models::SpanOptions spans;  // of a passage
  int top_n = 1;              // of a query
  bool one_per_passage = false;
};

// The tokens of all texts of the queries: of a query's question, then of its passages.
struct QueryLengths {
  std::vector<int> lengths;
  int64_t total = 0;
  int longest = 0;
};

using TokenPlace = models::TextSpan;  // of a token in its passage

struct ParsedPassage {
  std::vector<int32_t> ids;
  std::vector<float> features;  // [tokens][number of features]
  std::vector<TokenPlace> places;
};

struct ParsedQuery {
  std::vector<int32_t> question;  // ids
  std::vector<ParsedPassage> passages;
  int num_tokens = 0;  // of the question and all passages
  int unknown = 0;     // of those: the vocabulary does not have them
};

// Passages of a query that are computed at once.
struct QueryPart : AnswerTask {  // logits are left null
  int query = 0;
  int first_passage = 0;
  bool is_last = false;  // of its query
};

// `max_answer_tokens` is the model's own.
absl::StatusOr<AnswerOptions> ParseAnswerOptions(const v1::AnswerRequest& request,
                                                 int max_answer_tokens);

absl::StatusOr<QueryLengths> MeasureQueries(const Queries& queries,
                                            const calls::RequestLimits& limits);

// At least the memory that ParseQueries() takes, and that the result of it and of CutQueries()
// keep.
struct QueryBytes {
  int64_t peak = 0;
  int64_t kept = 0;
};
QueryBytes EstimateQueryBytes(const QueryLengths& lengths, const models::ReaderConfig& config);

// Of queries that MeasureQueries() has accepted. `tokenizer` is the reader's. Words that are
// `unknown` can only be skipped if the model takes no tags, of which there is one for each word.
absl::StatusOr<std::vector<ParsedQuery>> ParseQueries(
    const Queries& queries, const models::ReaderConfig& config, const models::Tokenizer& tokenizer,
    models::UnknownUse unknown = models::UnknownUse::kDefault);

// Cuts each query between passages into as few parts, in order, as have at most `max_batch_tokens`
// tokens, the question included. The tasks point into `parsed` and, for the tags, into `queries`.
std::vector<QueryPart> CutQueries(const Queries& queries, const std::vector<ParsedQuery>& parsed,
                                  int max_batch_tokens);

// The bytes of the longest text that `max_tokens` adjacent tokens may be.
int64_t LongestSpanBytes(const std::vector<TokenPlace>& places, int max_tokens);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ANSWER_ANSWER_PARSER_H_
