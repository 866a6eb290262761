// Greedy texts by a language model's program, for tests of whole models.
#ifndef SRU_TESTS_GOLDEN_GREEDY_CONTINUATION_H_
#define SRU_TESTS_GOLDEN_GREEDY_CONTINUATION_H_

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/program_executable.h"
#include "models/language_model.h"

namespace sru::testing {

// Feeds prompts[i] (none of their tokens, where it is empty) to slots[i], then as many times as
// `steps` says the symbol that is picked, the last one too. The picks of each sequence, with their
// log-probabilities.
inline std::vector<std::vector<kernels::Candidate>> ContinueGreedily(
    const kernels::ProgramExecutable& executable, const models::LanguageModel& model,
    const std::vector<std::vector<int32_t>>& prompts, int steps, kernels::StateArena* arena,
    const std::vector<kernels::StateArena::Slot>& slots, kernels::ProgramWorkspace* workspace) {
  const auto count = static_cast<int>(prompts.size());
  std::vector<std::vector<kernels::Candidate>> picks(prompts.size());
  std::vector<std::vector<int32_t>> next = prompts;
  std::vector<int32_t> rows(count);
  for (int i = 0; i < count; ++i) rows[i] = i;
  const std::vector<kernels::Sampling> greedy(count);
  const std::vector<int32_t> pick_offsets = {0, count};
  for (int step = 0; step <= steps; ++step) {
    std::vector<int32_t> offsets = {0}, ids;
    for (const std::vector<int32_t>& sequence : next) {
      ids.insert(ids.end(), sequence.begin(), sequence.end());
      offsets.push_back(static_cast<int32_t>(ids.size()));
    }
    std::vector<kernels::AxisBatch> axes(model.program.axes.size());
    axes[model.tokens].num_sequences = count;
    axes[model.tokens].offsets = offsets.data();
    axes[model.tokens].slots = slots.data();
    std::vector<kernels::InputBatch> inputs(model.program.inputs.size());
    inputs[model.ids].ids = ids.empty() ? nullptr : ids.data();
    std::vector<kernels::OutputBatch> outputs(model.program.outputs.size());
    std::vector<kernels::Candidate> picked(count);
    if (step < steps) {  // the last step feeds the last pick only
      axes[model.picks].num_sequences = 1;
      axes[model.picks].offsets = pick_offsets.data();
      inputs[model.pick_sequences].ids = rows.data();
      inputs[model.sampling].sampling = greedy.data();
      outputs[model.picked].candidates = picked.data();
    }
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena;
    const kernels::Status status = executable.Run(batch, outputs.data(), *workspace);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return picks;
    for (int i = 0; i < count && step < steps; ++i) {
      picks[i].push_back(picked[i]);
      next[i] = {picked[i].id};
    }
  }
  return picks;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_GOLDEN_GREEDY_CONTINUATION_H_
