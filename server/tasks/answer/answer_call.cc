#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/decoding/spans.h"
#include "server/calls/kinds/task_call.h"
#include "server/tasks/answer/answer.h"
#include "server/tasks/answer/answer_parser.h"

namespace sru::server::tasks {
namespace {

// A sequence of the batcher is a query, or a part of one that is too large for a batch. The spans of a query are found when all of
// its parts are computed.
class AnswerCall final : public calls::TaskCall<v1::AnswerRequest, v1::AnswerResponse> {
 public:
  AnswerCall(const calls::ServiceContext& context, calls::Exchange* exchange, Form form)
      : TaskCall(calls::MethodId::kAnswer, context, exchange, std::move(form)) {}

 private:
  absl::Status ParseParameters(const v1::AnswerRequest& request) override {
    if (absl::Status status = calls::CheckTask(model(), calls::MethodId::kAnswer); !status.ok()) {
      return status;
    }
    if (model().tokenizer() == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "model: '", model().name(), "' has no vocabulary, ",
          calls::MethodName(calls::MethodId::kAnswer), " needs a reader with one (vocab.txt)"));
    }
    absl::StatusOr<AnswerOptions> options =
        ParseAnswerOptions(request, model().config().reader.max_len);
    if (!options.ok()) return options.status();
    options_ = *options;
    return absl::OkStatus();
  }

  absl::StatusOr<calls::ParsedSequences> ParseInput(const v1::AnswerRequest& request) override {
    const models::ReaderConfig& config = model().config().reader;
    const absl::StatusOr<QueryLengths> lengths = MeasureQueries(request.queries(), limits());
    if (!lengths.ok()) return lengths.status();
    const QueryBytes bytes = EstimateQueryBytes(*lengths, config);
    if (absl::Status status = Reserve(bytes.peak); !status.ok()) return status;
    absl::StatusOr<std::vector<ParsedQuery>> queries =
        ParseQueries(request.queries(), config, *model().tokenizer());
    if (!queries.ok()) return queries.status();
    ReturnReserved(bytes.peak - bytes.kept);
    queries_ = *std::move(queries);
    parts_ = CutQueries(request.queries(), queries_, limits().max_batch_tokens);
    calls::ParsedSequences sequences;
    sequences.tasks.resize(parts_.size());
    sequences.counts.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      sequences.counts[i].computed = parts_[i].num_tokens;
      sequences.tasks[i].num_tokens = parts_[i].num_tokens;
      sequences.tasks[i].answer = &parts_[i].task;
    }
    for (const ParsedQuery& query : queries_) {
      sequences.words.words += query.num_tokens;
      sequences.words.unknown += query.unknown;
    }
    return sequences;
  }

  // Texts of answers are parts of passages.
  bool NeedsRequest() const override { return true; }

  // Two logits per token of a passage; those of the question's are not used.
  size_t OutputSize(int num_tokens) const override { return 2 * static_cast<size_t>(num_tokens); }

  int64_t AnswerBytes(size_t index, int num_tokens) const override {
    // Finding the spans takes memory by tokens and by spans.
    constexpr int64_t kTokenBytes = 64;
    constexpr int64_t kFoundBytes = 128;
    // An answer is a message with a string, in a list, and its bytes on the wire; its text is in both.
    constexpr int64_t kMessageBytes = 256;
    const QueryPart& part = parts_[index];
    int64_t longest = 0;
    for (size_t i = 0; i < part.task.passages.size(); ++i) {
      longest =
          std::max(longest, LongestSpanBytes(PassageOf(part, i).places, options_.spans.max_length));
    }
    const auto num_passages = static_cast<int64_t>(part.task.passages.size());
    return 256 + kTokenBytes * num_tokens + options_.spans.top_n * kFoundBytes * num_passages +
           options_.top_n * (kMessageBytes + 2 * longest);
  }

  void SetOutput(size_t index, float* values, batching::SequenceTask* /*task*/) override {
    for (batching::AnswerTask::Passage& passage : parts_[index].task.passages) {
      passage.start_logits = values;
      passage.end_logits = values + passage.length;
      values += 2 * static_cast<size_t>(passage.length);
    }
  }

  // Writes all of a query with its last part.
  void WriteSequence(size_t index, const calls::TokenCounts& /*counts*/, float* /*values*/,
                     v1::AnswerResponse* response) const override {
    if (!parts_[index].is_last) return;
    size_t first = index;
    while (parts_[first].first_passage > 0) --first;
    const ParsedQuery& query = queries_[parts_[index].query];
    std::vector<std::vector<models::Span>> spans;
    spans.reserve(query.passages.size());
    for (size_t part = first; part <= index; ++part) {
      for (const batching::AnswerTask::Passage& passage : parts_[part].task.passages) {
        spans.push_back(models::BestSpans(passage.start_logits, passage.end_logits,
                                          static_cast<size_t>(passage.length), options_.spans));
      }
    }
    v1::QueryAnswers* const answers = response->add_results();
    answers->set_token_count(query.num_tokens);
    answers->set_unknown_tokens(query.unknown);
    const auto best = models::MergeSpans(spans, options_.top_n, options_.one_per_passage);
    for (const models::PassageSpan& found : best) {
      WriteSpan(found, parts_[index].query, answers->add_answers());
    }
  }

  void FreeInput() override {
    queries_ = {};
    parts_ = {};
  }

  const ParsedPassage& PassageOf(const QueryPart& part, size_t index) const {
    return queries_[part.query].passages[part.first_passage + index];
  }

  void WriteSpan(const models::PassageSpan& found, int query, v1::SpanAnswer* answer) const {
    const std::vector<TokenPlace>& places = queries_[query].passages[found.passage].places;
    const TokenPlace& first = places[found.span.first];
    const TokenPlace& last = places[found.span.last];
    const std::string& text = request().queries(query).passages(found.passage);
    answer->set_text(text.data() + first.begin_byte, last.end_byte - first.begin_byte);
    answer->set_passage(found.passage);
    answer->set_start_byte(static_cast<int32_t>(first.begin_byte));
    answer->set_end_byte(static_cast<int32_t>(last.end_byte));
    answer->set_start_char(static_cast<int32_t>(first.begin_char));
    answer->set_end_char(static_cast<int32_t>(last.end_char));
    answer->set_log_score(found.span.log_score);
    answer->set_probability(found.span.probability);
  }

  AnswerOptions options_;
  std::vector<ParsedQuery> queries_;
  std::vector<QueryPart> parts_;  // in the order of the queries and their passages
};

}  // namespace

calls::CallHandler* StartAnswer(const calls::ServiceContext& context, calls::Exchange* exchange,
                                calls::AnswerForm form) {
  return new AnswerCall(context, exchange, std::move(form));
}

calls::Method AnswerMethod(const calls::ServiceContext& context) {
  return calls::Method::Of<v1::AnswerRequest, v1::AnswerResponse>(
      calls::MethodId::kAnswer,
      [&context](calls::Exchange* exchange) { return StartAnswer(context, exchange); });
}

}  // namespace sru::server::tasks
