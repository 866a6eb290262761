// What the forward passes of batch_run.cc and tile_run.cc share: the batch, where its results go
// and the worker's memory.
#ifndef SRU_KERNELS_CPU_STACKS_FORWARD_PASS_H_
#define SRU_KERNELS_CPU_STACKS_FORWARD_PASS_H_

#include "kernels/backend.h"
#include "kernels/common/outputs.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/stacks/classify.h"
#include "kernels/turn.h"

namespace sru::kernels::cpu {

template <typename Stack, typename StackWorkspace>
class ForwardPass {
 public:
  // Borrows everything.
  ForwardPass(const Stack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
              StackWorkspace& workspace, ParallelRunner& parallel)
      : stack_(stack),
        spec_(stack.spec),
        batch_(batch),
        outputs_(outputs),
        ws_(workspace),
        parallel_(parallel),
        tokens_(batch.num_tokens()),
        sequences_(batch.num_sequences),
        turn_(workspace.limits().turn) {}

 protected:
  int Length(int b) const { return batch_.offsets[b + 1] - batch_.offsets[b]; }
  Pooling PoolingOf(int b) const { return kernels::PoolingOf(spec_, outputs_[b]); }
  bool ScanFinishesOutputs() const { return kernels::ScanFinishesOutputs(spec_); }

  // Called between two parts of the work of ParallelRunner's `slot`. Only the caller's thread takes
  // turns: helpers work for a short time, and a batch waits for them.
  void MayEndTurn(int slot) {
    if (slot == 0) turn_.MayEnd();
  }

  // Calls body(item, slot) for each item, on several threads if that is worth it.
  template <typename Body>
  void ForEach(double operations, int items, const Body& body) {
    if (operations >= kMinSplitOperations) return parallel_.ForEach(items, body);
    for (int item = 0; item < items; ++item) body(item, 0);
  }

  // Gives each sequence that needs one a row of pooled vectors.
  void AssignPoolRows() {
    num_pooled_ = 0;
    for (int b = 0; b < sequences_; ++b) {
      ws_.pool_row[b] = PoolingOf(b) == Pooling::kNone ? -1 : num_pooled_++;
    }
  }

  void ClassifyPooled() {
    if (stack_.classifier == nullptr) return;
    Classify(spec_, *stack_.classifier, stack_.classifier_bias, *ws_.classifier, sequences_,
             outputs_, ws_.pool_row.data(), num_pooled_, ws_.pooled.data(), ws_.logits.data());
  }

  const Stack& stack_;
  const StackSpec& spec_;
  const RaggedBatch& batch_;
  const SequenceOutput* outputs_;
  StackWorkspace& ws_;
  ParallelRunner& parallel_;
  const int tokens_;
  const int sequences_;
  Turn turn_;  // begins with the batch
  int num_pooled_ = 0;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_FORWARD_PASS_H_
