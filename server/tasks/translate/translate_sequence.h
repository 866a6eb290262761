// TranslateSequence: one sentence of a call, as a sequence of steps.
//
// A step of a worker takes sentences of many calls (batching/steps/sequence_scheduler.h has the
// rules); a sentence that is finished leaves at once. The same sentence gives the same hypotheses
// whatever else runs.
//
//   1. Its source is encoded in one step, on a slot of the arena.
//   2. BOS and the prefix are fed, and predict the first token. Where the model has a list of words
//      for each sentence, it has been made by then.
//   3. Each step feeds the last token of every live hypothesis. What one predicts decides, once all
//      have been fed (models/decoding/beam_search.h), which of them go on: the slots are reordered,
//      which moves no values.
//   4. If the alignment is asked for, the hypotheses that were found are fed once more, as a whole,
//      from a copy of the slot after 1. Their results are the same bits as in 3, and only theirs
//      are kept.
//
// Everything can be computed again from the start (Rewind()), with the same result, which goes to
// the call when the sentence has ended.
//
// PendingTranslation: a call, which is answered when its last sentence has ended.
//
// Thread-safety: a sequence's as StepSequence says; the functions for the stepper are called by the
// runner of the step that it is in. A call's functions are thread-safe.
#ifndef SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_SEQUENCE_H_
#define SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/decoding/beam_search.h"
#include "models/decoding/search_options.h"
#include "models/model.h"
#include "models/translator.h"
#include "server/batching/engine.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/steps/step_runner.h"
#include "server/batching/steps/step_service.h"
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

class PendingTranslation {
 public:
  // `service` must live until the call is answered.
  PendingTranslation(TranslateRequest&& request, batching::StepService* service)
      : request_(std::move(request)), service_(*service) {
    times_.queue = absl::InfiniteDuration();
  }

  const TranslateRequest& request() const { return request_; }  // until the call is answered

  // `left` sentences are about to be submitted.
  void Expect(size_t left);
  // What the service has made of them. Some may have ended before.
  void SetHandles(std::vector<batching::SequenceHandle> handles) noexcept;
  // The caller is gone. May be called at any time, also after the end.
  void Cancel();

  // A step with a sentence of this call has run.
  void OnStep(const batching::StepTimes& step);
  // Called once for each sentence that was submitted. May answer the call.
  void OnSentence(const absl::Status& status);
  void Answer();

 private:
  void CancelSentences();

  TranslateRequest request_;  // constant until the call is answered
  batching::StepService& service_;

  Mutex mutex_;
  std::vector<batching::SequenceHandle> handles_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // what the call ends with; the first one counts
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;       // sentences that have not ended
  int64_t last_step_ ABSL_GUARDED_BY(mutex_) = -1;
  batching::RequestTimes times_ ABSL_GUARDED_BY(mutex_);
};

// A call that was accepted.
using TranslateHandle = std::shared_ptr<PendingTranslation>;

// Submits a call of `model` to its service, with the errors of StepService::Submit(). If it is
// refused, its tasks are as they were.
absl::StatusOr<TranslateHandle> SubmitTranslate(const models::Model& model,
                                                batching::StepService& service,
                                                TranslateRequest&& request);

class TranslateSequence;

// A sequence of the program's batch: a source, or some tokens of a hypothesis.
struct TranslateItem {
  enum class Kind {
    kSource,  // on the source axis
    kSearch,  // on the target axis
    kAlign,   // on the target axis; the alignment is asked for
  };
  TranslateSequence* sequence = nullptr;
  size_t share = 0;  // of the step
  Kind kind = Kind::kSource;
  int place = 0;  // of the hypothesis, in the search or among those that were found
  const int32_t* ids = nullptr;
  int count = 0;
  int position = 0;  // of the first of them in its hypothesis, BOS being at 0
  kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
  // kSearch: the first of the tokens are followed by these, whose log-probabilities are asked for.
  const int32_t* targets = nullptr;
  int num_targets = 0;
  int num_candidates = 0;  // kSearch: asked for after the last token
  int num_weights = 0;     // kAlign: of a token, which are as many as the source has tokens
};

class TranslateSequence : public batching::StepSequence {
 public:
  // Of sentence `index` of the call, which has a source. `model`, a translator, must outlive the
  // sequence.
  TranslateSequence(std::shared_ptr<PendingTranslation> call, size_t index,
                    const models::Model& model);
  ~TranslateSequence() override;

