#include <algorithm>
#include <utility>

#include "base/status.h"
#include "models/decoding/decoding_memo.h"
#include "models/decoding/generated_text.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/tasks.h"
#include "server/tasks/translate/translate_parser.h"
#include "server/tasks/translate/translate_sequence.h"

namespace sru::server::tasks {
namespace {

// In an answer a token is an id, a string with its text, its log-probability and its part of the
// whole text, as a message and on the wire; a weight of the alignment is in the result, the message
// and on the wire.
constexpr int64_t kSentenceBytes = 2048;
constexpr int64_t kHypothesisBytes = 192;
constexpr int64_t kTokenBytes = 176;
constexpr int64_t kWeightBytes = 3 * sizeof(float);
// Of a search: a candidate, and a token of a live hypothesis.
constexpr int64_t kSearchBytes = 12;

class TranslateCall final
    : public calls::TaskCall<v1::TranslateRequest, v1::TranslateResponse, TranslateTask> {
 public:
  using TaskCall::TaskCall;

 private:
  absl::Status ParseParameters(const v1::TranslateRequest& request) override {
    SRU_ASSIGN_OR_RETURN(search_, ParseSearch(request, model().config().translator, limits()));
    return_alignment_ = request.return_alignment();
    return_hard_alignment_ = request.return_hard_alignment();
    return_token_log_probs_ = request.return_token_log_probs();
    return absl::OkStatus();
  }

  absl::StatusOr<calls::ParsedSequences> ParseInput(const v1::TranslateRequest& request,
                                                    std::vector<TranslateTask>* tasks) override {
    calls::ModelInput input = calls::SourceOf(model(), limits());
    SRU_ASSIGN_OR_RETURN(input.unknown, calls::ParseUnknown(request.unknown(), model()));
    input.may_be_empty = true;
    const models::TranslatorConfig& config = model().config().translator;
    const bool has_end = config.source_end_id != models::kNoToken;
    SRU_ASSIGN_OR_RETURN(
        calls::ParsedSequences parsed,
        calls::ParseSequences(request.sequences(), request.truncate(), input, limits(), tasks));
    SRU_ASSIGN_OR_RETURN(auto prefixes,
                         ParsePrefixes(request, tasks->size(), model().target_tokenizer(),
                                       search_.max_length, input.unknown));
    for (size_t i = 0; i < tasks->size(); ++i) {
      TranslateTask& sentence = (*tasks)[i];
      sentence.prefix = std::move(prefixes[i]);
      if (has_end && sentence.num_tokens > 0) {
        sentence.token_ids.push_back(config.source_end_id);
        ++sentence.num_tokens;
        ++parsed.counts[i].computed;
      }
      sentence.search = search_;
      // A prefix has room for a token after it, whatever the source.
      sentence.search.max_length = std::max(models::MaxLengthOf(search_, sentence.num_tokens),
                                            static_cast<int>(sentence.prefix.size()) + 1);
      sentence.alignment = return_alignment_ || return_hard_alignment_;
    }
    return parsed;
  }

  int64_t AnswerBytes(size_t index, int num_tokens) const override {
    if (num_tokens == 0) return kSentenceBytes;
    const bool alignment = tasks()[index].alignment;
    const int max_length = tasks()[index].search.max_length;
    const int64_t per_token = kTokenBytes + (alignment ? kWeightBytes * int64_t{num_tokens} : 0);
    const int64_t per_hypothesis = kHypothesisBytes + per_token * max_length;
    const int64_t search =
        kSearchBytes * search_.beam_size * (int64_t{search_.beam_size} + max_length);
    const int64_t source = alignment ? kTokenBytes * int64_t{num_tokens} : 0;
    return kSentenceBytes + source + search + per_hypothesis * search_.num_hypotheses;
  }

  absl::Status CheckAdmission(int64_t num_tokens, int num_sequences,
                              batching::Priority priority) override {
    return CheckQueue(*engine().steps(), num_tokens, num_sequences, priority, deadline());
  }

  absl::Status SubmitWork(batching::Priority priority) override {
    TranslateRequest work;
    work.sentences = absl::MakeSpan(tasks());
    work.priority = priority;
    work.deadline = deadline();
    work.flow = caller_;
    if (trace_ != nullptr) {
      work.on_step = [this](const batching::StepTimes& step) {
        trace_->OnProgress("step", step.end, 1);
      };
    }
    work.done = [this](const absl::Status& status, const batching::RequestTimes& times) {
      FinishWork(status, times);
    };
    SRU_ASSIGN_OR_RETURN(handle_, SubmitTranslate(model(), *engine().steps(), std::move(work)));
    return absl::OkStatus();
  }

  void CancelWork() override {
    if (handle_ != nullptr) handle_->Cancel();
  }

  void WriteSequence(size_t index, const calls::TokenCounts& counts, float* /*values*/,
                     v1::TranslateResponse* response) const override {
    v1::Translation* const translation = response->add_translations();
    translation->set_token_count(counts.computed);
    translation->set_truncated(counts.truncated);
    translation->set_unknown_tokens(counts.unknown);
    for (const TranslatedHypothesis& hypothesis : tasks()[index].hypotheses) {
      WriteHypothesis(hypothesis, translation->add_hypotheses());
    }
    if (!tasks()[index].alignment || model().tokenizer() == nullptr) return;
    for (const int32_t id : tasks()[index].token_ids) {
      translation->add_source_tokens(model().tokenizer()->TokenName(id));
    }
  }

  void WriteHypothesis(const TranslatedHypothesis& hypothesis, v1::Hypothesis* proto) const {
    proto->mutable_token_ids()->Add(hypothesis.tokens.begin(), hypothesis.tokens.end());
    if (const models::Tokenizer* const tokenizer = model().target_tokenizer();
        tokenizer != nullptr) {
      models::GeneratedText text(tokenizer->detokenizer(), nullptr, models::DecodingMemo());
      for (const int32_t id : hypothesis.tokens) {
        proto->add_tokens(tokenizer->TokenName(id));
        text.Append(id, /*may_stop=*/false);
      }
      proto->set_text(text.Finish());
    }
    proto->set_score(hypothesis.score);
    proto->set_log_prob(hypothesis.log_prob);
    proto->set_unfinished(!hypothesis.finished);
    if (return_token_log_probs_) {
      proto->mutable_token_log_probs()->Add(hypothesis.log_probs.begin(),
                                            hypothesis.log_probs.end());
    }
    const auto& weights = hypothesis.alignment;
    if (return_alignment_) proto->mutable_alignment()->Add(weights.begin(), weights.end());
    if (!return_hard_alignment_ || hypothesis.tokens.empty()) return;
    const auto width = static_cast<std::ptrdiff_t>(weights.size() / hypothesis.tokens.size());
    for (auto row = weights.begin(); row != weights.end(); row += width) {
      proto->add_hard_alignment(static_cast<int32_t>(std::max_element(row, row + width) - row));
    }
  }

  // A search follows as many hypotheses as its beam is wide. Those that are not in the answer are
  // counted as long as the longest that is.
  int64_t ComputedTokens() const override {
    int64_t tokens = 0;
    for (const TranslateTask& sentence : tasks()) {
      int64_t longest = sentence.hypotheses.empty() ? sentence.steps : 0;  // the call failed
      for (const TranslatedHypothesis& hypothesis : sentence.hypotheses) {
        const auto length = static_cast<int64_t>(hypothesis.tokens.size());
        tokens += length;
        longest = std::max(longest, length);
      }
      tokens += longest * (search_.beam_size - static_cast<int64_t>(sentence.hypotheses.size()));
    }
    return tokens;
  }

  models::SearchOptions search_;
  bool return_alignment_ = false;
  bool return_hard_alignment_ = false;
  bool return_token_log_probs_ = false;
  TranslateHandle handle_;
};

void WriteTranslatorSizes(const models::Model& model, v1::ModelInfo* info) {
  const models::TranslatorConfig& config = model.config().translator;
  info->set_input_size(config.d_model);
  info->set_output_size(config.d_model);
  info->set_hidden_size(config.d_sru / (config.bidirectional_encoder ? 2 : 1));
  info->set_num_layers(config.encoder_layers + config.decoder_layers);
  info->set_bidirectional(config.bidirectional_encoder);
  v1::TranslatorInfo* const translator = info->mutable_translator();
  translator->set_beam_size(config.search.beam_size);
  translator->mutable_length_penalty()->set_form(FormOf(config.search.length_penalty));
  translator->mutable_length_penalty()->set_alpha(static_cast<float>(config.search.alpha));
  translator->set_max_new_tokens(config.search.max_length);
  translator->set_target_vocabulary_size(config.target_vocabulary);
  translator->set_source_language(config.source_language);
  translator->set_target_language(config.target_language);
  translator->set_max_positions(config.max_positions);
  translator->set_word_penalty(static_cast<float>(config.search.word_penalty));
  translator->set_max_length_factor(static_cast<float>(config.search.max_length_factor));
}

}  // namespace

Task Translate() {
  open_inference::TaskTensors tensors;
  tensors.outputs = {open_inference::ValueOutput<v1::Translation>(
      "translation", [](const v1::Translation& translation) -> absl::string_view {
        if (translation.hypotheses().empty()) return {};
        return translation.hypotheses(0).text();
      })};
  tensors.parameters = {"beam_size", "max_length_factor", "max_new_tokens",
                        "truncate",  "unknown",           "word_penalty"};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::TranslateRequest>;
  Task task = TaskOf<TranslateCall>(calls::MethodId::kTranslate, std::move(tensors));
  task.write_sizes = WriteTranslatorSizes;
  task.add_runners = [](batching::TaskRunners* row) {
    row->make_step_runner = MakeTranslateStepper;
    row->keeps_states = true;
    row->drained = "the server is shutting down; send the request to another replica";
    row->result_at_end = true;
    row->words.fed = "sequences";
    row->words.before_result = "before the translation was complete";
  };
  return task;
}

}  // namespace sru::server::tasks
