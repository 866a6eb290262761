// PlainTranslator: translates one sentence after the other with a loaded model, to compare the
// server's translations with. The alignment is that of the steps that chose the tokens.
#ifndef SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_
#define SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "models/model.h"
#include "models/translator.h"
#include "server/tasks/translate/translate_sequence.h"
#include "tests/testing/translation.h"

namespace sru::server {

class PlainTranslator {
 public:
  explicit PlainTranslator(const models::Model& model) : model_(model) {
    kernels::ProgramLimits limits = models::TranslatorLimits(*model.As<models::Translator>(),
                                                             kMaxTokens, 1, kMaxTokens, kMaxBeam);
    limits.max_attention_values = int64_t{kMaxTokens} * kMaxTokens;
    EXPECT_TRUE(model.program().CreateWorkspace(limits, &workspace_).ok());
    kernels::ArenaOptions options;
    options.budget_bytes = size_t{256} << 20;
    EXPECT_TRUE(model.program().CreateArena(options, &arena_).ok());
  }

  // The task with what was found.
  tasks::TranslateTask Translate(const tasks::TranslateTask& task) {
    tasks::TranslateTask result = task;
    result.hypotheses.clear();
    if (task.token_ids.empty()) {
      result.hypotheses.emplace_back().finished = true;
      return result;
    }
    testing::TranslationDriver driver(model_.program(), *model_.As<models::Translator>(),
                                      model_.config().translator, arena_.get(), workspace_.get());
    const std::vector<testing::Sentence> sentences = {{task.token_ids, task.search, task.prefix}};
    testing::Translation found = driver.Translate(sentences, /*stagger=*/0).at(0);
    EXPECT_EQ(arena_->stats().slots, 0);
    for (size_t i = 0; i < found.hypotheses.size(); ++i) {
      tasks::TranslatedHypothesis& hypothesis = result.hypotheses.emplace_back();
      hypothesis.tokens = std::move(found.hypotheses[i].tokens);
      hypothesis.finished = found.hypotheses[i].finished;
      hypothesis.log_prob = found.hypotheses[i].log_prob;
      hypothesis.score = found.hypotheses[i].score;
      if (task.alignment) hypothesis.alignment = std::move(found.alignments[i]);
    }
    return result;
  }

 private:
  static constexpr int kMaxTokens = 256;

  const models::Model& model_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::unique_ptr<kernels::StateArena> arena_;
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_PLAIN_TRANSLATOR_H_
