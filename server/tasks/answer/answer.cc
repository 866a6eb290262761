#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "models/decoding/spans.h"
#include "models/text/tokenizers.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/infer_form.h"
#include "server/open_inference/tensors/tensor_values.h"
#include "server/tasks/answer/answer_parser.h"
#include "server/tasks/answer/reader_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

// A task is a query, or a part of one that is too large for a batch, in the order of the queries
// and their passages. The spans of a query are found when all of its parts are computed.
class AnswerCall final : public calls::TaskCall<v1::AnswerRequest, v1::AnswerResponse, QueryPart> {
 public:
  using TaskCall::TaskCall;

 private:
  absl::Status ParseParameters(const v1::AnswerRequest& request) override {
    if (model().tokenizer() == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "model: '", model().name(), "' has no vocabulary, ",
          calls::MethodName(calls::MethodId::kAnswer), " needs a reader with one (vocab.txt)"));
    }
    SRU_ASSIGN_OR_RETURN(options_, ParseAnswerOptions(request, model().config().reader.max_len));
    return absl::OkStatus();
  }

  absl::StatusOr<calls::ParsedSequences> ParseInput(const v1::AnswerRequest& request,
                                                    std::vector<QueryPart>* parts) override {
    const models::ReaderConfig& config = model().config().reader;
    SRU_ASSIGN_OR_RETURN(const QueryLengths lengths, MeasureQueries(request.queries(), limits()));
    const QueryBytes bytes = EstimateQueryBytes(lengths, config);
    SRU_ASSIGN_OR_RETURN(const models::UnknownUse unknown,
                         calls::ParseUnknown(request.unknown(), model()));
    SRU_RETURN_UNLESS_OK(Reserve(bytes.peak));
    SRU_ASSIGN_OR_RETURN(std::vector<ParsedQuery> queries,
                         ParseQueries(request.queries(), config, *model().tokenizer(), unknown));
    ReturnReserved(bytes.peak - bytes.kept);
    queries_ = std::move(queries);
    *parts = CutQueries(request.queries(), queries_, limits().max_batch_tokens);
    calls::ParsedSequences sequences;
    sequences.counts.resize(parts->size());
    for (size_t i = 0; i < parts->size(); ++i) {
      sequences.counts[i].computed = (*parts)[i].num_tokens;
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
    // An answer is a message with a string, in a list, and its bytes on the wire; its text is in
    // both.
    constexpr int64_t kMessageBytes = 256;
    const QueryPart& part = tasks()[index];
    int64_t longest = 0;
    for (size_t i = 0; i < part.passages.size(); ++i) {
      longest =
          std::max(longest, LongestSpanBytes(PassageOf(part, i).places, options_.spans.max_length));
    }
    const auto num_passages = static_cast<int64_t>(part.passages.size());
    return 256 + kTokenBytes * num_tokens + options_.spans.top_n * kFoundBytes * num_passages +
           options_.top_n * (kMessageBytes + 2 * longest);
  }

  void SetOutput(size_t /*index*/, float* values, QueryPart* part) override {
    for (AnswerTask::Passage& passage : part->passages) {
      passage.start_logits = values;
      passage.end_logits = values + passage.length;
      values += 2 * static_cast<size_t>(passage.length);
    }
  }

  // Writes all of a query with its last part.
  void WriteSequence(size_t index, const calls::TokenCounts& /*counts*/, float* /*values*/,
                     v1::AnswerResponse* response) const override {
    if (!tasks()[index].is_last) return;
    size_t first = index;
    while (tasks()[first].first_passage > 0) --first;
    const ParsedQuery& query = queries_[tasks()[index].query];
    std::vector<std::vector<models::Span>> spans;
    spans.reserve(query.passages.size());
    for (size_t part = first; part <= index; ++part) {
      for (const AnswerTask::Passage& passage : tasks()[part].passages) {
        spans.push_back(models::BestSpans(passage.start_logits, passage.end_logits,
                                          static_cast<size_t>(passage.length), options_.spans));
      }
    }
    v1::QueryAnswers* const answers = response->add_results();
    answers->set_token_count(query.num_tokens);
    answers->set_unknown_tokens(query.unknown);
    const auto best = models::MergeSpans(spans, options_.top_n, options_.one_per_passage);
    for (const models::PassageSpan& found : best) {
      WriteSpan(found, tasks()[index].query, answers->add_answers());
    }
  }

  void FreeInput() override { queries_ = {}; }

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
};

