#include "server/tasks/answer/reader_batch_runner.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "models/reader.h"
#include "tests/testing/small_reader.h"

namespace sru::server::tasks {
namespace {

using ::testing::HasSubstr;

// A query with results of its own.
struct Query {
  std::vector<int32_t> question;
  struct Passage {
    std::vector<int32_t> ids;
    std::vector<float> features;
    std::vector<int32_t> pos;
    std::vector<int32_t> ner;
    std::vector<float> start;
    std::vector<float> end;
  };
  std::vector<Passage> passages;

  // Those from `first` on, `count` of them.
  void MakeTask(size_t first, size_t count) {
    task = AnswerTask();
    task.question = question.data();
    task.question_length = static_cast<int>(question.size());
    task.num_tokens = task.question_length;
    for (size_t i = first; i < first + count; ++i) {
      Passage& from = passages[i];
      from.start.assign(from.ids.size(), -1);
      from.end.assign(from.ids.size(), -1);
      AnswerTask::Passage passage;
      passage.ids = from.ids.data();
      passage.features = from.features.data();
      passage.pos = from.pos.data();
      passage.ner = from.ner.data();
      passage.length = static_cast<int>(from.ids.size());
      passage.start_logits = from.start.data();
      passage.end_logits = from.end.data();
      task.passages.push_back(passage);
      task.num_tokens += passage.length;
    }
  }

  AnswerTask task;
};

class ReaderBatchRunnerTest : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  static constexpr int kFeatures = 3;  // at most

  void SetUp() override {
    const auto& [backend, tags] = GetParam();
    models::WriteSmallReader(directory_, "reader/1", tags);
    const absl::Status made = models::ToAbslStatus(kernels::CreateBackend(backend, {}, &backend_));
    ASSERT_TRUE(made.ok()) << made;
    model_ = models::Model::Load(directory_.path("reader/1"), "reader", 1, *backend_, {}).value();
  }

  std::unique_ptr<batching::BatchRunner> MakeRunner(int max_tokens, int max_sequences) {
    batching::RunnerPlace place;
    place.limits.max_tokens = max_tokens;
    place.limits.max_sequences = max_sequences;
    return MakeReaderRunner(*model_, place).value();
  }

  std::vector<int32_t> Ids(int length, int limit) {
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % limit);
    return ids;
  }

  Query::Passage MakePassage(int length) {
    Query::Passage passage;
    passage.ids = Ids(length, models::kSmallReaderWords);
    passage.features.resize(static_cast<size_t>(length) * kFeatures);
    for (float& value : passage.features) value = static_cast<float>(random_() % 2);
    passage.pos = Ids(length, models::kSmallReaderPos);
    passage.ner = Ids(length, models::kSmallReaderNer);
    return passage;
  }

  std::unique_ptr<Query> MakeQuery(int question, const std::vector<int>& passages) {
    auto query = std::make_unique<Query>();
    query->question = Ids(question, models::kSmallReaderWords);
    for (const int length : passages) query->passages.push_back(MakePassage(length));
    query->MakeTask(0, passages.size());
    return query;
  }

  using Queries = std::vector<std::unique_ptr<Query>>;
  using Logits = std::pair<std::vector<float>, std::vector<float>>;  // of starts and ends

  static std::vector<Logits> LogitsOf(const Queries& queries) {
    std::vector<Logits> logits;
    for (const auto& query : queries) {
      for (const Query::Passage& passage : query->passages) {
        logits.emplace_back(passage.start, passage.end);
      }
    }
    return logits;
  }

