// TranslateSequence: one sentence of a call, as a sequence of steps.
//
//   1. Its source is encoded in one step, on a slot of the arena.
//   2. BOS and the prefix are fed, and predict the first token.
//   3. Each step feeds the last token of every live hypothesis. What one predicts decides, once all have
//      been fed (models/decoding/beam_search.h), which of them go on: the slots are reordered, which moves
//      no values.
//   4. If the alignment is asked for, the hypotheses that were found are fed once more, as a whole, from a
//      copy of the slot after 1. Their results are the same bits as in 3, and only theirs are kept.
//
// Everything can be computed again from the start (Rewind()), with the same result, which goes to the call
// when the sentence has ended.
//
// PendingTranslation: a call, which is answered when its last sentence has ended.
//
// Thread-safety: a sequence's as StepSequence says; the functions for the stepper are called by the runner
// of the step that it is in. A call's functions are thread-safe.
#ifndef SRU_SERVER_BATCHING_TRANSLATE_SEQUENCE_H_
#define SRU_SERVER_BATCHING_TRANSLATE_SEQUENCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/decoding/beam_search.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/step_runner.h"
#include "server/batching/translations.h"

namespace sru::server::batching {

// How calls have ended.
struct TranslationCounts {
  std::atomic<int64_t> expired{0};
  std::atomic<int64_t> cancelled{0};
};

class PendingTranslation {
 public:
  // `scheduler` and `counts` must live until the call is answered. The results of sentences without a
  // source are there at once.
  PendingTranslation(TranslationRequest&& request, SequenceScheduler* scheduler,
                     TranslationCounts* counts, absl::Time submitted);

  // Constant until the call is answered.
  const TranslateTask& task(size_t index) const { return request_.sentences[index]; }
  size_t size() const { return request_.sentences.size(); }
  const TranslationRequest& request() const { return request_; }

  // What the scheduler has made of the sentences with a source. Some of them may have ended before.
  void SetHandles(std::vector<SequenceHandle> handles) noexcept;
  void Cancel();

  // A step with a sentence of this call has run; `number` tells steps apart.
  void OnStep(int64_t number, absl::Time start, absl::Time end);
  // Called once for each sentence with a source. May answer the call.
  void OnSentence(size_t index, const absl::Status& status, TranslationResult&& result);
  // Answers a call of which no sentence has a source.
  void AnswerEmpty() { Answer(); }

 private:
  void CancelSentences();
  void Answer();

  TranslationRequest request_;  // constant until the call is answered
  SequenceScheduler* const scheduler_;
  TranslationCounts* const counts_;
  const absl::Time submitted_;

  Mutex mutex_;
  std::vector<SequenceHandle> handles_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // what the call ends with; the first one counts
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;       // sentences that have not ended
  std::vector<TranslationResult> results_ ABSL_GUARDED_BY(mutex_);
  int64_t last_step_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::Time first_start_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Duration compute_ ABSL_GUARDED_BY(mutex_);
};

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
  kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
  // kSearch: the first of the tokens are followed by these, whose log-probabilities are asked for.
  const int32_t* targets = nullptr;
  int num_targets = 0;
  int num_candidates = 0;  // kSearch: asked for after the last token
  int num_weights = 0;     // kAlign: of a token, which are as many as the source has tokens
};

class TranslateSequence : public StepSequence {
 public:
  // What is the same for all sentences of a model.
  struct Model {
    int32_t bos_id = 0;
    int32_t eos_id = 0;
    int max_candidates = 0;
  };

  // Of sentence `index` of the call, which has a source.
  TranslateSequence(std::shared_ptr<PendingTranslation> call, size_t index, const Model& model);
  ~TranslateSequence() override;

  StepNeed need() const override;
  bool holds_state() const override { return arena_ != nullptr; }
  void Rewind() override;
  void Suspend() override { suspended_ = true; }
  void Deliver() override {}
  void End(const absl::Status& status, const RequestTimes& times) override;

  // For the stepper. Appends what the next step of up to `rows` rows needs, with slots of `arena`. Of
  // items whose alignment is asked for, at most as many tokens as have `most_weights` together. An error
  // changes nothing that matters; kResourceExhausted: there is no memory for its slots.
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

  // The tokens of the source if it has been encoded since the last call.
  int TakeSourceTokens();
  // Valid until End().
  PendingTranslation& call() const { return *call_; }

  // Of a sentence that is translated: for predictions.
  bool done() const { return done_; }
  int steps() const { return steps_; }
  int new_tokens() const;  // of its translations, with their ends
  int source_tokens() const { return static_cast<int>(task_.source.size()); }

 private:
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
  const TranslateTask& task_;                 // of the call
  const size_t index_;
  const Model model_;
  const size_t num_candidates_;
  std::vector<int32_t> begin_;  // BOS and the prefix

  std::shared_ptr<kernels::StateArena> arena_;  // that the slots are of; null: there are none
  // The encoded sentence. With the alignment it stays as it is; else it is the first hypothesis' slot.
  kernels::StateArena::Slot source_slot_ = kernels::StateArena::kNoSlot;
  bool encoded_ = false;
  bool suspended_ = false;
  bool done_ = false;

  // The search. `slots_` are those of the live hypotheses, in the order of their places.
  std::optional<models::BeamSearch> search_;
  std::vector<kernels::StateArena::Slot> slots_;
  size_t begun_ = 0;  // of begin_, tokens that have been fed
  double prefix_log_prob_ = 0;
  std::vector<int32_t> last_tokens_;            // [place]
  std::vector<kernels::Candidate> candidates_;  // [place][num_candidates_]
  std::vector<bool> fed_;                       // [place]
  int num_fed_ = 0;
  bool reorder_ = false;  // the slots are yet to be brought into the order of the last step
  std::vector<int> parents_;

  // What was found, and its alignment.
  bool found_ = false;
  TranslationResult result_;
  std::vector<kernels::StateArena::Slot> aligned_slots_;  // [hypothesis]; empty: not begun
  std::vector<size_t> aligned_;                           // [hypothesis]: tokens
  std::vector<std::vector<int32_t>> aligned_ids_;  // [hypothesis]: BOS and all tokens but the last

  int steps_ = 0;
  int source_tokens_ = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_TRANSLATE_SEQUENCE_H_