using open_inference::InferInput;
using open_inference::ShapeText;

constexpr const char* kNames[] = {"question", "passage"};
// A word that stands for a blank pair, whose answer nobody sees.
constexpr absl::string_view kReplacement = "a";

// The inputs question and passage of a ModelInfer: question i with passage i is a query of its own.
class QueryInputs final : public open_inference::TaskInputs {
 public:
  std::vector<open_inference::TensorInfo> Infos(const models::Model& /*model*/) const override {
    std::vector<open_inference::TensorInfo> infos;
    for (const char* const name : kNames) {
      infos.push_back({name, open_inference::Datatype::kBytes, open_inference::ColumnShape()});
    }
    return infos;
  }

  absl::Status Outline(const open_inference::InferCall& call,
                       calls::RequestOutline* outline) override {
    const auto& inputs = call.request.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_passage = inputs[i].name == kNames[1];
      if (!is_passage && inputs[i].name != kNames[0]) {
        return InvalidArgument("inputs[", i, "].name: ", open_inference::Quoted(inputs[i].name),
                               " is not an input of '", call.model().name(),
                               "', expected question or passage");
      }
      if (indices_[is_passage] >= 0) {
        return InvalidArgument("input ", kNames[is_passage], ": occurs twice, expected once");
      }
      indices_[is_passage] = static_cast<int>(i);
    }
    for (const bool is_passage : {false, true}) {
      if (indices_[is_passage] < 0) {
        return InvalidArgument("input ", kNames[is_passage], ": expected one, found none");
      }
      SRU_RETURN_UNLESS_OK(
          CheckShape(inputs[indices_[is_passage]], kNames[is_passage], call.limits.max_sequences));
    }
    const InferInput& questions = inputs[indices_[0]];
    const InferInput& passages = inputs[indices_[1]];
    const int64_t batch = questions.shape[0];
    if (passages.shape[0] != batch) {
      return InvalidArgument("input passage: shape ", ShapeText(passages), ", expected [", batch,
                             "] as question has ", ShapeText(questions));
    }
    outline->num_queries = static_cast<int>(batch);
    outline->num_sequences = static_cast<int>(batch);
    return absl::OkStatus();
  }

  absl::Status Read(const open_inference::InferCall& call,
                    google::protobuf::Message* message) override {
    std::vector<absl::string_view> texts[2];
    for (const bool is_passage : {false, true}) {
      SRU_ASSIGN_OR_RETURN(texts[is_passage],
                           open_inference::ReadTexts(open_inference::ValuesOf(
                               call.request, indices_[is_passage], kNames[is_passage])));
    }
    auto* const request = static_cast<v1::AnswerRequest*>(message);
    request->mutable_queries()->Reserve(static_cast<int>(texts[0].size()));
    replaced_.resize(texts[0].size());
    for (size_t i = 0; i < texts[0].size(); ++i) {
      if (call.common.skip_empty && (IsBlank(texts[0][i]) || IsBlank(texts[1][i]))) {
        replaced_[i] = true;
        texts[0][i] = texts[1][i] = kReplacement;
      }
      v1::Query* const query = request->add_queries();
      query->set_question(texts[0][i].data(), texts[0][i].size());
      query->add_passages(texts[1][i].data(), texts[1][i].size());
    }
    return absl::OkStatus();
  }

  // "input passage[3]: only white space" of queries[3].passages[0]: only white space
  std::string Explain(absl::string_view message) const override {
    absl::string_view rest = message;
    if (!absl::ConsumePrefix(&rest, "queries")) return "";
    const absl::string_view query = open_inference::TakeIndex(&rest);
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

  bool IsReplaced(int row) const override { return replaced_[row]; }

 private:
  static bool IsBlank(absl::string_view text) {
    int found = 0;
    // What is no UTF-8 is left to the call, which refuses it.
    const auto count = [&found](const models::TextSpan& /*token*/) { ++found; };
    return models::SplitUnicodeWords({text.data(), text.size()}, 1, count).ok() && found == 0;
  }

  static absl::Status CheckShape(const InferInput& input, absl::string_view name, int most) {
    SRU_RETURN_UNLESS_OK(open_inference::CheckColumn(input, name));
    if (input.shape[0] >= 1 && input.shape[0] <= most) return absl::OkStatus();
    return InvalidArgument("input ", name, ": shape ", ShapeText(input), ", expected 1 to ", most,
                           " texts (--max_sequences_per_request)");
  }

  std::vector<bool> replaced_;  // the pairs that were blank
  int indices_[2] = {-1, -1};   // of question and passage among the inputs
};

