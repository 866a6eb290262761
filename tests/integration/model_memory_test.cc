// The memory that a server process takes for a model of 50 million parameters: while it is loaded
// hardly more than its packed weights, and after that nothing else of them. And that several models
// take: their weights, since batches of all of them compute in the same memory.
#include <sys/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // memory is kept, and shadowed
#else
constexpr bool kSanitized = false;
#endif

// Shares of the packed weights.
constexpr double kMaxHeld = 1.15;
constexpr double kMaxWhileLoading = 1.3;
// Of both versions, while the new one replaces the old one.
constexpr double kMaxWhileReloading = 2.4;

constexpr int kWidth = 1024;
constexpr int kLayers = 16;
constexpr int kWords = 200;

nlohmann::json Config(int layers) {
  return {{"format_version", 1},
          {"description", "a large model"},
          {"encoder",
           {{"input_size", kWidth},
            {"hidden_size", kWidth},
            {"num_layers", layers},
            {"bidirectional", false}}},
          {"embedding", {{"vocabulary_size", kWords}, {"oov_id", 1}}},
          {"preprocessing", {{"type", "whitespace"}}},
          {"pooling", "max"}};
}

// Writes tensors of small random values, the same ones again and again.
void WriteWeights(const std::string& path, int layers) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"embedding.weight", {kWords, kWidth}}};
  for (int i = 0; i < layers; ++i) {
    const std::string layer = absl::StrCat("encoder.rnn_lst.", i, ".");
    tensors.push_back({layer + "weight", {kWidth, 3 * kWidth}});
    tensors.push_back({layer + "weight_c", {2 * kWidth}});
    tensors.push_back({layer + "bias", {2 * kWidth}});
    tensors.push_back({layer + "scale_x", {1}});
  }
  nlohmann::json header;
  int64_t bytes = 0;
  for (const auto& [name, shape] : tensors) {
    int64_t size = sizeof(float);
    for (const int64_t dimension : shape) size *= dimension;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
    bytes += size;
  }
  std::vector<float> values(1 << 18);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (float& value : values) value = normal(random);
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << models::RawSafetensors(header.dump(), "");
  const auto block = static_cast<int64_t>(values.size() * sizeof(float));
  for (; bytes > 0; bytes -= block) {
    file.write(reinterpret_cast<const char*>(values.data()), std::min(bytes, block));
  }
  ASSERT_TRUE(file.good()) << path;
}

