// The memory of one worker of the CPU backend.
#ifndef SRU_KERNELS_CPU_STACKS_CPU_WORKSPACE_H_
#define SRU_KERNELS_CPU_STACKS_CPU_WORKSPACE_H_

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/cpu/stacks/product_input.h"

namespace sru::kernels::cpu {

class CpuWorkspace : public Workspace {
 public:
  // For at most `threads` threads on one batch.
  CpuWorkspace(const PackedStack& stack, const WorkspaceLimits& limits, int threads)
      : limits_(limits) {
    const size_t rows = static_cast<size_t>(limits.max_tokens) + kMaxChunkRows;
    size_t stride = stack.input.stride();
    size_t hidden = 0;
    size_t u_size = 0;
    size_t most_parts = 1;
    std::unordered_map<const ProductShape*, const Product*> products;
    if (stack.input_to_hidden != nullptr) {
      stride = std::max<size_t>(stride, stack.input_to_hidden->n());
      input_to_hidden = std::make_unique<ProductRunner>(*stack.input_to_hidden);
    }
    for (const Layer& layer : stack.layers) {
      stride = std::max<size_t>(stride, layer.output.stride());
      hidden = std::max<size_t>(hidden, layer.output.padded());
      inputs.push_back(std::make_unique<ProductInput>(layer, limits.max_tokens));
      most_parts = std::max(most_parts, layer.parts.size());
      for (const Part& part : layer.parts) {
        // With room for the product's last bucket.
        u_size = std::max<size_t>(
            u_size, static_cast<size_t>(part.product->max_rows()) * part.product->n());
        products.emplace(&part.product->shape(), part.product.get());
      }
    }
    x = AlignedBuffer(rows * stride);
    h = AlignedBuffer(rows * stride);
    for (size_t i = 0; i < std::min<size_t>(most_parts, threads); ++i) {
      scratch.push_back({AlignedBuffer(u_size), AlignedBuffer(hidden), {}});
      for (const auto& [shape, product] : products) {
        scratch.back().runners.try_emplace(shape, *shape, product->engine());
      }
    }
    pool_row.resize(limits.max_sequences);
    after.resize(limits.max_sequences);
    token_rows.resize(limits.max_sequences);
    const size_t pooled_rows = static_cast<size_t>(limits.max_sequences) + kClassifierRows;
    pooled = AlignedBuffer(pooled_rows * stack.layers.back().output.stride());
    if (stack.classifier != nullptr) {
      classifier = std::make_unique<ProductRunner>(*stack.classifier);
      logits = AlignedBuffer(pooled_rows * stack.classifier->n());
    }
  }

  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override {
    size_t bytes =
        x.bytes() + h.bytes() + pooled.bytes() + logits.bytes() + pool_row.size() * sizeof(int);
    bytes += (after.size() + token_rows.size()) * sizeof(float*);
    for (const Scratch& s : scratch) bytes += s.u.bytes() + s.c.bytes();
    for (const auto& input : inputs) bytes += input->bytes();
    return bytes;
  }

  // What one thread needs.
  struct Scratch {
    AlignedBuffer u;  // one chunk of one part
    AlignedBuffer c;  // state of the sequence that is being scanned
    // Of the parts' products. Layers share them: what a runner has for each number of rows adds up.
    std::unordered_map<const ProductShape*, ProductRunner> runners;
  };

  std::unique_ptr<ProductRunner> input_to_hidden;
  std::vector<std::unique_ptr<ProductInput>> inputs;  // [layer]
  std::unique_ptr<ProductRunner> classifier;
  std::vector<Scratch> scratch;

  // Rows have room for a product's last bucket after the batch's tokens.
  AlignedBuffer x;            // a layer's input, [tokens][stride]
  AlignedBuffer h;            // its output
  AlignedBuffer pooled;       // [sequences that need one][stride]
  AlignedBuffer logits;       // as pooled
  std::vector<int> pool_row;  // [sequence]: its row in `pooled`, or -1
  // [sequence] of a batch of single rows: its final_state and token_vectors.
  std::vector<float*> after;
  std::vector<float*> token_rows;

 private:
  WorkspaceLimits limits_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_CPU_WORKSPACE_H_
