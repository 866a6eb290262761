// ScoreTask: a sequence of token ids that a language model scores, and what runs batches of them.
#ifndef SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/model.h"
#include "server/batching/engine.h"
#include "server/calls/messages/token_task.h"

namespace sru::server::tasks {

// All pointers are the caller's and stay valid until the request's `done` is called.
struct ScoreTask : calls::TokenTask {
  // The state that the sequence goes on from; null = it begins here.
  const kernels::StateArena::State* state = nullptr;
  // Gets the state after the last token; null = not asked for.
  kernels::StateArena::State* final_state = nullptr;
  // [num_tokens]: of each token, given those before it; 0 for the first one without a state.
  float* log_probs = nullptr;
  // [num_tokens][num_candidates]: the most probable tokens at each place, the best first. Those of
  // the first place without a state are not written.
  kernels::Candidate* candidates = nullptr;
  int num_candidates = 0;  // 0 = none are asked for

  bool is_fresh() const { return state == nullptr; }
};

// Runs batches of ScoreTasks on a language model, which must outlive the runner. It packs them into
// buffers that it allocated once, and owns the workspace of its worker. The place's prefix cache,
// if there is one, makes room for the states of a batch; kResourceExhausted when the arena does not
// hold them even so.
absl::StatusOr<std::unique_ptr<batching::BatchRunner>> MakeScoreRunner(
    const models::Model& model, const batching::RunnerPlace& place);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_
