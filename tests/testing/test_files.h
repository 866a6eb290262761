// Files that tests make: temporary directories, safetensors, whole models.
#ifndef SRU_TESTS_TESTING_TEST_FILES_H_
#define SRU_TESTS_TESTING_TEST_FILES_H_

#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::models {

// A directory that is removed with the object.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "sru-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << name;
    path_ = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path(const std::string& name = "") const { return path_ / name; }

  // Also makes the directories above the file.
  std::string Write(const std::string& name, const std::string& contents) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << contents;
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The bytes of a safetensors file, from its parts; by default the length is that of `header`.
inline std::string RawSafetensors(const std::string& header, const std::string& data,
                                  uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes + header + data;
}
inline std::string RawSafetensors(const std::string& header, const std::string& data) {
  return RawSafetensors(header, data, header.size());
}

// Float tensors by name, which a test may change before they are written.
struct TestTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using TestTensors = std::map<std::string, TestTensor>;

// A tensor of small values that differ from each other.
inline TestTensor MakeTensor(std::vector<int64_t> shape) {
  size_t size = 1;
  for (const int64_t dimension : shape) size *= static_cast<size_t>(dimension);
  TestTensor tensor{std::move(shape), std::vector<float>(size)};
  for (size_t i = 0; i < size; ++i) {
    tensor.values[i] = 0.01f * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  }
  return tensor;
}

inline std::string Safetensors(const TestTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t bytes = tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + bytes}}};
    data.append(reinterpret_cast<const char*>(tensor.values.data()), bytes);
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return RawSafetensors(text, data);
}

// A small classifier: 5 words, 4 features, 1 bidirectional layer of 3 units, 2 labels.
inline nlohmann::json SmallConfig() {
  return {{"format_version", 1},
          {"description", "a test"},
          {"encoder",
           {{"input_size", 4}, {"hidden_size", 3}, {"num_layers", 1}, {"bidirectional", true}}},
          {"embedding", {{"vocabulary_size", 5}, {"oov_id", 1}}},
          {"preprocessing", {{"type", "whitespace"}}},
          {"pooling", "max"},
          {"labels", {"no", "yes"}}};
}

inline TestTensors SmallTensors() {
  return {{"embedding.weight", MakeTensor({5, 4})},
          {"encoder.rnn_lst.0.weight", MakeTensor({4, 24})},
          {"encoder.rnn_lst.0.weight_c", MakeTensor({12})},
          {"encoder.rnn_lst.0.bias", MakeTensor({12})},
          {"encoder.rnn_lst.0.scale_x", MakeTensor({1})},
          {"out.weight", MakeTensor({2, 6})},
          {"out.bias", MakeTensor({2})}};
}

// The same as a tagger, with the same tensors.
inline nlohmann::json SmallTaggerConfig() {
  nlohmann::json config = SmallConfig();
  config["task"] = "tagger";
  config.erase("pooling");
  return config;
}

// A small language model: 5 words, 4 features, 1 layer of 3 units.
inline nlohmann::json SmallLanguageModelConfig() {
  return {{"format_version", 1},
          {"task", "language_model"},
          {"encoder", {{"input_size", 4}, {"hidden_size", 3}, {"num_layers", 1}}},
          {"embedding", {{"vocabulary_size", 5}, {"oov_id", 1}}},
          {"preprocessing", {{"type", "whitespace"}}}};
}

inline TestTensors SmallLanguageModelTensors() {
  return {{"embedding.weight", MakeTensor({5, 4})},
          {"encoder.rnn_lst.0.weight", MakeTensor({4, 12})},
          {"encoder.rnn_lst.0.weight_c", MakeTensor({6})},
          {"encoder.rnn_lst.0.bias", MakeTensor({6})},
          {"encoder.rnn_lst.0.scale_x", MakeTensor({1})},
          {"out.weight", MakeTensor({5, 3})},
          {"out.bias", MakeTensor({5})}};
}

inline constexpr char kSmallVocabulary[] = "<pad>\n<oov>\na\nb\nc\n";

// Writes <name>/config.json, model.safetensors and vocab.txt.
inline void WriteModel(const TempDirectory& directory, const std::string& name,
                       const nlohmann::json& config, const TestTensors& tensors) {
  directory.Write(name + "/config.json", config.dump());
  directory.Write(name + "/model.safetensors", Safetensors(tensors));
  directory.Write(name + "/vocab.txt", kSmallVocabulary);
}
// The same of a classifier or language model without its last layer: an encoder of token vectors.
inline void WriteEncoder(const TempDirectory& directory, const std::string& name,
                         nlohmann::json config, TestTensors tensors) {
  for (const char* key : {"task", "labels"}) config.erase(key);
  for (const char* tensor : {"out.weight", "out.bias"}) tensors.erase(tensor);
  config["pooling"] = "none";
  WriteModel(directory, name, config, tensors);
}
inline void WriteSmallModel(const TempDirectory& directory, const std::string& name) {
  WriteModel(directory, name, SmallConfig(), SmallTensors());
}
inline void WriteSmallTagger(const TempDirectory& directory, const std::string& name) {
  WriteModel(directory, name, SmallTaggerConfig(), SmallTensors());
}
inline void WriteSmallLanguageModel(const TempDirectory& directory, const std::string& name) {
  WriteModel(directory, name, SmallLanguageModelConfig(), SmallLanguageModelTensors());
}

}  // namespace sru::models

#endif  // SRU_TESTS_TESTING_TEST_FILES_H_
