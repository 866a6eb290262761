// The forward pass of one ragged batch in bfloat16 by tiles, and the memory of one worker for it.
#ifndef SRU_KERNELS_CPU_STACKS_TILE_RUN_H_
#define SRU_KERNELS_CPU_STACKS_TILE_RUN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/base/parallel_runner.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/stacks/forward_pass.h"
#include "kernels/cpu/stacks/tile_stack.h"

namespace sru::kernels::cpu {

class TileWorkspace : public StackWorkspace {
 public:
  // For at most `threads` threads on one batch.
  TileWorkspace(const TileStack& stack, const WorkspaceLimits& limits, int threads,
                std::shared_ptr<RunMemory> memory);

  std::vector<TileInput> inputs;  // [thread]

  // Rows in packed order (tile_kernel.h), with room for a tile's rows after the last.
  RunArray<BFloat16> x;           // a layer's input
  RunArray<BFloat16> h;           // its output
  RunArray<BFloat16> normalized;  // what its products multiply, where that is not x
  RunArray<BFloat16> projected;
  RunArray<float> row;             // one row before it is rounded
  RunArray<float> state;           // [direction][block][sequence][16]
  RunArray<int32_t> order;         // [place]: the sequence, longest first
  RunArray<int32_t> first_row;     // [step]: where its rows begin
  RunArray<int32_t> place_of_row;  // [row]: place of its sequence
  RunArray<int32_t> token_of_row;  // [row]: its token's id
  RunArray<float*> h_of_row;       // [row]: its token vector, or null
  std::vector<Pooling> pooling;    // [place]
  std::vector<float*> pooled_of;   // [place]: its row in `pooled`, or null
};

// The arguments are those of Executable::Run() and valid. Throws dnnl::error.
void RunTileBatch(const TileStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
                  TileWorkspace& workspace, ParallelRunner& parallel);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_TILE_RUN_H_
