#include "models/model.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checked.h"
#include "tests/testing/sentencepiece_file.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using nlohmann::json;
using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelTest : public ::testing::Test {
 protected:
  ModelTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& directory) {
    return Model::Load(directory, "m", 1, *backend_, kernels::CompileOptions());
  }

  std::unique_ptr<kernels::Backend> backend_;
};

std::vector<float> Logits(const Model& model, const std::vector<int32_t>& ids) {
  std::unique_ptr<kernels::Workspace> workspace;
  const auto tokens = static_cast<int32_t>(ids.size());
  kernels::Status status = model.executable().CreateWorkspace({tokens, 1}, &workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  const int32_t offsets[] = {0, tokens};
  kernels::RaggedBatch batch;
  batch.num_sequences = 1;
  batch.offsets = offsets;
  batch.token_ids = ids.data();
  std::vector<float> logits(model.labels().size());
  kernels::SequenceOutput output;
  output.pooling = model.config().pooling;
  output.logits = logits.data();
  status = model.executable().Run(batch, &output, *workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

// The published package's answers for the bundled model (tests/data/make_trec_questions.py), on
// every backend of this machine.
TEST(BundledModelTest, AnswersAsThePackage) {
  int backends = 0;
  for (const std::string& name : kernels::AvailableBackends()) {
    std::unique_ptr<kernels::Backend> backend;
    const kernels::Status created = kernels::CreateBackend(name, &backend);
    if (created.code() == kernels::StatusCode::kUnavailable) continue;
    ASSERT_TRUE(created.ok()) << created.message();
    ++backends;
    SCOPED_TRACE(name);
    auto model = Checked(Model::Load("models/pretrained/trec/1", "trec", 1, *backend, {}));
    std::ifstream file("tests/data/trec_questions.jsonl");
    int questions = 0;
    for (std::string line; std::getline(file, line); ++questions) {
      const json question = json::parse(line);
      auto ids = Checked((*model)->tokenizer()->Encode(question["text"].get<std::string>()));
      const std::vector<float> logits = Logits(**model, *ids);
      const auto expected = question["logits"].get<std::vector<float>>();
      ASSERT_EQ(logits.size(), expected.size());
      for (size_t i = 0; i < logits.size(); ++i) {
        EXPECT_NEAR(logits[i], expected[i], 1e-3) << question["text"] << " label " << i;
      }
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ((*model)->labels()[best], question["label"].get<std::string>());
    }
    EXPECT_EQ(questions, 60);
  }
  EXPECT_GE(backends, 1);
}

TEST_F(ModelTest, DescribesItself) {
  TempDirectory directory;
  WriteSmallModel(directory, "m/1");
  auto loaded = Checked(Model::Load(directory.path("m/1"), "m", 7, *backend_, {}));
  const Model& model = **loaded;
  EXPECT_EQ(model.name(), "m");
  EXPECT_EQ(model.version(), 7);
  EXPECT_EQ(model.config().description, "a test");
  EXPECT_THAT(model.labels(), ElementsAre("no", "yes"));
  ASSERT_NE(model.tokenizer(), nullptr);
  EXPECT_THAT(*model.tokenizer()->Encode("a x c"), ElementsAre(2, 1, 4));
  EXPECT_EQ(model.backend_name(), "reference");
  EXPECT_EQ(model.dtype(), kernels::DataType::kFloat32);
  EXPECT_EQ(model.parameter_count(), 5 * 4 + 4 * 24 + 12 + 12 + 2 * 6 + 2);
  EXPECT_EQ(Logits(model, {2, 1, 4}).size(), 2u);
}

TEST_F(ModelTest, AUnidirectionalStackHasStates) {
  TempDirectory directory;
  WriteSmallModel(directory, "both/1");
  json config = SmallConfig();
  config["encoder"]["bidirectional"] = false;
  TestTensors tensors = SmallTensors();
  tensors["encoder.rnn_lst.0.weight"] = MakeTensor({4, 12});
  tensors["encoder.rnn_lst.0.weight_c"] = MakeTensor({6});
  tensors["encoder.rnn_lst.0.bias"] = MakeTensor({6});
  tensors["out.weight"] = MakeTensor({2, 3});
  WriteModel(directory, "one/1", config, tensors);
  auto both = Checked(Model::Load(directory.path("both/1"), "both", 1, *backend_, {}));
  EXPECT_FALSE((*both)->is_unidirectional());
  auto one = Checked(Model::Load(directory.path("one/1"), "one", 1, *backend_, {}));
  EXPECT_TRUE((*one)->is_unidirectional());
  kernels::StateArena::State state;
  state.rows = {1};
  state.values = {0.5f, -1.0f, 2.0f};
  const std::string bytes = (*one)->state_codec().Encode(state, {});
  EXPECT_EQ(bytes.size(), (*one)->state_codec().bytes());
  SequenceState decoded;
  EXPECT_TRUE((*one)->state_codec().Decode(bytes, &decoded).ok());
  EXPECT_EQ(decoded.state.values, state.values);
}

TEST_F(ModelTest, LoadsAModelOfFeatures) {
  TempDirectory directory;
  json config = SmallConfig();
  for (const char* key : {"embedding", "preprocessing", "labels"}) config.erase(key);
  TestTensors tensors = SmallTensors();
  for (const char* name : {"embedding.weight", "out.weight", "out.bias"}) tensors.erase(name);
  directory.Write("config.json", config.dump());
  directory.Write("model.safetensors", Safetensors(tensors));
  auto model = Checked(Load(directory.path()));
  EXPECT_EQ((*model)->tokenizer(), nullptr);
  EXPECT_TRUE((*model)->labels().empty());
  EXPECT_EQ((*model)->spec().vocabulary_size, 0);
}

// A classifier takes any tokenizer that its config names.
TEST_F(ModelTest, LoadsAModelOfEveryTokenizer) {
  const struct {
    json preprocessing;
    int size;
    std::string file;
    std::string contents;
    std::string text;
    std::vector<int32_t> ids;
  } kCases[] = {
      {{{"type", "bytes"}, {"vocabulary", {97, 98, 195}}}, 3, "unused", "", "ba", {1, 0}},
      {{{"type", "characters"}}, 3, "vocab.txt", "a\nb\n\u00e9\n", "\u00e9b", {2, 1}},
      {{{"type", "line_words"}}, 3, "vocab.txt", "a\n</s>\n<unk>\n", "x\na", {2, 1, 0}},
      {{{"type", "sentencepiece"}},
       10,
       "spm.model",
       sru::testing::SmallSentencePieceFile().bytes(),
       "abc b",
       {6, 9, 6, 4}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.preprocessing.dump());
    TempDirectory directory;
    json config = SmallConfig();
    config["embedding"] = {{"vocabulary_size", c.size}};
    config["preprocessing"] = c.preprocessing;
    TestTensors tensors = SmallTensors();
    tensors["embedding.weight"] = MakeTensor({c.size, 4});
    directory.Write("config.json", config.dump());
    directory.Write("model.safetensors", Safetensors(tensors));
    directory.Write(c.file, c.contents);
    auto model = Checked(Load(directory.path()));
    ASSERT_NE((*model)->tokenizer(), nullptr);
    const auto ids = Checked((*model)->tokenizer()->Encode(c.text));
    EXPECT_EQ(*ids, c.ids);
    EXPECT_NE(Logits(**model, *ids), Logits(**model, {0}));
  }
}

TEST_F(ModelTest, NamesTheFileThatIsWrong) {
  const struct {
    std::string file;
    std::string contents;  // "" = remove the file
    std::string message;
  } kCases[] = {
      {"config.json", "", "cannot be opened"},
      {"config.json", "", "nor are there model*.npz or model*.bin"},
      {"config.json", "{", "not valid JSON"},
      {"model.safetensors", "", "cannot be opened"},
      {"model.safetensors", "garbage", "not a safetensors file"},
      {"model.safetensors", Safetensors({}), "tensor 'encoder.rnn_lst.0.weight' is missing"},
      {"vocab.txt", "", "cannot be opened"},
      {"vocab.txt", "a\nb\n", "expected 5 words"},
  };
  for (const auto& c : kCases) {
    TempDirectory directory;
    WriteSmallModel(directory, "m/1");
    if (c.contents.empty()) {
      std::filesystem::remove(directory.path("m/1/" + c.file));
    } else {
      directory.Write("m/1/" + c.file, c.contents);
    }
    const absl::Status status = Load(directory.path("m/1")).status();
    EXPECT_FALSE(status.ok()) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("m/1/" + c.file), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace sru::models
