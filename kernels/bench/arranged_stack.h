// A stack in bfloat16 by tiles, on one thread, with a chosen arrangement (cpu/tiles/tile_arrangement.h) instead
// of the table's.
#ifndef SRU_KERNELS_BENCH_ARRANGED_STACK_H_
#define SRU_KERNELS_BENCH_ARRANGED_STACK_H_

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/stacks/tile_run.h"
#include "kernels/cpu/stacks/tile_stack.h"

namespace sru::kernels {

// The instruction set of `hardware`. kInvalidArgument if it has no tiles.
Status ChooseTiles(const BackendOptions& hardware, cpu::CpuIsa* isa);

class ArrangedStack {
 public:
  // kInvalidArgument if the tiles have no arrangement of that name. Throws std::bad_alloc.
  static Status Create(const StackSpec& spec, const BackendOptions& hardware,
                       const std::string& arrangement, const WorkspaceLimits& limits,
                       std::unique_ptr<ArrangedStack>* arranged);

  // As Executable::Run() with valid arguments.
  void Run(const RaggedBatch& batch, const SequenceOutput* outputs) {
    RunTileBatch(stack_, batch, outputs, workspace_, parallel_);
  }

 private:
  ArrangedStack(const StackSpec& spec, const cpu::TileKernel& kernel,
                const cpu::TileArrangement& arrangement, const WorkspaceLimits& limits);

  const cpu::TileArrangement arrangement_;
  cpu::TileStack stack_;
  cpu::ParallelRunner parallel_;
  cpu::TileWorkspace workspace_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_ARRANGED_STACK_H_