  // One passage after the other, each by itself.
  std::vector<Logits> RunAlone(const Queries& queries) {
    const auto runner = MakeRunner(256, 1);
    std::vector<Logits> logits;
    for (const auto& query : queries) {
      for (size_t i = 0; i < query->passages.size(); ++i) {
        query->MakeTask(i, 1);
        const absl::Status status = runner->Run({&query->task});
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    return LogitsOf(queries);
  }

  static std::vector<const batching::SequenceTask*> Tasks(const Queries& queries) {
    std::vector<const batching::SequenceTask*> tasks;
    for (const auto& query : queries) {
      query->MakeTask(0, query->passages.size());
      tasks.push_back(&query->task);
    }
    return tasks;
  }

  // As one batch.
  static std::vector<Logits> RunTogether(batching::BatchRunner& runner, const Queries& queries) {
    const absl::Status status = runner.Run(Tasks(queries));
    EXPECT_TRUE(status.ok()) << status;
    return LogitsOf(queries);
  }

  models::TempDirectory directory_;
  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
  std::mt19937 random_{7};
};

TEST_P(ReaderBatchRunnerTest, QueriesOfAnySizeHaveTheBitsThatEachPassageHasAlone) {
  Queries queries;
  queries.push_back(MakeQuery(1, {1}));
  queries.push_back(MakeQuery(7, {30, 1, 2, 30}));
  queries.push_back(MakeQuery(40, {3}));
  queries.push_back(MakeQuery(5, {64, 17}));
  queries.push_back(MakeQuery(2, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  const std::vector<Logits> alone = RunAlone(queries);
  // Different values, so that an exchange of two passages would be noticed.
  EXPECT_NE(alone[1], alone[4]);
  const auto runner = MakeRunner(256, 32);
  EXPECT_EQ(RunTogether(*runner, queries), alone);
  std::reverse(queries.begin(), queries.end());
  const std::vector<Logits> reversed = RunAlone(queries);
  EXPECT_EQ(RunTogether(*runner, queries), reversed);
}

TEST_P(ReaderBatchRunnerTest, MorePassagesThanAWorkspaceHoldsTakeSeveralRuns) {
  Queries queries;
  queries.push_back(MakeQuery(3, {5}));
  queries.push_back(MakeQuery(4, {6, 7, 8, 9, 10, 1, 2}));
  queries.push_back(MakeQuery(5, {5, 5}));
  const std::vector<Logits> alone = RunAlone(queries);
  const auto runner = MakeRunner(256, 3);
  EXPECT_EQ(RunTogether(*runner, queries), alone);
}

TEST_P(ReaderBatchRunnerTest, TheQuestionMatters) {
  Queries queries;
  queries.push_back(MakeQuery(6, {20}));
  queries.push_back(MakeQuery(6, {20}));
  queries[1]->passages = queries[0]->passages;
  const std::vector<Logits> alone = RunAlone(queries);
  EXPECT_NE(alone[0], alone[1]);
}

TEST_P(ReaderBatchRunnerTest, WhatIsNotThereIsNotCopied) {
  const auto runner = MakeRunner(64, 4);
  Queries queries;
  queries.push_back(MakeQuery(3, {5, 6}));
  const std::vector<Logits> alone = RunAlone(queries);
  Query& query = *queries[0];
  const auto expect_refused = [&](const char* what) {
    const absl::Status status = runner->Run({&query.task});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_EQ(RunTogether(*runner, queries), alone);
    Tasks(queries);
  };
  Tasks(queries);
  query.task.passages.clear();
  expect_refused("a question and passages");
  query.task.question_length = 0;
  expect_refused("tokens of the question");
  query.task.question = nullptr;
  expect_refused("tokens of the question");
  query.task.passages[1].length = 0;
  expect_refused("every passage");
  query.task.passages[1].ids = nullptr;
  expect_refused("every passage");
  query.task.passages[0].features = nullptr;
  expect_refused("features and tags");
  query.task.passages[0].end_logits = nullptr;
  expect_refused("every passage");
  query.task.num_tokens = 15;
  expect_refused("expected 15 tokens in all, found 14");
  if (std::get<1>(GetParam())) {
    query.task.passages[0].pos = nullptr;
    expect_refused("features and tags");
    query.task.passages[1].ner = nullptr;
    expect_refused("features and tags");
  }
}

TEST_P(ReaderBatchRunnerTest, ABadIdFailsItsBatchAndNotTheNext) {
  const auto runner = MakeRunner(64, 4);
  Queries queries;
  queries.push_back(MakeQuery(3, {5, 6}));
  const std::vector<Logits> alone = RunAlone(queries);
  Queries bad;
  bad.push_back(MakeQuery(3, {4}));
  bad.push_back(MakeQuery(2, {3}));
  bad[1]->passages[0].ids[1] = models::kSmallReaderWords;
  const absl::Status status = runner->Run(Tasks(bad));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(RunTogether(*runner, queries), alone);
}

TEST_P(ReaderBatchRunnerTest, ABatchOverTheLimitsIsAMistakeOfTheServer) {
  const auto runner = MakeRunner(20, 4);
  Queries queries;
  queries.push_back(MakeQuery(3, {12}));
  const std::vector<Logits> alone = RunAlone(queries);
  for (const auto& [question, passage] : {std::pair{3, 21}, std::pair{21, 3}}) {
    Queries large;
    large.push_back(MakeQuery(question, {passage}));
    EXPECT_EQ(runner->Run(Tasks(large)).code(), absl::StatusCode::kInternal);
    EXPECT_EQ(RunTogether(*runner, queries), alone);
  }
}

TEST_P(ReaderBatchRunnerTest, WarmsUpWithAnyLimits) {
  for (const int max_tokens : {1, 2, 5, 300}) {
    for (const int max_sequences : {1, 3, 64}) {
      const absl::Status status = MakeRunner(max_tokens, max_sequences)->WarmUp();
      EXPECT_TRUE(status.ok()) << status << " " << max_tokens << " " << max_sequences;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ReaderBatchRunnerTest,
                         ::testing::Combine(::testing::Values("reference", "cpu"),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "_tags" : "");
                         });

// A recurrent reader takes a passage in one pass, of any length: four times the tokens take about
// four times the processor's time and the memory, where attention within a passage would take
// sixteen times.
class LongPassageTest : public ReaderBatchRunnerTest {};

TEST_P(LongPassageTest, TimeAndMemoryAreLinearInIt) {
  constexpr int kQuestion = 20;
  constexpr int kLong = 100000;
  const auto bytes = [this](int tokens) {
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    const kernels::Status made = model_->program().CreateWorkspace(
        models::ReaderLimits(*model_->As<models::Reader>(), tokens, 1), &workspace);
    EXPECT_TRUE(made.ok()) << made.message();
    return static_cast<double>(workspace->bytes());
  };
  EXPECT_LT(bytes(kLong), 1.2 * 4 * bytes(kLong / 4));
  // The processor's time, in which a busy machine does not show as much as in that of a clock.
  const auto work = [this](int tokens) {
    const auto runner = MakeRunner(kQuestion + tokens, 1);
    const auto query = MakeQuery(kQuestion, {tokens});
    auto least = std::numeric_limits<std::clock_t>::max();
    for (int i = 0; i < 5; ++i) {
      const std::clock_t start = std::clock();
      const absl::Status status = runner->Run({&query->task});
      EXPECT_TRUE(status.ok()) << status;
      least = std::min(least, std::clock() - start);
    }
    return least;
  };
  EXPECT_LT(work(kLong), 2 * 4 * work(kLong / 4));
}

INSTANTIATE_TEST_SUITE_P(Backends, LongPassageTest, ::testing::Values(std::tuple("cpu", false)));

}  // namespace
}  // namespace sru::server::tasks
