// The greedy continuations of the trained language model on one backend: every symbol is the one
// that the published package picked (expected.jsonl of the checkpoint in SRU_SHARED_DIR, default
// ../shared). Float32 only: bfloat16 may pick another one of two that are close.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/language_model.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/golden/greedy_continuation.h"
#include "tests/testing/tested_backend.h"

namespace sru {
namespace {

using nlohmann::json;

constexpr const char* kModel = "models/pretrained/war_and_peace/1";
constexpr float kTolerance = 3e-4f;  // of log-probabilities, as the checkpoint's authors say

struct Text {
  std::string prompt;
  std::string continuation;
  std::vector<float> log_probs;
};

// Bytes that are no UTF-8 are a list under KEY_bytes.
std::string BytesOf(const json& line, const std::string& key) {
  if (line.contains(key)) return line[key];
  std::string bytes;
  for (const int byte : line[key + "_bytes"]) bytes.push_back(static_cast<char>(byte));
  return bytes;
}

std::vector<Text> ReadTexts(const std::filesystem::path& path) {
  std::vector<Text> texts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json object = json::parse(line);
    if (object["kind"] != "generate") continue;
    texts.push_back({BytesOf(object, "prompt"), BytesOf(object, "continuation"),
                     object["log_probs"].get<std::vector<float>>()});
  }
  return texts;
}

TEST(GreedyTextTest, EveryContinuationIsThatOfThePackage) {
  const testing::TestedBackend tested = testing::TestedBackend::FromEnvironment();
  if (tested.dtype != kernels::DataType::kFloat32) GTEST_SKIP() << "float32 only";
  const char* const shared = std::getenv("SRU_SHARED_DIR");
  const std::filesystem::path expected = std::filesystem::path(shared ? shared : "../shared") /
                                         "checkpoints/lm_war_and_peace/expected.jsonl";
  if (!std::filesystem::exists(expected)) {
    GTEST_SKIP() << expected << " is absent; set SRU_SHARED_DIR to the directory that has it";
  }
  const std::vector<Text> texts = ReadTexts(expected);
  ASSERT_EQ(texts.size(), 20u);

  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(tested.Create(&backend).ok());
  auto loaded = models::Model::Load(kModel, "lm", 1, *backend, kernels::CompileOptions());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const models::Model& model = **loaded;
  const models::LanguageModel& lm = *model.As<models::LanguageModel>();

  std::vector<std::vector<int32_t>> prompts;
  size_t tokens = 0;
  for (const Text& text : texts) {
    auto ids = model.tokenizer()->Encode(text.prompt);
    ASSERT_TRUE(ids.ok()) << ids.status();
    tokens += ids->size();
    prompts.push_back(*std::move(ids));
  }
  const auto count = static_cast<int>(texts.size());
  std::unique_ptr<kernels::ProgramWorkspace> workspace;
  ASSERT_TRUE(model.program()
                  .CreateWorkspace(
                      models::LanguageModelLimits(lm, static_cast<int>(tokens), count, count, 0),
                      &workspace)
                  .ok());
  kernels::ArenaOptions arena_options;
  arena_options.budget_bytes = size_t{16} << 20;
  std::unique_ptr<kernels::StateArena> arena;
  ASSERT_TRUE(model.program().CreateArena(arena_options, &arena).ok());
  std::vector<kernels::StateArena::Slot> slots(count);
  for (kernels::StateArena::Slot& slot : slots) ASSERT_TRUE(arena->Allocate(&slot).ok());

  const auto steps = static_cast<int>(texts[0].log_probs.size());
  const auto picks = testing::ContinueGreedily(model.program(), lm, prompts, steps, arena.get(),
                                               slots, workspace.get());
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE("prompt of " + std::to_string(texts[i].prompt.size()) + " bytes");
    ASSERT_EQ(picks[i].size(), texts[i].log_probs.size());
    std::vector<int32_t> ids;
    for (size_t t = 0; t < picks[i].size(); ++t) {
      ids.push_back(picks[i][t].id);
      EXPECT_LE(std::abs(picks[i][t].log_prob - texts[i].log_probs[t]), kTolerance) << t;
    }
    EXPECT_EQ(model.tokenizer()->detokenizer()->Decode(ids), texts[i].continuation);
  }
}

}  // namespace
}  // namespace sru
