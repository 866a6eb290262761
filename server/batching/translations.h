// Translations: calls of many sentences each, of one version of a translator.
//
// Submit() admits a call or refuses it at once, as a whole. Each step of a worker encodes the sources of
// some sentences and adds a token to every hypothesis of others (sequence_scheduler.h has the rules). A
// sentence that is finished leaves at once; the call is answered when all of its sentences are.
//
// The same sentence gives the same hypotheses whatever else runs.
//
// Errors of Submit(), which are those of the batcher (batcher.h, reject_reason.h):
//   kInvalidArgument    a field is out of range; the message names it
//   kUnavailable        Drain() was called (kDraining), or no worker is left (kNoWorker)
//   kDeadlineExceeded   the deadline has passed already
//   kResourceExhausted  the bound on waiting sentences or on their tokens would be passed (kQueueFull),
//                       or, with admission by deadline, the call would end too late by the measured
//                       speed (kDeadline)
// If the status is OK, the `done` of the call is called exactly once:
//   OK                  every sentence is translated
//   kDeadlineExceeded   the deadline has passed, maybe between two tokens
//   kCancelled          Cancel() was called
//   kUnavailable        the server drains, or every device has failed
//   kResourceExhausted  there is no memory for the states of a sentence even alone
// or another error of the model's run. One sentence's error is that of the call, whose other sentences
// are given up.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_TRANSLATIONS_H_
#define SRU_SERVER_BATCHING_TRANSLATIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/decoding/beam_search.h"
#include "server/batching/batcher.h"
#include "server/batching/reject_reason.h"

namespace sru::server::batching {

// One sentence.
struct TranslateTask {
  std::vector<int32_t> source;  // may be empty: it is not run then, and its translation is empty
  models::SearchOptions search;
  // What its translation begins with; shorter than search.max_length.
  std::vector<int32_t> prefix;
  bool alignment = false;
};

// A translation that was found.
struct TranslatedHypothesis {
  std::vector<int32_t> tokens;  // without BOS and EOS
  bool finished = false;        // it ended with EOS
  double log_prob = 0;
  double score = 0;
  std::vector<float> alignment;  // [tokens][source], if asked for
};

// Of one sentence: the best first.
struct TranslationResult {
  std::vector<TranslatedHypothesis> hypotheses;
};

struct TranslateTimes {
  absl::Duration
      queue;  // from Submit() until a sentence was in a step first, or to the end without one
  absl::Duration compute;  // of all steps that a sentence was part of, each counted once
};

struct TranslationRequest {
  std::vector<TranslateTask> sentences;  // at least one
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  // Called exactly once, from a thread of Translations or from Submit(), Cancel() or Drain(), with no
  // lock held. With OK there are as many results as sentences, else none. Does not throw.
  std::function<void(const absl::Status&, std::vector<TranslationResult>&&, const TranslateTimes&)>
      done;
};

// A call that was accepted. Opaque; keeps the call's bookkeeping alive.
class PendingTranslation;
using TranslateHandle = std::shared_ptr<PendingTranslation>;

// Is told of steps, from the workers' threads.
class TranslateObserver {
 public:
  virtual ~TranslateObserver() = default;

  // A step that ran, or failed, with so many sentences.
  virtual void OnTranslationStep(int sentences, absl::Duration compute,
                                 const absl::Status& status) = 0;
};

// Counts and levels, for metrics. Cheap enough to be read on every scrape.
struct TranslationStats {
  int64_t running = 0;  // sentences that have had a step
  int64_t waiting = 0;  // sentences that have not
  int64_t waiting_tokens = 0;
  int64_t steps = 0;          // since the start
  int64_t source_tokens = 0;  // encoded since the start
  int64_t new_tokens = 0;     // of the translations that were found, since the start
  int64_t expired = 0;        // calls whose deadline passed
  int64_t cancelled =
      0;  // sentences, those that an error of another one of their call ended included
  int64_t replayed = 0;   // times that a sentence was computed again
  RejectCounts rejected;  // calls
};

class Translations {
 public:
  virtual ~Translations() = default;

  // See above. If the call is refused because of a bound or its deadline, and `retry_after` is not
  // null, it is set as Batcher::Submit() does. `done` may be called before this returns.
  virtual absl::StatusOr<TranslateHandle> Submit(TranslationRequest&& request,
                                                 absl::Duration* retry_after = nullptr) = 0;

  // What Submit() would say now to so many sentences of that many tokens together, without its exact
  // rules. A refusal counts as one of Submit().
  virtual absl::Status CheckAdmission(int64_t source_tokens, int64_t sentences, Priority priority,
                                      absl::Time deadline,
                                      absl::Duration* retry_after = nullptr) = 0;

  // The caller is gone. Sentences that are in no step end before this returns, others with the step. May
  // be called at any time, also after `done`.
  virtual void Cancel(const TranslateHandle& handle) = 0;

  // Refuses new calls and waits until all have ended; those that are left at `deadline` get kUnavailable.
  // Returns true if none was cut off.
  virtual bool Drain(absl::Time deadline) = 0;

  virtual TranslationStats stats() const = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_TRANSLATIONS_H_
