#include "tests/gpu/golden_case.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace sru::testing {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "golden cases: %s\n", what.c_str());
  std::exit(1);
}

// The part of JSON that these files use: objects, arrays, strings, numbers, booleans.
struct Json {
  std::map<std::string, Json> members;
  std::vector<Json> items;
  std::string text;
  double number = 0;
  bool is_true = false;
};

class JsonReader {
 public:
  JsonReader(const char* begin, const char* end) : at_(begin), end_(end) {}

  Json Read() {
    Json value;
    switch (Peek()) {
      case '{':
        Expect('{');
        for (bool more = Peek() != '}'; more; more = Comma()) {
          std::string key = ReadString();
          Expect(':');
          value.members[std::move(key)] = Read();
        }
        Expect('}');
        break;
      case '[':
        Expect('[');
        for (bool more = Peek() != ']'; more; more = Comma()) value.items.push_back(Read());
        Expect(']');
        break;
      case '"':
        value.text = ReadString();
        break;
      default: {
        std::string word;
        while (at_ < end_ && std::strchr(",]} \n\r\t", *at_) == nullptr) word += *at_++;
        value.is_true = word == "true";
        value.number = std::strtod(word.c_str(), nullptr);
      }
    }
    return value;
  }

 private:
  char Peek() {
    while (at_ < end_ && std::strchr(" \n\r\t", *at_) != nullptr) ++at_;
    if (at_ == end_) Fail("JSON ends early");
    return *at_;
  }
  void Expect(char c) {
    if (Peek() != c) Fail(std::string("JSON: expected ") + c + ", found " + *at_);
    ++at_;
  }
  bool Comma() {
    if (Peek() != ',') return false;
    ++at_;
    return true;
  }
  std::string ReadString() {
    Expect('"');
    std::string text;
    while (at_ < end_ && *at_ != '"') {
      if (*at_ == '\\') ++at_;  // these files escape quotes only
      if (at_ < end_) text += *at_++;
    }
    Expect('"');
    return text;
  }

  const char* at_;
  const char* const end_;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : case_(std::make_unique<GoldenCase>()) {
    case_->name = path.stem().string();
    std::ifstream file(path, std::ios::binary);
    case_->bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    uint64_t size = 0;
    if (case_->bytes.size() < sizeof(size)) Fail(path.string() + " cannot be read");
    std::memcpy(&size, case_->bytes.data(), sizeof(size));
    if (size > case_->bytes.size() - sizeof(size)) Fail(path.string() + " is cut off");
    const char* const header = case_->bytes.data() + sizeof(size);
    tensors_ = JsonReader(header, header + size).Read().members;
    data_ = header + size;
    const std::string& config = tensors_["__metadata__"].members["sru_config"].text;
    config_ = JsonReader(config.data(), config.data() + config.size()).Read().members;
  }

  std::unique_ptr<GoldenCase> Read() {
    ReadSpec();
    case_->x = ReadPadded("input.x");
    if (tensors_.count("input.c0") > 0) case_->c0 = ReadPadded("input.c0");
    case_->h = ReadPadded("output.h");
    case_->c = ReadPadded("output.c");
    // The file aligns it to four bytes only.
    std::vector<int64_t> lengths(case_->x.batch);
    std::memcpy(lengths.data(), Data("input.lengths"), lengths.size() * sizeof(int64_t));
    case_->lengths.assign(lengths.begin(), lengths.end());
    return std::move(case_);
  }

 private:
  bool Flag(const char* name) const {
    const auto found = config_.find(name);
    return found != config_.end() && found->second.is_true;
  }
  bool FlagOrTrue(const char* name) const { return config_.count(name) == 0 || Flag(name); }
  int Number(const char* name) const {
    const auto found = config_.find(name);
    return found == config_.end() ? 0 : static_cast<int>(found->second.number);
  }

  const Json& Tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) Fail(case_->name + ": no tensor " + name);
    return found->second;
  }
  const void* Data(const std::string& name) const {
    return data_ + static_cast<size_t>(Tensor(name).members.at("data_offsets").items[0].number);
  }
  kernels::FloatView Floats(const std::string& name) const {
    size_t size = 1;
    for (const Json& dimension : Tensor(name).members.at("shape").items) {
      size *= static_cast<size_t>(dimension.number);
    }
    return {static_cast<const float*>(Data(name)), size};
  }
  GoldenCase::Padded ReadPadded(const std::string& name) const {
    const std::vector<Json>& shape = Tensor(name).members.at("shape").items;
    if (shape.size() != 3) Fail(case_->name + ": " + name + " has not three dimensions");
    return {static_cast<const float*>(Data(name)), static_cast<int64_t>(shape[0].number),
            static_cast<int64_t>(shape[1].number), static_cast<int64_t>(shape[2].number)};
  }

  // Does what models/stack_builder.cc does.
  void ReadSpec() {
    kernels::StackSpec& spec = case_->spec;
    const int hidden = Number("hidden_size");
    const int directions = Flag("bidirectional") ? 2 : 1;
    const int outputs = directions * hidden;
    spec.input_size = Number("input_size");
    int input = spec.input_size;
    if (tensors_.count("input_to_hidden.weight") > 0) {
      spec.input_to_hidden = Floats("input_to_hidden.weight");
      input = outputs;
    }
    for (int i = 0; i < Number("num_layers"); ++i) {
      const std::string prefix = "rnn_lst." + std::to_string(i) + ".";
      kernels::LayerSpec layer;
      layer.input_size = input;
      layer.hidden_size = hidden;
      layer.directions = directions;
      layer.has_skip_term = FlagOrTrue("has_skip_term");
      layer.num_matrices = layer.has_skip_term && input != outputs ? 4 : 3;
      layer.activation =
          Flag("use_tanh") ? kernels::Activation::kTanh : kernels::Activation::kIdentity;
      if (tensors_.count(prefix + "weight_proj") > 0) {
        layer.weight_proj = Floats(prefix + "weight_proj");
        layer.projection_size = static_cast<int>(layer.weight_proj.size) / input;
      }
      layer.weight = Floats(prefix + "weight");
      layer.weight_c = Floats(prefix + "weight_c");
      layer.bias = Floats(prefix + "bias");
      if (Flag("rescale")) layer.alpha = Floats(prefix + "scale_x").data[0];
      if (Flag("layer_norm")) {
        layer.layer_norm =
            Flag("normalize_after") ? kernels::LayerNorm::kAfter : kernels::LayerNorm::kBefore;
        layer.norm_weight = Floats(prefix + "layer_norm.weight");
        layer.norm_bias = Floats(prefix + "layer_norm.bias");
      }
      spec.layers.push_back(layer);
      input = outputs;
    }
  }

  std::unique_ptr<GoldenCase> case_;
  std::map<std::string, Json> tensors_;
  std::map<std::string, Json> config_;
  const char* data_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<GoldenCase>> ReadGoldenCases(const std::string& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  if (paths.empty()) Fail("none in " + directory);
  std::sort(paths.begin(), paths.end());
  std::vector<std::unique_ptr<GoldenCase>> cases;
  for (const std::filesystem::path& path : paths) cases.push_back(Reader(path).Read());
  return cases;
}

}  // namespace sru::testing
