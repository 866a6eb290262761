// The forward pass of one ragged batch in bfloat16 by tiles, and the memory of one worker for it.
#ifndef SRU_KERNELS_CPU_STACKS_TILE_RUN_H_
#define SRU_KERNELS_CPU_STACKS_TILE_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/cpu/stacks/tile_stack.h"

namespace sru::kernels::cpu {

class TileWorkspace : public Workspace {
 public:
  // For at most `threads` threads on one batch.
  TileWorkspace(const TileStack& stack, const WorkspaceLimits& limits, int threads);

  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override;

  std::vector<TileInput> inputs;  // [thread]
  std::unique_ptr<ProductRunner> classifier;

  // Rows in packed order (tile_kernel.h), with room for a tile's rows after the last.
  AlignedArray<BFloat16> x;           // a layer's input
  AlignedArray<BFloat16> h;           // its output
  AlignedArray<BFloat16> normalized;  // what its products multiply, where that is not x
  AlignedArray<BFloat16> projected;
  AlignedBuffer row;                  // one row before it is rounded
  AlignedBuffer state;                // [direction][block][sequence][16]
  AlignedBuffer pooled;               // [sequences that need one][stride]
  AlignedBuffer logits;               // as pooled
  std::vector<int32_t> order;         // [place]: the sequence, longest first
  std::vector<int32_t> first_row;     // [step]: where its rows begin
  std::vector<int32_t> place_of_row;  // [row]: place of its sequence
  std::vector<int32_t> token_of_row;  // [row]: its token's id
  std::vector<float*> h_of_row;       // [row]: its token vector, or null
  std::vector<Pooling> pooling;       // [place]
  std::vector<float*> pooled_of;      // [place]: its row in `pooled`, or null
  std::vector<int> pool_row;          // [sequence]: its row in `pooled`, or -1

 private:
  WorkspaceLimits limits_;
};

// The arguments are those of Executable::Run() and valid. Throws dnnl::error.
void RunTileBatch(const TileStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
                  TileWorkspace& workspace, ParallelRunner& parallel);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_TILE_RUN_H_
