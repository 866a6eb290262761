// ProgramRun: a compiled program, the workspace of one worker, and what its next run takes and
// gives. ProgramRunner: what runners of batches and of steps that use one have in common.
#ifndef SRU_SERVER_TASKS_PROGRAMS_PROGRAM_RUN_H_
#define SRU_SERVER_TASKS_PROGRAMS_PROGRAM_RUN_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "models/kernel_status.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/warm_up.h"

namespace sru::server::tasks {

class ProgramRun {
 public:
  // Both must outlive it. `limits` are those of the axes; the device and the turn are those of
  // `place`.
  static absl::StatusOr<ProgramRun> Create(const kernels::ProgramExecutable& executable,
                                           const kernels::Program& program,
                                           kernels::ProgramLimits limits,
                                           const kernels::WorkspaceLimits& place) {
    limits.device = place.device;
    limits.turn = place.turn;
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    SRU_RETURN_UNLESS_OK(models::ToAbslStatus(executable.CreateWorkspace(limits, &workspace)));
    return ProgramRun(executable, program, std::move(workspace));
  }

  const kernels::ProgramLimits& limits() const { return workspace_->limits(); }

  // They keep what they are given from one run to the next.
  kernels::AxisBatch& axis(kernels::AxisId id) { return axes_[id]; }
  kernels::InputBatch& input(kernels::InputId id) { return inputs_[id]; }
  kernels::OutputBatch& output(int id) { return outputs_[id]; }

  // `arena` has the slots of the axes; null: they have none.
  absl::Status Run(kernels::StateArena* arena = nullptr) {
    kernels::ProgramBatch batch;
    batch.axes = axes_.data();
    batch.inputs = inputs_.data();
    batch.arena = arena;
    return models::ToAbslStatus(executable_->Run(batch, outputs_.data(), *workspace_));
  }

 private:
  ProgramRun(const kernels::ProgramExecutable& executable, const kernels::Program& program,
             std::unique_ptr<kernels::ProgramWorkspace> workspace)
      : executable_(&executable),
        workspace_(std::move(workspace)),
        axes_(program.axes.size()),
        inputs_(program.inputs.size()),
        outputs_(program.outputs.size()) {}

  const kernels::ProgramExecutable* executable_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::vector<kernels::AxisBatch> axes_;
  std::vector<kernels::InputBatch> inputs_;
  std::vector<kernels::OutputBatch> outputs_;
};

using SequenceTasks = std::vector<const batching::SequenceTask*>;  // of a batch

// `Runner` is a BatchRunner or a StepRunner.
template <typename Runner>
class ProgramRunner : public Runner {
 public:
  int device() const final { return limits_.device; }
  absl::Status WarmUp() final {
    return batching::WarmUpBySize(limits_.max_tokens,
                                  [this](int tokens) { return RunWarmUpBatch(tokens); });
  }

 protected:
  ProgramRunner(ProgramRun run, const kernels::WorkspaceLimits& limits)
      : run_(std::move(run)), limits_(limits) {}

  // Runs a batch of that many tokens, whose results nobody reads.
  virtual absl::Status RunWarmUpBatch(int num_tokens) = 0;

  ProgramRun run_;
  const kernels::WorkspaceLimits limits_;  // limits.states is not read
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_PROGRAMS_PROGRAM_RUN_H_
