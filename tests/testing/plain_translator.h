// PlainTranslator: translates one sentence at a time with one hypothesis per run of the program, to compare
// with. The alignment is that of the steps that chose the tokens.
#ifndef SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_
#define SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "models/decoding/beam_search.h"
#include "models/model.h"
#include "models/translator.h"
#include "server/batching/translations.h"

namespace sru::server {

class PlainTranslator {
 public:
  explicit PlainTranslator(const models::Model& model) : model_(model) {
    kernels::ProgramLimits limits =
        models::TranslatorLimits(*model.translator(), kMaxTokens, 1, kMaxTokens, 1);
    limits.max_attention_values = int64_t{kMaxTokens} * kMaxTokens;
    EXPECT_TRUE(model.program().CreateWorkspace(limits, &workspace_).ok());
    kernels::ArenaOptions options;
    options.budget_bytes = size_t{256} << 20;
    EXPECT_TRUE(model.program().CreateArena(options, &arena_).ok());
  }

  TranslationResult Translate(const TranslateTask& task) {
    TranslationResult result;
    if (task.source.empty()) {
      result.hypotheses.emplace_back().finished = true;
      return result;
    }
    const models::Translator& translator = *model_.translator();
    const models::TranslatorConfig& config = model_.config().translator;
    source_ = task.source;
    const int wanted = std::min(task.search.beam_size, translator.max_candidates);
    std::vector<Slot> slots(1);
    EXPECT_TRUE(arena_->Allocate(&slots[0]).ok());
    Encode(slots[0]);
    models::BeamSearch search(task.search, config.bos_id, config.eos_id, task.prefix);
    std::vector<std::vector<float>> prefix_rows;
    // One token after the other, of the prefix too.
    double prefix_log_prob = 0;
    int32_t last = config.bos_id;
    for (const int32_t next : task.prefix) {
      prefix_rows.emplace_back();
      float log_prob = 0;
      Decode(slots[0], last, next, 0, &log_prob, nullptr, &prefix_rows.back());
      prefix_log_prob += log_prob;
      last = next;
    }
    if (!task.prefix.empty()) search.SetPrefixLogProb(prefix_log_prob);
    std::vector<std::vector<std::vector<float>>> rows;  // [step][place]
    std::vector<kernels::Candidate> candidates;
    while (!search.done()) {
      candidates.clear();
      rows.emplace_back();
      for (int place = 0; place < search.live(); ++place) {
        std::vector<kernels::Candidate> best(translator.max_candidates);
        rows.back().emplace_back();
        Decode(slots[place], search.last_token(place), -1, wanted, nullptr, best.data(),
               &rows.back().back());
        candidates.insert(candidates.end(), best.begin(), best.begin() + wanted);
      }
      search.Step(candidates.data(), wanted, wanted);
      std::vector<Slot> next(search.live());
      for (int place = 0; place < search.live(); ++place) {
        EXPECT_TRUE(arena_->Copy(slots[search.parents()[place]], &next[place]).ok());
      }
      for (const Slot slot : slots) arena_->Free(slot);
      slots = next;
    }
    for (const Slot slot : slots) arena_->Free(slot);
    EXPECT_EQ(arena_->stats().slots, 0);
    for (models::FoundHypothesis& found : search.Take(/*with_rows=*/true)) {
      TranslatedHypothesis& hypothesis = result.hypotheses.emplace_back();
      for (const models::ChoiceRow& row : found.rows) {
        if (!task.alignment) break;
        const std::vector<float>& weights = row.step == models::ChoiceRow::kPrefixStep
                                                ? prefix_rows[row.row]
                                                : rows[row.step][row.row];
        hypothesis.alignment.insert(hypothesis.alignment.end(), weights.begin(), weights.end());
      }
      hypothesis.tokens = std::move(found.tokens);
      hypothesis.finished = found.finished;
      hypothesis.log_prob = found.log_prob;
      hypothesis.score = found.score;
    }
    return result;
  }

 private:
  using Slot = kernels::StateArena::Slot;
  static constexpr int kMaxTokens = 256;

  struct Batch {
    explicit Batch(const kernels::Program& program)
        : axes(program.axes.size()),
          inputs(program.inputs.size()),
          outputs(program.outputs.size()) {}
    std::vector<kernels::AxisBatch> axes;
    std::vector<kernels::InputBatch> inputs;
    std::vector<kernels::OutputBatch> outputs;
  };

  void Run(const Batch& batch) {
    kernels::ProgramBatch program_batch;
    program_batch.axes = batch.axes.data();
    program_batch.inputs = batch.inputs.data();
    program_batch.arena = arena_.get();
    const kernels::Status status =
        model_.program().Run(program_batch, batch.outputs.data(), *workspace_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  void Encode(Slot slot) {
    Batch batch(model_.translator()->program);
    const int32_t offsets[] = {0, static_cast<int32_t>(source_.size())};
    batch.axes[model_.translator()->source] = {1, offsets, &slot};
    batch.inputs[model_.translator()->source_ids].ids = source_.data();
    Run(batch);
  }

  void Decode(Slot slot, int32_t token, int32_t target, int32_t count, float* log_prob,
              kernels::Candidate* candidates, std::vector<float>* weights) {
    const models::Translator& translator = *model_.translator();
    Batch batch(translator.program);
    const int32_t offsets[] = {0, 1};
    weights->resize(source_.size());
    batch.axes[translator.target] = {1, offsets, &slot};
    batch.inputs[translator.target_ids].ids = &token;
    batch.inputs[translator.targets].ids = &target;
    batch.inputs[translator.counts].ids = &count;
    batch.outputs[translator.log_probs].values = log_prob;
    batch.outputs[translator.candidates].candidates = candidates;
    batch.outputs[translator.alignment].values = weights->data();
    Run(batch);
  }

  const models::Model& model_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::unique_ptr<kernels::StateArena> arena_;
  std::vector<int32_t> source_;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_
