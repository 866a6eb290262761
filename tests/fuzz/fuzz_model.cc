// A small model of each task, as the exporter wrote it (tests/data/models), and students in
// Marian's files, with changed bytes, through the loader that the server uses.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/utf8.h"
#include "kernels/backend.h"
#include "kernels/reference/reference_backend.h"
#include "models/memory_estimate.h"
#include "models/model.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"

namespace sru::fuzz {
namespace {

struct ModelFile {
  std::string name;
  std::string contents;
};

// The files of one model, in a directory that is removed at exit.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& original) {
    std::string path = (std::filesystem::temp_directory_path() / "sru-fuzz-XXXXXX").string();
    Require(mkdtemp(path.data()) != nullptr, "there is room for files");
    directory_ = path;
    for (const auto& entry : std::filesystem::directory_iterator(original)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files_.push_back(
          {entry.path().filename(), std::string(std::istreambuf_iterator<char>(file), {})});
    }
    Require(!files_.empty(), "the program runs in the project's root");
    std::sort(files_.begin(), files_.end(),
              [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
    for (const ModelFile& file : files_) Write(file.name, file.contents);
  }
  ~ModelCopy() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<ModelFile>& files() const { return files_; }
  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(directory_ / name, std::ios::binary) << contents;
  }

 private:
  std::filesystem::path directory_;
  std::vector<ModelFile> files_;
};

// Changes `contents` as the next bytes of the script say.
void Edit(Script* script, std::string* contents) {
  const size_t kind = script->Byte();
  const size_t at = script->Word() % (contents->size() + 1);
  const size_t size = script->Byte();
  switch (kind % 5) {
    case 0: {
      const std::string_view bytes = script->Bytes(size);
      contents->replace(at, std::min(bytes.size(), contents->size() - at), bytes);
      break;
    }
    case 1:
      contents->insert(at, script->Bytes(size));
      break;
    case 2:
      contents->erase(at, size);
      break;
    case 3:
      contents->resize(at);
      break;
    case 4:  // one bit
      if (at < contents->size())
        (*contents)[at] = static_cast<char>((*contents)[at] ^ 1 << size % 8);
      break;
  }
}

void CheckTokens(const models::Model& model, int vocabulary_size) {
  const models::Tokenizer& tokenizer = *model.tokenizer();
  Require(tokenizer.size() == vocabulary_size, "a word is a row of the embedding");
  const auto ids = tokenizer.Encode("Who wrote the b\xc3\xb6ok?");
  if (!ids.ok()) return;
  for (const int32_t id : *ids) Require(id >= 0 && id < vocabulary_size, "ids are in range");
}

// A batch of two sequences through what was loaded of a classifier or an encoder.
void RunStack(const models::Model& model) {
  const kernels::Executable& executable = model.executable();
  kernels::WorkspaceLimits limits;
  limits.max_tokens = 3;
  limits.max_sequences = 2;
  std::unique_ptr<kernels::Workspace> workspace;
  Require(executable.CreateWorkspace(limits, &workspace).ok(), "a small workspace fits");
  const std::vector<int32_t> offsets = {0, 1, 3};
  const std::vector<int32_t> ids = {0, model.config().embedding.vocabulary_size - 1, 0};
  const std::vector<float> features(3 * static_cast<size_t>(model.spec().input_size), 0.5f);
  kernels::RaggedBatch batch;
  batch.num_sequences = 2;
  batch.offsets = offsets.data();
  if (model.config().has_embedding) {
    batch.token_ids = ids.data();
  } else {
    batch.features = features.data();
  }
  std::vector<std::vector<float>> vectors;
  std::vector<kernels::SequenceOutput> outputs(2);
  for (kernels::SequenceOutput& output : outputs) {
    vectors.emplace_back(3 * static_cast<size_t>(model.spec().output_size()));
    output.token_vectors = vectors.back().data();
  }
  Require(executable.Run(batch, outputs.data(), *workspace).ok(), "what is loaded can be run");
}

}  // namespace

void FuzzModel(std::string_view bytes) {
  static const auto* const kBackend =
      new std::unique_ptr<kernels::Backend>(kernels::CreateReferenceBackend());
  static ModelCopy models[] = {
      ModelCopy("tests/data/models/old_classifier/1"),
      ModelCopy("tests/data/models/old_encoder/1"),
      ModelCopy("tests/data/models/old_language_model/1"),
      ModelCopy("tests/data/models/old_reader/1"),
      ModelCopy("tests/data/models/old_translator/1"),
      ModelCopy("tests/golden/student/shared"),
      ModelCopy("tests/golden/student/apart"),
      ModelCopy("tests/golden/student/int8"),
  };
  constexpr size_t kMaxEdits = 16;
  Script script(bytes);
  const ModelCopy& copy = models[script.Byte() % std::size(models)];
  std::vector<std::string> contents;
  for (const ModelFile& file : copy.files()) contents.push_back(file.contents);
  for (size_t i = 0; i < kMaxEdits && !script.empty(); ++i) {
    Edit(&script, &contents[script.Byte() % contents.size()]);
  }
  const auto write_changed = [&](bool original) {
    for (size_t i = 0; i < contents.size(); ++i) {
      const ModelFile& file = copy.files()[i];
      if (contents[i] != file.contents)
        copy.Write(file.name, original ? file.contents : contents[i]);
    }
  };
  write_changed(/*original=*/false);
  // Before a model is loaded the server asks how much memory it will take.
  const models::MemoryEstimate estimate =
      models::MemoryNeeds(copy.directory()).With(models::MemoryUse());
  Require(estimate.total() >= 0 && estimate.files >= 0, "an estimate is no less than nothing");
  kernels::CompileOptions options;
  const auto model = models::Model::Load(copy.directory(), "fuzz", 1, **kBackend, options);
  write_changed(/*original=*/true);
  if (!model.ok()) {
    const std::string_view message(model.status().message().data(),
                                   model.status().message().size());
    Require(!message.empty() && message.size() < 4096 && FindInvalidUtf8(message) == message.size(),
            "an error has a message, which is valid UTF-8 of a bounded length");
    return;
  }
  Require((*model)->parameter_count() > 0, "a model has weights");
  const models::ModelConfig& config = (*model)->config();
  switch ((*model)->task()) {
    case models::Task::kClassifier:
    case models::Task::kEncoder:
      RunStack(**model);
      break;
    case models::Task::kTranslator:
      if ((*model)->tokenizer() != nullptr) {
        CheckTokens(**model, config.translator.source_vocabulary);
      }
      return;
    case models::Task::kLanguageModel:
    case models::Task::kReader:
    case models::Task::kTagger:
      break;
  }
  if ((*model)->tokenizer() != nullptr) CheckTokens(**model, config.embedding.vocabulary_size);
}

}  // namespace sru::fuzz
