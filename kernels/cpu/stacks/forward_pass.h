// What the forward passes of batch_run.cc and tile_run.cc share: the batch, where its results go
// and the worker's memory: what it keeps, and the plan of the memory in which it runs a batch.
#ifndef SRU_KERNELS_CPU_STACKS_FORWARD_PASS_H_
#define SRU_KERNELS_CPU_STACKS_FORWARD_PASS_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/turn.h"

namespace sru::kernels::cpu {

class StackWorkspace : public Workspace {
 public:
  // `row` is that of the pooled vectors.
  StackWorkspace(const Classifier& of_stack, const RowLayout& row, const WorkspaceLimits& limits,
                 std::shared_ptr<RunMemory> memory)
      : plan(std::move(memory)), limits_(limits) {
    const size_t rows = static_cast<size_t>(limits.max_sequences) + kClassifierRows;
    pooled.AtLeast(rows * row.stride());
    pool_row.resize(limits.max_sequences);
    if (of_stack.product == nullptr) return;
    classifier = std::make_unique<ProductRunner>(*of_stack.product);
    logits.AtLeast(rows * of_stack.product->n());
  }

  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override { return plan.bytes(); }

  RunPlan plan;
  std::unique_ptr<ProductRunner> classifier;
  RunArray<float> pooled;     // [sequences that need one][stride]
  RunArray<float> logits;     // as pooled
  std::vector<int> pool_row;  // [sequence]: its row in `pooled`, or -1

 private:
  const WorkspaceLimits limits_;
};

inline void Softmax(const float* logits, int size, float* probabilities) {
  const float maximum = *std::max_element(logits, logits + size);
  float sum = 0;
  for (int i = 0; i < size; ++i) sum += probabilities[i] = std::exp(logits[i] - maximum);
  for (int i = 0; i < size; ++i) probabilities[i] /= sum;
}

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

  // Logits and probabilities of the sequences that want them. Throws dnnl::error.
  void ClassifyPooled() {
    if (!std::any_of(outputs_, outputs_ + sequences_,
                     [](const SequenceOutput& out) { return out.wants_labels(); })) {
      return;
    }
    const Product& classifier = *stack_.classifier.product;
    const AlignedBuffer& bias = stack_.classifier.bias;
    RunInChunks(classifier, *ws_.classifier, ws_.pooled.data(), num_pooled_, ws_.logits.data());
    const int labels = spec_.num_labels;
    for (int b = 0; b < sequences_; ++b) {
      const SequenceOutput& out = outputs_[b];
      if (!out.wants_labels()) continue;
      float* row = ws_.logits.data() + static_cast<size_t>(ws_.pool_row[b]) * classifier.n();
      for (size_t i = 0; i < bias.size(); ++i) row[i] += bias.data()[i];
      if (out.logits != nullptr) std::copy_n(row, labels, out.logits);
      if (out.probabilities != nullptr) Softmax(row, labels, out.probabilities);
    }
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
