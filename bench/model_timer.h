// ModelTimer: times a compiled model, without a server, on batches of random input.
//
//   ModelTimer timer(executable, spec, OutputKind::kAuto);
//   absl::Status status = timer.Prepare(lengths);     // input, outputs and a workspace that fits
//   status = timer.Run();                             // what is timed
//
// Not thread-safe. The executable and the specification must outlive it.
#ifndef SRU_BENCH_MODEL_TIMER_H_
#define SRU_BENCH_MODEL_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace sru::bench {

// Which outputs are computed for a sequence.
//   kAuto    probabilities if the model classifies, else its pooled vector, else token vectors
//   kTokens  token vectors
//   kStates  token vectors and the final states, as the published package returns
enum class OutputKind { kAuto, kTokens, kStates };

class ModelTimer {
 public:
  ModelTimer(const kernels::Executable& executable, const kernels::StackSpec& spec,
             OutputKind output);

  // Makes sequences of these lengths with random input: token ids, or features for a model without
  // words. The same lengths give the same input.
  absl::Status Prepare(const std::vector<int>& lengths);

  // Runs one batch.
  absl::Status Run();

  int num_tokens() const { return offsets_.back(); }
  // The features of the batch, [tokens][input_size], which the caller may change.
  std::vector<float>& features() { return features_; }
  // [tokens][output_size], with kTokens and kStates.
  const std::vector<float>& token_vectors() const { return token_vectors_; }

 private:
  const kernels::Executable& executable_;
  const kernels::StackSpec& spec_;
  OutputKind output_;
  std::unique_ptr<kernels::Workspace> workspace_;
  std::vector<int32_t> offsets_ = {0};
  std::vector<int32_t> token_ids_;
  std::vector<float> features_;
  std::vector<float> token_vectors_;
  std::vector<float> per_sequence_;  // outputs for a sequence as a whole
  std::vector<kernels::SequenceOutput> outputs_;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_MODEL_TIMER_H_
