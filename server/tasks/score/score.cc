#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "models/decoding/decoding_memo.h"
#include "models/language_model.h"
#include "models/state_codec.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/score/score_batch_runner.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

// With what its pointers point to, besides its floats.
struct Sequence : ScoreTask {
  models::SequenceState begin;
  kernels::StateArena::State end;
  models::DecodingMemo end_memo;
};

class ScoreCall final : public calls::SequenceCall<v1::ScoreRequest, v1::ScoreResponse, Sequence> {
 public:
  using SequenceCall::SequenceCall;

 private:
  absl::Status ParseParameters(const v1::ScoreRequest& request) override {
    SRU_ASSIGN_OR_RETURN(num_candidates_, calls::ParseTopCandidates(
                                              request.top_candidates(),
                                              model().As<models::LanguageModel>()->max_candidates));
    token_log_probs_ = request.token_log_probs();
    token_texts_ = request.token_texts();
    return_states_ = request.return_states();
    return absl::OkStatus();
  }

  absl::Status ParseSequenceParameters(const v1::ScoreRequest& request,
                                       std::vector<Sequence>* sequences) override {
    const size_t num_sequences = sequences->size();
    const auto num_states = static_cast<size_t>(request.states_size());
    if (num_states != 0 && num_states != num_sequences) {
      return InvalidArgument("states: expected none or ", num_sequences,
                             ", one per sequence, found ", num_states);
    }
    for (size_t i = 0; i < num_sequences; ++i) {
      Sequence& sequence = (*sequences)[i];
      if (i < num_states && !request.states(static_cast<int>(i)).empty()) {
        const absl::Status status =
            model().state_codec().Decode(request.states(static_cast<int>(i)), &sequence.begin);
        if (!status.ok()) {
          return InvalidArgument("states[", i, "]: ", status.message());
        }
        sequence.state = &sequence.begin.state;
        memo_bytes_ = std::max(memo_bytes_, models::StateCodec::MemoBytes(sequence.begin.memo));
      }
      if (return_states_) sequence.final_state = &sequence.end;
      sequence.num_candidates = num_candidates_;
    }
    return absl::OkStatus();
  }

  // Log-probabilities, then candidates.
  size_t OutputSize(int num_tokens) const override {
    static_assert(sizeof(kernels::Candidate) == 2 * sizeof(float) &&
                  alignof(kernels::Candidate) == alignof(float));
    return static_cast<size_t>(num_tokens) * (1 + 2 * num_candidates_);
  }

  int64_t AnswerBytes(size_t /*index*/, int num_tokens) const override {
    // A candidate is a message with a string, in a list, and its bytes on the wire.
    const int64_t per_token = (token_log_probs_ ? 8 : 0) + (token_texts_ ? 160 : 0) +
                              (num_candidates_ == 0 ? 0 : 64 + 160 * num_candidates_);
    // The state after the sequence, as it is taken out, in the message and on the wire.
    const auto state_bytes = static_cast<int64_t>(model().state_codec().bytes() + memo_bytes_);
    return 256 + per_token * num_tokens + (return_states_ ? 3 * state_bytes : 0);
  }

  void SetOutput(size_t /*index*/, float* values, Sequence* sequence) override {
    if (return_states_) {
      sequence->end_memo = std::move(sequence->begin.memo);
      models::AppendGivenTokens(model().tokenizer()->detokenizer(), sequence->token_ids,
                                &sequence->end_memo);
    }
    sequence->log_probs = values;
    if (num_candidates_ > 0) {
      sequence->candidates = reinterpret_cast<kernels::Candidate*>(values + sequence->num_tokens);
    }
  }

  void WriteSequence(size_t index, const calls::TokenCounts& counts, float* /*values*/,
                     v1::ScoreResponse* response) const override {
    const Sequence& sequence = tasks()[index];
    v1::Score* const score = response->add_scores();
    score->set_unknown_tokens(counts.unknown);
    if (counts.computed == 0) {
      // It stays in the state that it went on from; where it would begin, there is none.
      if (return_states_ && !sequence.is_fresh()) {
        score->set_state(model().state_codec().Encode(sequence.begin.state, sequence.end_memo));
      }
      return;
    }
    const models::Tokenizer& tokenizer = *model().tokenizer();
    const int first = sequence.is_fresh() ? 1 : 0;
    const float* const log_probs = sequence.log_probs;
    score->set_token_count(counts.computed);
    score->set_scored_count(counts.computed - first);
    score->set_log_prob(std::accumulate(log_probs + first, log_probs + counts.computed, 0.0));
    if (token_log_probs_) {
      score->mutable_token_log_probs()->Add(log_probs + first, log_probs + counts.computed);
    }
    for (int t = 0; t < counts.computed && token_texts_; ++t) {
      score->add_token_texts(tokenizer.TokenName(sequence.token_ids[t]));
    }
    for (int t = first; t < counts.computed && num_candidates_ > 0; ++t) {
      calls::WriteCandidates(sequence.candidates + static_cast<size_t>(t) * num_candidates_,
                             num_candidates_, tokenizer, score->add_candidates());
    }
    if (return_states_) {
      score->set_state(model().state_codec().Encode(sequence.end, sequence.end_memo));
    }
  }

  int num_candidates_ = 0;
  bool token_log_probs_ = false;
  bool token_texts_ = false;
  bool return_states_ = false;
  size_t memo_bytes_ = 0;  // of the longest memo that a sequence goes on from
};

}  // namespace

Task Score() {
  open_inference::TaskTensors tensors;
  tensors.outputs = {open_inference::ValueOutput<v1::Score>(
      "log_prob", [](const v1::Score& score) { return score.log_prob(); })};
  tensors.parameters = {{"unknown"}};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::ScoreRequest>;
  Task task = TaskOf<ScoreCall>(calls::MethodId::kScore, std::move(tensors));
  task.add_runners = [](batching::TaskRunners* row) {
    row->keeps_states = true;
    row->make_batch_runner = MakeScoreRunner;
  };
  return task;
}

}  // namespace sru::server::tasks
