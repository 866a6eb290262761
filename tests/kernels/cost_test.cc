// The cost of a batch, time per token and memory, depends on its tokens and not on the length of
// its sequences. Time is the process's CPU time, so that other work on the machine does not count,
// and the shapes take turns; memory is the peak of the resident set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/measure.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels {
namespace {

constexpr int kTokens = 4096;

double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Most memory that the process has had resident since its start or ResetPeakMemory().
int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// False where the system does not allow it.
bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;  // proc(5): resets the peak resident set size
  return clear.good();
}

class CostTest : public ::testing::TestWithParam<DataType> {
 protected:
  // An encoder that writes only pooled vectors, so that the outputs' memory does not count.
  void Compile(int hidden) {
    testing::StackOptions shape;
    shape.hidden_size = hidden;
    shape.input_size = 2 * hidden;
    shape.vocabulary_size = 0;
    shape.num_labels = 0;
    stack_ = std::make_unique<testing::RandomStack>(shape, 1);
    std::unique_ptr<Backend> backend;
    ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
    CompileOptions options;
    options.dtype = GetParam();
    const Status status = backend->Compile(stack_->spec(), options, &executable_);
    if (status.code() == StatusCode::kUnsupported) GTEST_SKIP() << status.message();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // kTokens tokens in sequences of one length, and the worker that runs them.
  struct Work {
    Work(const CostTest& test, int length)
        : executable(*test.executable_),
          lengths(kTokens / length, length),
          input(test.stack_->spec(), lengths, /*initial_state=*/false, 2),
          pooled(lengths.size() * test.stack_->spec().output_size()),
          outputs(lengths.size()) {
      for (size_t b = 0; b < outputs.size(); ++b) {
        outputs[b].pooling = Pooling::kMax;
        outputs[b].pooled = &pooled[b * test.stack_->spec().output_size()];
      }
    }
    void CreateWorkspace() {
      const int sequences = static_cast<int>(lengths.size());
      ASSERT_TRUE(executable.CreateWorkspace({kTokens, sequences}, &workspace).ok());
    }
    void Run() const { ASSERT_TRUE(executable.Run(input.view(), outputs.data(), *workspace).ok()); }

    const Executable& executable;
    std::vector<int> lengths;
    testing::RandomBatch input;
    std::vector<float> pooled;
    std::vector<SequenceOutput> outputs;
    std::unique_ptr<Workspace> workspace;
  };

  std::unique_ptr<testing::RandomStack> stack_;
  std::unique_ptr<Executable> executable_;
};

TEST_P(CostTest, TimePerTokenDoesNotGrowWithTheLength) {
  Compile(/*hidden=*/64);
  if (IsSkipped() || HasFatalFailure()) return;
  const std::vector<int> lengths = {64, 512, 4096};
  std::vector<std::unique_ptr<Work>> works;
  std::vector<std::vector<double>> times(lengths.size());
  for (int length : lengths) {
    works.push_back(std::make_unique<Work>(*this, length));
    works.back()->CreateWorkspace();
    works.back()->Run();
  }
  for (int round = 0; round < 9; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      const double start = CpuMicroseconds();
      works[i]->Run();
      times[i].push_back(CpuMicroseconds() - start);
    }
  }
  // The measured ratio is 0.97 to 1.03. If the cost grew with the square of the length, it would be
  // 64 times as high.
  const double base = Median(times[0]);
  for (size_t i = 1; i < works.size(); ++i) {
    EXPECT_LT(Median(times[i]), 2 * base) << "length " << lengths[i];
  }
}

TEST_P(CostTest, AWorkspaceIsLimitedByTokensNotByLengths) {
  Compile(/*hidden=*/64);
  if (IsSkipped() || HasFatalFailure()) return;
  size_t many_short = 0;
  for (int length : {1, 8, 64, 512, 4096}) {
    Work work(*this, length);
    work.CreateWorkspace();
    if (length == 1) many_short = work.workspace->bytes();
    EXPECT_LE(work.workspace->bytes(), many_short) << "length " << length;
  }
}

// A layer's input and output, two rows per token, are held for the whole batch. U of one direction
// is one row and a half more, and is held for a chunk only.
TEST_P(CostTest, UIsNeverHeldForAllTokens) {
  Compile(/*hidden=*/64);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto bytes = [this](int tokens) {
    std::unique_ptr<Workspace> workspace;
    EXPECT_TRUE(executable_->CreateWorkspace({tokens, 1}, &workspace).ok());
    return workspace->bytes();
  };
  const double per_token = static_cast<double>(bytes(8192) - bytes(4096)) / 4096;
  const double row = sizeof(float) * stack_->spec().output_size();
  EXPECT_LT(per_token, 3 * row);
}

TEST_P(CostTest, PeakMemoryIsThatOfTheWorkspace) {
  Compile(/*hidden=*/256);
  if (IsSkipped() || HasFatalFailure()) return;
  for (int length : {64, 4096}) {
    Work work(*this, length);
    if (!ResetPeakMemory()) GTEST_SKIP() << "this system does not reset the peak of memory";
    const int64_t before = PeakMemoryBytes();
    work.CreateWorkspace();
    work.Run();
    const int64_t grown = PeakMemoryBytes() - before;
    // U of all tokens would be 25 MB; what a library allocates on its own is far less.
    EXPECT_LT(grown, static_cast<int64_t>(work.workspace->bytes()) + (8 << 20))
        << "length " << length;
  }
}

INSTANTIATE_TEST_SUITE_P(DataTypes, CostTest, ::testing::ValuesIn(kAllDataTypes),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace sru::kernels
