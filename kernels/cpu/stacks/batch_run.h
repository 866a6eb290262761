// The forward pass of one ragged batch on the CPU, and the memory of one worker for it.
#ifndef SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_
#define SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/stacks/forward_pass.h"
#include "kernels/cpu/stacks/packed_stack.h"

namespace sru::kernels::cpu {

class CpuWorkspace : public StackWorkspace {
 public:
  // For at most `threads` threads on one batch.
  CpuWorkspace(const PackedStack& stack, const WorkspaceLimits& limits, int threads,
               std::shared_ptr<RunMemory> memory)
      : StackWorkspace(stack.classifier, stack.layers.back().output, limits, std::move(memory)) {
    const size_t rows = static_cast<size_t>(limits.max_tokens) + kMaxChunkRows;
    size_t stride = stack.input.stride();
    size_t hidden = 0;
    size_t u_size = 0;
    size_t most_parts = 1;
    std::vector<const ProductShape*> shapes;
    if (stack.input_to_hidden != nullptr) {
      stride = std::max<size_t>(stride, stack.input_to_hidden->n());
      input_to_hidden = std::make_unique<ProductRunner>(*stack.input_to_hidden);
    }
    for (const Layer& layer : stack.layers) {
      stride = std::max<size_t>(stride, layer.output.stride());
      hidden = std::max<size_t>(hidden, layer.output.padded());
      inputs.push_back(std::make_unique<ProductInput>(layer));
      normalized.AtLeast(rows * ProductInput::NormalizedWidth(layer));
      projected.AtLeast(rows * ProductInput::ProjectedWidth(layer));
      most_parts = std::max(most_parts, layer.parts.size());
      for (const Part& part : layer.parts) {
        // With room for the product's last bucket.
        u_size = std::max<size_t>(
            u_size, static_cast<size_t>(part.product->max_rows()) * part.product->n());
        shapes.push_back(&part.product->shape());
      }
    }
    x.AtLeast(rows * stride);
    h.AtLeast(rows * stride);
    // Rows of arrays that are whole pages apart would get into each other's way in the first-level
    // cache, where a scan reads and writes several.
    constexpr size_t kApart = 9 * RunPlan::kLine / sizeof(float);
    for (RunArray<float>* array : {&x, &h, &normalized, &projected, &pooled, &logits}) {
      array->AtLeast(array->size() + kApart);
      plan.Add(array);
    }
    scratch.resize(std::min<size_t>(most_parts, threads));
    for (Scratch& s : scratch) {
      s.u.AtLeast(u_size);
      s.c.AtLeast(hidden);
      plan.Add(&s.u);
      plan.Add(&s.c);
      for (const ProductShape* shape : shapes) s.runners.try_emplace(shape, *shape);
    }
    plan.Close();
    after.resize(limits.max_sequences);
    token_rows.resize(limits.max_sequences);
  }

  // The memory of one thread.
  struct Scratch {
    RunArray<float> u;  // one chunk of one part
    RunArray<float> c;  // state of the sequence that is being scanned
    // One runner for all products of a shape: layers share it, since the memory that a runner keeps
    // for each number of rows adds up.
    std::unordered_map<const ProductShape*, ProductRunner> runners;
  };

  std::unique_ptr<ProductRunner> input_to_hidden;
  std::vector<std::unique_ptr<ProductInput>> inputs;  // [layer]
  std::vector<Scratch> scratch;

  // Rows have room for a product's last bucket after the batch's tokens.
  RunArray<float> x;           // a layer's input, [tokens][stride]
  RunArray<float> h;           // its output
  RunArray<float> normalized;  // as ProductInput has them
  RunArray<float> projected;
  // [sequence] of a batch of single rows: its final_state and token_vectors.
  std::vector<float*> after;
  std::vector<float*> token_rows;
};

// The arguments are those of Executable::Run() and valid. Throws dnnl::error.
void RunBatch(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
              CpuWorkspace& workspace, ParallelRunner& parallel);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_BATCH_RUN_H_