// An output of the best answer to each query; an empty one if there is none.
template <typename Get>
open_inference::Output AnswerOutput(
    const char* name, Get get,
    open_inference::Output::Default comes = open_inference::Output::kComes) {
  return open_inference::ValueOutput<v1::QueryAnswers>(
      name,
      [get](const v1::QueryAnswers& answers) {
        return get(answers.answers().empty() ? v1::SpanAnswer::default_instance()
                                             : answers.answers(0));
      },
      comes);
}

void WriteReaderSizes(const models::Model& model, v1::ModelInfo* info) {
  const models::EncoderConfig& encoder = model.config().encoder;
  const models::ReaderConfig& reader_config = model.config().reader;
  info->set_input_size(reader_config.embedding_dim);
  info->set_output_size(encoder.output_size());
  info->set_hidden_size(encoder.hidden_size);
  info->set_num_layers(encoder.num_layers + reader_config.question_layers);
  info->set_bidirectional(encoder.bidirectional);
  v1::ReaderInfo* const reader = info->mutable_reader();
  for (const models::ReaderFeature feature : reader_config.features) {
    reader->add_features(models::ReaderFeatureName(feature));
  }
  reader->set_pos_size(reader_config.pos_size);
  reader->set_ner_size(reader_config.ner_size);
  reader->set_max_answer_tokens(reader_config.max_len);
}

}  // namespace

Task Answer() {
  open_inference::TaskTensors tensors;
  using open_inference::Output;
  tensors.outputs = {
      AnswerOutput("answer",
                   [](const v1::SpanAnswer& best) -> absl::string_view { return best.text(); }),
      AnswerOutput("score",
                   [](const v1::SpanAnswer& best) { return static_cast<float>(best.log_score()); }),
      AnswerOutput(
          "probability", [](const v1::SpanAnswer& best) { return best.probability(); },
          Output::kOnRequest),
      AnswerOutput("start", [](const v1::SpanAnswer& best) { return best.start_char(); }),
      AnswerOutput("end", [](const v1::SpanAnswer& best) { return best.end_char(); })};
  tensors.parameters = {"max_answer_tokens", "unknown"};
  tensors.make_inputs = []() -> std::unique_ptr<open_inference::TaskInputs> {
    return std::make_unique<QueryInputs>();
  };
  Task task = TaskOf<AnswerCall>(calls::MethodId::kAnswer, std::move(tensors));
  task.write_sizes = WriteReaderSizes;
  task.add_runners = [](batching::TaskRunners* row) { row->make_batch_runner = MakeReaderRunner; };
  return task;
}

}  // namespace sru::server::tasks
