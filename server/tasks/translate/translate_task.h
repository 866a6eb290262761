// TranslateTask: a sentence of a call of Translate, as its computation sees it.
//
// Each step of a worker encodes the sources of some sentences and adds a token to every hypothesis
// of others (batching/steps/sequence_scheduler.h has the rules). A sentence that is finished leaves
// at once; the call is answered when all of its sentences are.
//
// The same sentence gives the same hypotheses whatever else runs.
#ifndef SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_TASK_H_
#define SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_TASK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "models/decoding/search_options.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/steps/step_runner.h"
#include "server/calls/messages/token_task.h"

namespace sru::server::tasks {

// A translation that was found.
struct TranslatedHypothesis {
  std::vector<int32_t> tokens;  // without BOS and EOS
  bool finished = false;        // it ended with EOS
  double log_prob = 0;
  double score = 0;
  std::vector<float> alignment;  // [tokens][source], if asked for
  std::vector<float> log_probs;  // of the tokens, and of EOS if it came
};

// Valid: fields are in range, and token ids in the vocabulary.
struct TranslateTask
    : calls::TokenTask {  // without tokens it is not run, and its translation is empty
  models::SearchOptions search;
  // What its translation begins with; shorter than search.max_length.
  std::vector<int32_t> prefix;
  bool alignment = false;
  // The best first. Written until the call's `done`, and empty unless that gets OK.
  std::vector<TranslatedHypothesis> hypotheses;
  // How many steps its search has made, whatever comes of it. Written until `done`.
  int64_t steps = 0;
};

struct TranslateRequest {
  absl::Span<TranslateTask> sentences;  // at least one; the caller's until `done`
  batching::Priority priority = batching::Priority::kNormal;
  batching::FlowHandle flow;  // of the caller
  absl::Time deadline = absl::InfiniteFuture();
  // Called after each of its steps, one at a time; may be null.
  std::function<void(const batching::StepTimes&)> on_step;
  // Called exactly once if the request is accepted, from a worker's thread or from
  // SubmitTranslate(), Cancel() or Drain(), with no lock held. One sentence's error
  // (step_service.h) is that of the call, whose other sentences are given up. The times: until a
  // sentence was in a step first, and of all steps that a sentence was part of, each counted once.
  // Does not throw.
  std::function<void(const absl::Status&, const batching::RequestTimes&)> done;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_TASK_H_
