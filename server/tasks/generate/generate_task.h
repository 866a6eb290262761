// GenerateTask: a call of Generate, texts that go on token by token from one prompt, as its
// computation sees it.
//
// Each step of a worker runs one token of every text that is ready, and chunks of prompts beside
// them (batching/steps/sequence_scheduler.h has the rules). What a step adds to a text goes to the
// call's sink.
//
// The same call gives the same tokens whatever else runs, however often it is paused, and when it
// goes on from a state that an earlier one returned.
#ifndef SRU_SERVER_TASKS_GENERATE_GENERATE_TASK_H_
#define SRU_SERVER_TASKS_GENERATE_GENERATE_TASK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/program.h"
#include "models/decoding/sampling_options.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/queue/reject_reason.h"
#include "sru/v1/inference.pb.h"

namespace sru::models {
struct SequenceState;  // state_codec.h
}

namespace sru::server::tasks {

// Those of v1::FinishReason.
enum class FinishReason {
  kNone = v1::FINISH_REASON_UNSPECIFIED,  // the text goes on, or has been cut off
  kLength = v1::FINISH_REASON_LENGTH,     // it has max_new_tokens tokens
  kStop = v1::FINISH_REASON_STOP,         // a stop string or a stop token came
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
  // num_candidates for each of token_ids, the best first; the first token of a fresh prompt has
  // none, so there are num_candidates fewer then.
  std::vector<kernels::Candidate> candidates;

  // The rest is set in a sample's last chunk only.
  bool last = false;
  FinishReason finish = FinishReason::kNone;
  std::string state;  // as bytes of the model's StateCodec; empty: not asked for, or there is none
  int prompt_tokens = 0;
  int generated_tokens = 0;
};

// What one sample has added since it was last taken. Not thread-safe.
struct WaitingChunk {
  // Adds what comes next, all of which may be taken.
  void Append(GeneratedChunk&& next) {
    if (!std::exchange(ready, true)) {
      chunk = std::move(next);
      return;
    }
    const auto append = [](auto* to, const auto& from) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(&chunk.text, next.text);
    append(&chunk.token_ids, next.token_ids);
    append(&chunk.log_probs, next.log_probs);
    append(&chunk.candidates, next.candidates);
    if (!next.last) return;
    chunk.last = true;
    chunk.finish = next.finish;
    chunk.state = std::move(next.state);
    chunk.prompt_tokens = next.prompt_tokens;
    chunk.generated_tokens = next.generated_tokens;
  }

  GeneratedChunk Take() {
    ready = false;
    GeneratedChunk taken = std::exchange(chunk, GeneratedChunk());
    chunk.sample = taken.sample;
    return taken;
  }

  GeneratedChunk chunk;
  bool ready = false;  // it may be taken
};

// Where a call's text goes. Called from threads of the workers, and of callers of Submit(),
// Cancel() and Drain(), with no lock held and never by two threads at once. Must not block, and
// must live until OnEnd() has returned. May call Cancel(), Pause() and Resume().
class GenerateSink {
 public:
  virtual ~GenerateSink() = default;

  // What a step has added. A step of several samples gives a chunk for each of them.
  virtual void OnChunk(GeneratedChunk&& chunk) = 0;
  // Exactly once, after the last chunk: how the call has ended (step_service.h). With kUnavailable
  // each sample that had not ended has had a last chunk with its state, if its prompt had been
  // computed. `times`: until the first token, or the end without one, and of all steps that the
  // call was part of. `generated_tokens`: of all samples, also of those that were given up.
  virtual void OnEnd(const absl::Status& status, const batching::RequestTimes& times,
                     int64_t generated_tokens) = 0;
};

// Valid: fields are in range, and token ids in the vocabulary.
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
  // Whose kept states the prompt may go on from, and whose its own become (prefix_cache.h); empty:
  // nobody's.
  std::string prefix_owner;
  batching::Priority priority = batching::Priority::kNormal;
  batching::FlowHandle flow;  // of the caller
  absl::Time deadline = absl::InfiniteFuture();
  GenerateSink* sink = nullptr;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_GENERATE_GENERATE_TASK_H_
