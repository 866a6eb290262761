#include <algorithm>
#include <utility>

#include "base/status.h"
#include "models/decoding/decoding_memo.h"
#include "models/state_codec.h"
#include "server/calls/kinds/task_call.h"
#include "server/open_inference/tensors/sequence_input.h"
#include "server/tasks/tasks.h"

namespace sru::server::tasks {
namespace {

class ScoreCall final : public calls::SequenceCall<v1::ScoreRequest, v1::ScoreResponse> {
 public:
  using SequenceCall::SequenceCall;

 private:
  // The buffers of one sequence besides its floats.
  struct Sequence {
    batching::ScoreTask task;
    models::SequenceState state;
    kernels::StateArena::State final_state;
    models::DecodingMemo final_memo;
  };
  absl::Status ParseParameters(const v1::ScoreRequest& request) override {
    SRU_ASSIGN_OR_RETURN(num_candidates_,
                         calls::ParseTopCandidates(request.top_candidates(),
                                                   model().language_model()->max_candidates));
    token_log_probs_ = request.token_log_probs();
    return_states_ = request.return_states();
    return absl::OkStatus();
  }

  absl::Status ParseSequenceParameters(const v1::ScoreRequest& request,
                                       size_t num_sequences) override {
    sequences_.resize(num_sequences);
    const auto num_states = static_cast<size_t>(request.states_size());
    if (num_states != 0 && num_states != num_sequences) {
      return InvalidArgument("states: expected none or ", num_sequences,
                             ", one per sequence, found ", num_states);
    }
    for (size_t i = 0; i < num_sequences; ++i) {
      Sequence& sequence = sequences_[i];
      if (i < num_states && !request.states(static_cast<int>(i)).empty()) {
        const absl::Status status =
            model().state_codec().Decode(request.states(static_cast<int>(i)), &sequence.state);
        if (!status.ok()) {
          return InvalidArgument("states[", i, "]: ", status.message());
        }
        sequence.task.state = &sequence.state.state;
        memo_bytes_ = std::max(memo_bytes_, models::StateCodec::MemoBytes(sequence.state.memo));
      }
      if (return_states_) sequence.task.final_state = &sequence.final_state;
      sequence.task.num_candidates = num_candidates_;
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
    const int64_t per_token =
        (token_log_probs_ ? 8 : 0) + (num_candidates_ == 0 ? 0 : 64 + 160 * num_candidates_);
    // The state after the sequence, as it is taken out, in the message and on the wire.
    const auto state_bytes = static_cast<int64_t>(model().state_codec().bytes() + memo_bytes_);
    return 256 + per_token * num_tokens + (return_states_ ? 3 * state_bytes : 0);
  }

  void SetOutput(size_t index, float* values, batching::SequenceTask* task) override {
    if (return_states_) {
      Sequence& sequence = sequences_[index];
      sequence.final_memo = std::move(sequence.state.memo);
      models::AppendGivenTokens(model().tokenizer()->detokenizer(), task->token_ids,
                                &sequence.final_memo);
    }
    batching::ScoreTask& score = sequences_[index].task;
    score.log_probs = values;
    if (num_candidates_ > 0) {
      score.candidates = reinterpret_cast<kernels::Candidate*>(values + task->num_tokens);
    }
    task->score = &score;
  }

  void WriteSequence(size_t index, const calls::TokenCounts& counts, float* /*values*/,
                     v1::ScoreResponse* response) const override {
    const Sequence& sequence = sequences_[index];
    v1::Score* const score = response->add_scores();
    if (counts.computed == 0) {
      // It stays in the state that it went on from; where it would begin, there is none.
      if (return_states_ && sequence.task.state != nullptr) {
        score->set_state(model().state_codec().Encode(sequence.state.state, sequence.final_memo));
      }
      return;
    }
    calls::WriteScore(sequence.task, counts.computed, token_log_probs_, *model().tokenizer(),
                      score);
    score->set_unknown_tokens(counts.unknown);
    if (return_states_) {
      score->set_state(model().state_codec().Encode(sequence.final_state, sequence.final_memo));
    }
  }

  int num_candidates_ = 0;
  bool token_log_probs_ = false;
  bool return_states_ = false;
  size_t memo_bytes_ = 0;  // of the longest memo that a sequence goes on from
  std::vector<Sequence> sequences_;
};

}  // namespace

Task Score() {
  open_inference::TaskTensors tensors;
  tensors.tasks = {models::Task::kLanguageModel};
  tensors.outputs = {open_inference::ValueOutput<v1::Score>(
      "log_prob", [](const v1::Score& score) { return score.log_prob(); })};
  tensors.make_inputs = open_inference::MakeSequenceInputs<v1::ScoreRequest>;
  return TaskOf<ScoreCall>(calls::MethodId::kScore, std::move(tensors));
}

}  // namespace sru::server::tasks