class ModelMemoryTest : public ::testing::TestWithParam<kernels::DataType> {
 protected:
  // By default small workspaces, since these are not what is measured.
  void Start(int instances = 1, int max_batch_tokens = 128) {
    std::string words;
    for (int i = 0; i < kWords; ++i) absl::StrAppend(&words, "w", i, "\n");
    for (const auto& [model, layers] : {std::pair<const char*, int>{"small", 1}, {"m", kLayers}}) {
      const std::string version = absl::StrCat(model, "/1/");
      repository_.Write(version + "vocab.txt", words);
      repository_.Write(version + "config.json", Config(layers).dump());
      ASSERT_NO_FATAL_FAILURE(
          WriteWeights(repository_.path(version + "model.safetensors"), layers));
    }
    process_ = std::make_unique<Subprocess>(std::vector<std::string>{
        SRU_SERVER_BINARY, "--model_repository=" + repository_.path(), "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0", "--http_listen=", "--admin_listen=127.0.0.1:0",
        "--model_control=explicit", absl::StrCat("--instances=", instances),
        absl::StrCat("--max_batch_tokens=", max_batch_tokens), "--max_sequence_tokens=128",
        "--backend=cpu", absl::StrCat("--dtype=", kernels::DataTypeName(GetParam()))});
    ASSERT_TRUE(process_->AwaitLine()) << process_->err();
    const std::vector<std::string> words_of_line =
        absl::StrSplit(process_->out(), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    admin_ = v1::AdminService::NewStub(MakeChannel(words_of_line.back()));
  }

  void Load(const std::string& model = "m") {
    const grpc::Status status = LoadModel(*admin_, model);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // Bytes; VmRSS or VmHWM, the peak.
  double Resident(const std::string& name) const {
    std::ifstream status(absl::StrCat("/proc/", process_->pid(), "/status"));
    for (std::string line; std::getline(status, line);) {
      const std::vector<std::string> words =
          absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
      double kilobytes = 0;
      if (words.size() > 1 && words[0] == name && absl::SimpleAtod(words[1], &kilobytes)) {
        return kilobytes * 1024;
      }
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }

  // As the backend counts them.
  double PackedBytes() const {
    std::unique_ptr<kernels::Backend> backend;
    EXPECT_TRUE(kernels::CreateBackend("cpu", &backend).ok());
    kernels::CompileOptions options;
    options.dtype = GetParam();
    const auto model = models::Model::Load(repository_.path("m/1"), "m", 1, *backend, options);
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_GT((*model)->parameter_count(), 50'000'000);
    return static_cast<double>((*model)->executable().weight_bytes());
  }

  models::TempDirectory repository_;
  std::unique_ptr<Subprocess> process_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_P(ModelMemoryTest, IsThatOfThePackedWeights) {
  if (kSanitized) GTEST_SKIP() << "the memory is a sanitizer's";
  ASSERT_NO_FATAL_FAILURE(Start());
  // What the libraries take once for themselves, such as the code that they write for products of
  // this size, is not the model's.
  ASSERT_NO_FATAL_FAILURE(Load("small"));
  const double empty = Resident("VmRSS");
  ASSERT_NO_FATAL_FAILURE(Load());
  const double peak = Resident("VmHWM") - empty;
  const double packed = PackedBytes();
  EXPECT_LE(peak, kMaxWhileLoading * packed);
  EXPECT_LE(Resident("VmRSS") - empty, kMaxHeld * packed);
  EXPECT_GE(Resident("VmRSS") - empty, 0.9 * packed);
  RecordProperty("peak", absl::StrCat(peak / packed));
  RecordProperty("held", absl::StrCat((Resident("VmRSS") - empty) / packed));

  // A new version beside the old one.
  std::filesystem::rename(repository_.path("m/1"), repository_.path("m/2"));
  ASSERT_NO_FATAL_FAILURE(Load());
  EXPECT_LE(Resident("VmHWM") - empty, kMaxWhileReloading * packed);
  EXPECT_TRUE(PollUntil([&] { return Resident("VmRSS") - empty <= kMaxHeld * packed; }))
      << (Resident("VmRSS") - empty) / packed;
}

TEST_P(ModelMemoryTest, OfSeveralModelsIsThatOfTheirWeights) {
  if (kSanitized) GTEST_SKIP() << "the memory is a sanitizer's";
  ASSERT_NO_FATAL_FAILURE(Start(/*instances=*/4, /*max_batch_tokens=*/4096));
  constexpr int kModels = 8;
  for (int i = 0; i <= kModels; ++i) {
    std::filesystem::create_directory_symlink("small", repository_.path(absl::StrCat("small", i)));
  }
  ASSERT_NO_FATAL_FAILURE(Load("small0"));
  const double one = Resident("VmRSS");
  for (int i = 1; i <= kModels; ++i) ASSERT_NO_FATAL_FAILURE(Load(absl::StrCat("small", i)));
  // Each has 19 MB of weights and token table. All share a block of 35 MB for each of four batches
  // at once, three of which a later load may be the first to need; four of its own would be 140 MB.
  EXPECT_LE(Resident("VmRSS") - one, kModels * 24e6 + 3 * 35e6);
}

INSTANTIATE_TEST_SUITE_P(DataTypes, ModelMemoryTest,
                         ::testing::Values(kernels::DataType::kFloat32,
                                           kernels::DataType::kBFloat16),
                         [](const auto& info) { return kernels::DataTypeName(info.param); });

}  // namespace
}  // namespace sru::testing