  batching::StepNeed need() const override;
  bool holds_state() const override { return arena_ != nullptr; }
  void Rewind() override;
  void Suspend() override { suspended_ = true; }
  batching::StepProgress OnStep(const batching::StepTimes& step) override;
  void Deliver() override {}
  void End(const absl::Status& status, const batching::RequestTimes& times) override;

  // The ids that may be in the translation, ascending; empty: all may. There once the source is in
  // a step.
  const std::vector<int32_t>& choices() const { return choices_; }

  // For the stepper. Appends what the next step of up to `rows` rows needs, with slots of `arena`.
  // Of items whose alignment is asked for, at most as many tokens as have `most_weights` together.
  // An error changes nothing that matters; kResourceExhausted: there is no memory for its slots.
  absl::Status Plan(int rows, int64_t most_weights,
                    const std::shared_ptr<kernels::StateArena>& arena, size_t share,
                    std::vector<TranslateItem>* items);

  // The results of an item, as far as it asks for them: `log_probs` [num_targets], `candidates`
  // [num_candidates] and `weights` [count][num_weights].
  struct Results {
    const float* log_probs = nullptr;
    const kernels::Candidate* candidates = nullptr;
    const float* weights = nullptr;
  };
  // The item has run. An error ends the sentence, except for kResourceExhausted.
  absl::Status Commit(const TranslateItem& item, const Results& results);

 private:
  void MakeChoices();
  void FreeSlot(kernels::StateArena::Slot* slot);
  void FreeSlots(std::vector<kernels::StateArena::Slot>* slots);
  absl::Status BeginSearch();
  // All live hypotheses have their candidates.
  absl::Status StepSearch();
  absl::Status Reorder();
  // Of a search that is done: takes the hypotheses.
  void FinishSearch();
  absl::Status BeginAlignment();
  void PlanAlignment(int rows, int64_t most_weights, TranslateItem item,
                     std::vector<TranslateItem>* items) const;
  // Tokens of the hypotheses that were found and have not been aligned.
  int64_t TokensToAlign() const;

  std::shared_ptr<PendingTranslation> call_;  // null after the end
  TranslateTask& task_;                       // of the call; not used after the end
  const models::TranslatorConfig& config_;
  const models::Translator& model_;
  const size_t num_candidates_;
  std::vector<int32_t> begin_;    // BOS and the prefix
  std::vector<int32_t> choices_;  // made once, whatever is computed again

  std::shared_ptr<kernels::StateArena> arena_;  // that the slots are of; null: there are none
  // The encoded sentence. With the alignment it stays as it is; else it is the first hypothesis'
  // slot.
  kernels::StateArena::Slot source_slot_ = kernels::StateArena::kNoSlot;
  bool encoded_ = false;
  bool suspended_ = false;
  bool done_ = false;

  // The search. `slots_` are those of the live hypotheses, in the order of their places.
  std::optional<models::BeamSearch> search_;
  std::vector<kernels::StateArena::Slot> slots_;
  size_t begun_ = 0;  // of begin_, tokens that have been fed
  std::vector<float> prefix_log_probs_;
  std::vector<int32_t> last_tokens_;            // [place]
  std::vector<kernels::Candidate> candidates_;  // [place][num_candidates_]
  std::vector<bool> fed_;                       // [place]
  int num_fed_ = 0;
  bool reorder_ = false;  // the slots are yet to be brought into the order of the last step
  std::vector<int> parents_;

  // What was found, and its alignment.
  bool found_ = false;
  std::vector<kernels::StateArena::Slot> aligned_slots_;  // [hypothesis]; empty: not begun
  std::vector<size_t> aligned_;                           // [hypothesis]: tokens
  std::vector<std::vector<int32_t>> aligned_ids_;  // [hypothesis]: BOS and all tokens but the last

  int steps_ = 0;
  int most_steps_ = 0;  // before a Rewind(); they were computed, whatever becomes of the sentence
};

// The runner of steps of TranslateSequences. `model`, a translator, must outlive the runner. The
// place's arena is shared with the other runners of its device.
absl::StatusOr<std::unique_ptr<batching::StepRunner>> MakeTranslateStepper(
    const models::Model& model, const batching::RunnerPlace& place);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_SEQUENCE_H_
