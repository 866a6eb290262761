// ModelTest: a test of a whole model on the tested backend (testing/tested_backend.h). Folders()
// lists the cases.
#ifndef SRU_TESTS_GOLDEN_MODEL_FIXTURE_H_
#define SRU_TESTS_GOLDEN_MODEL_FIXTURE_H_

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/program_executable.h"
#include "models/model.h"
#include "tests/testing/tested_backend.h"

namespace sru::testing {

// The names of the folders in `parent`, sorted; none if there is no such directory.
inline std::vector<std::string> Folders(const std::filesystem::path& parent) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

class ModelTest : public ::testing::Test {
 protected:
  // Loads a version's directory.
  void LoadModel(const std::string& directory) {
    const kernels::Status status = tested_.Create(&backend_);
    ASSERT_TRUE(status.ok()) << status.message();
    kernels::CompileOptions options;
    options.dtype = tested_.dtype;
    auto model = models::Model::Load(directory, "m", 1, *backend_, options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  void MakeWorkspace(const kernels::ProgramLimits& limits) {
    const kernels::Status status = model_->program().CreateWorkspace(limits, &workspace_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // For the states of sequences.
  void MakeArena() {
    kernels::ArenaOptions options;
    options.budget_bytes = size_t{256} << 20;
    const kernels::Status status = model_->program().CreateArena(options, &arena_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void RunProgram(const std::vector<kernels::AxisBatch>& axes,
                  const std::vector<kernels::InputBatch>& inputs,
                  const std::vector<kernels::OutputBatch>& outputs) {
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena_.get();
    const kernels::Status status = model_->program().Run(batch, outputs.data(), *workspace_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  const TestedBackend tested_ = TestedBackend::FromEnvironment();
  std::unique_ptr<kernels::Backend> backend_;
  std::shared_ptr<const models::Model> model_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::unique_ptr<kernels::StateArena> arena_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_GOLDEN_MODEL_FIXTURE_H_
