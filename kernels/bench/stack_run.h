// A compiled stack on a batch of sequences of equal lengths with random input.
#ifndef SRU_KERNELS_BENCH_STACK_RUN_H_
#define SRU_KERNELS_BENCH_STACK_RUN_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {

// Computes what a call would get: probabilities if the stack classifies, else its pooled vectors,
// else token vectors.
class StackRun {
 public:
  // The executable is that of `spec` and must outlive this.
  StackRun(const StackSpec& spec, const Executable& executable, int length, int batch)
      : executable_(executable),
        random_(spec, std::vector<int>(batch, length), /*initial_state=*/false, 2),
        batch_(random_.view()),
        outputs_(batch) {
    const bool classifies = spec.num_labels > 0;
    const bool pools = spec.pooling != Pooling::kNone;
    const size_t each = classifies ? spec.num_labels : spec.output_size() * (pools ? 1 : length);
    values_.resize(each * batch);
    for (int b = 0; b < batch; ++b) {
      SequenceOutput& out = outputs_[b];
      out.pooling = spec.pooling;
      (classifies ? out.probabilities
       : pools    ? out.pooled
                  : out.token_vectors) = &values_[b * each];
    }
    status_ = executable.CreateWorkspace({length * batch, batch}, &workspace_);
  }

  // The first error of all.
  const Status& status() const { return status_; }
  void Run() {
    if (status_.ok()) status_ = executable_.Run(batch_, outputs_.data(), *workspace_);
  }

 private:
  const Executable& executable_;
  const testing::RandomBatch random_;
  const RaggedBatch batch_;
  std::vector<float> values_;
  std::vector<SequenceOutput> outputs_;
  std::unique_ptr<Workspace> workspace_;
  Status status_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_STACK_RUN_H_
