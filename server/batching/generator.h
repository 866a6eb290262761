// Generator: texts that go on token by token, of one version of a language model.
//
// Submit() admits a call or refuses it at once. Each step of a worker runs one token of every text
// that is ready, and chunks of prompts beside them (sequence_scheduler.h has the rules). What a step
// adds to a text goes to the call's sink.
//
// The same call gives the same tokens whatever else runs, however often it is paused, and when it goes
// on from a state that an earlier one returned.
//
// Errors of Submit(), which are those of the batcher (batcher.h, reject_reason.h):
//   kInvalidArgument    a field is out of range; the message names it
//   kUnavailable        Drain() was called (kDraining), or no worker is left (kNoWorker)
//   kDeadlineExceeded   the deadline has passed already
//   kResourceExhausted  there are max_streams calls (kStreams), the bound on waiting prompt tokens would
//                       be passed (kQueueFull), or, with admission by deadline, the first token (or
//                       min_new_tokens tokens) would come too late by the measured speed (kDeadline)
// If the status is OK, the sink of the task gets OnDone() exactly once:
//   OK                  every sample has ended by itself
//   kDeadlineExceeded   the deadline has passed, maybe between two tokens
//   kCancelled          Cancel() was called
//   kUnavailable        the server drains, or every device has failed: each sample that had not ended has
//                       had a last chunk with its state, if its prompt had been computed
//   kResourceExhausted  there is no memory for the state of this call even alone
// or another error of the model's run.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_GENERATOR_H_
#define SRU_SERVER_BATCHING_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/program.h"
#include "models/decoding/sampling_options.h"
#include "server/batching/batcher.h"
#include "server/batching/reject_reason.h"

namespace sru::models {
struct SequenceState;  // state_codec.h
}

namespace sru::server::batching {

enum class FinishReason {
  kNone,    // the text goes on, or has been cut off
  kLength,  // it has max_new_tokens tokens
  kStop,    // a stop string or a stop token came
};

// Some more of one sample.
struct GeneratedChunk {
  int sample = 0;
  // Whole characters of UTF-8, which cannot be a part of a stop string.
  std::string text;
  // With echo, the first ones are the prompt's. The text of a token may come later than the token.
  std::vector<int32_t> token_ids;
  // [token_ids], if asked for; 0 for the first token of a fresh prompt.
  std::vector<float> log_probs;
  // num_candidates for each of token_ids, the best first; the first token of a fresh prompt has none,
  // so there are num_candidates fewer then.
  std::vector<kernels::Candidate> candidates;

  // The rest is set in a sample's last chunk only.
  bool last = false;
  FinishReason finish = FinishReason::kNone;
  std::string state;  // as bytes of the model's StateCodec; empty: not asked for, or there is none
  int prompt_tokens = 0;
  int generated_tokens = 0;
};

struct GenerateTimes {
  absl::Duration queue;    // from Submit() to the first token, or to the end without one
  absl::Duration compute;  // of all steps that the call was part of
};

// Where a call's text goes. Called from threads of the generator, and of callers of Submit(), Cancel()
// and Drain(), with no lock held and never by two threads at once. Must not block, and must live until
// OnDone() has returned. May call Cancel(), Pause() and Resume().
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;

  // What a step has added. A step of several samples gives a chunk for each of them.
  virtual void OnChunk(GeneratedChunk&& chunk) = 0;
  // Exactly once, after the last chunk.
  virtual void OnDone(const absl::Status& status, const GenerateTimes& times) = 0;
};

struct GenerateTask {
  std::vector<int32_t> prompt;  // may be empty with a state
  // Where the prompt goes on; null: it is the beginning.
  std::shared_ptr<const models::SequenceState> state;
  models::SamplingOptions sampling;
  uint64_t seed = 0;
  int num_samples = 1;
  int max_new_tokens = 1;  // at least 1
  int min_new_tokens = 0;  // at most max_new_tokens
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool echo = false;
  bool token_log_probs = false;
  bool return_state = false;
  int num_candidates = 0;
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  GenerateSink* sink = nullptr;
};

// A call that was accepted. Opaque; keeps the call's bookkeeping alive, not its sink.
class ScheduledSequence;
using GenerateHandle = std::shared_ptr<ScheduledSequence>;

// Is told of steps and tokens, from the workers' threads.
class GenerateObserver {
 public:
  virtual ~GenerateObserver() = default;

  // A step that ran, or failed. `new_tokens` are those that it picked.
  virtual void OnStep(int sequences, int prompt_tokens, int new_tokens, absl::Duration compute,
                      const absl::Status& status) = 0;
  // `duration` since Submit(). Once per call.
  virtual void OnFirstToken(absl::Duration duration) = 0;
  // A step of a call that has had tokens before: `duration` since the one before it, `tokens` of all of
  // its samples.
  virtual void OnNextToken(absl::Duration duration, int tokens) = 0;
};

// Counts and levels, for metrics. Cheap enough to be read on every scrape.
struct GeneratorStats {
  int64_t running = 0;  // calls that have had a step, without the paused ones
  int64_t waiting = 0;  // calls that have not
  int64_t paused = 0;
  int64_t waiting_tokens = 0;  // of prompts, not computed yet
  int64_t steps = 0;           // since the start
  int64_t prompt_tokens = 0;   // computed since the start
  int64_t new_tokens = 0;      // picked since the start
  int64_t expired = 0;         // calls whose deadline passed
  int64_t cancelled = 0;
  int64_t replayed =
      0;  // times that a call was computed again, after a device or for want of memory
  RejectCounts rejected;
};

class Generator {
 public:
  virtual ~Generator() = default;

  // See above. If the call is refused because of a bound or its deadline, and `retry_after` is not
  // null, it is set as Batcher::Submit() does. The sink may be called before this returns.
  virtual absl::StatusOr<GenerateHandle> Submit(GenerateTask&& task,
                                                absl::Duration* retry_after = nullptr) = 0;

  // What Submit() would say now to a prompt of that many tokens, without its exact rules. A refusal
  // counts as one of Submit().
  virtual absl::Status CheckAdmission(int64_t prompt_tokens, Priority priority, absl::Time deadline,
                                      absl::Duration* retry_after = nullptr) = 0;

  // The caller is gone. A call that is not in a step ends before this returns, another one with the
  // step. May be called at any time, also after OnDone().
  virtual void Cancel(const GenerateHandle& handle) = 0;

  // The reader is slow: the call takes no more steps until Resume(). At most one more step's chunks
  // come. Its deadline still runs. They do not count: Resume() undoes any number of Pause(). May be
  // called at any time.
  virtual void Pause(const GenerateHandle& handle) = 0;
  virtual void Resume(const GenerateHandle& handle) = 0;

  // Refuses new calls and waits until all have ended; those that are left at `deadline` get a last chunk
  // with their state and kUnavailable. Returns true if none was cut off.
  virtual bool Drain(absl::Time deadline) = 0;

  virtual GeneratorStats stats() const = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_GENERATOR_H_
