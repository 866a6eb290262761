// A small model of each task, as the exporter wrote it (tests/data/models), and students in
// Marian's files, with changed bytes, through the loader that the server uses.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "kernels/reference/reference_backend.h"
#include "models/memory_estimate.h"
#include "models/model.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"
#include "tests/testing/test_files.h"

namespace sru::fuzz {
namespace {

// The files of one model, in a directory that is removed at exit.
struct ModelCopy {
  explicit ModelCopy(const std::string& original) {
    for (const auto& entry : std::filesystem::directory_iterator(original)) {
      const std::string name = entry.path().filename();
      files[name] = models::ReadWholeFile(entry.path());
      directory.Write(name, files[name]);
    }
  }
  const models::TempDirectory directory;
  std::map<std::string, std::string> files;
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
  static std::map<std::string, ModelCopy, std::less<>> copies;
  constexpr size_t kMaxEdits = 16;
  const auto [name, edits] = SplitName(bytes);
  if (!std::filesystem::is_directory(name)) return;
  const ModelCopy& copy = copies.try_emplace(std::string(name), std::string(name)).first->second;
  Script script(edits);
  std::vector<std::string> contents;
  for (const auto& [file, was] : copy.files) contents.push_back(was);
  for (size_t i = 0; i < kMaxEdits && !script.empty(); ++i) {
    Edit(&script, &contents[script.Byte() % contents.size()]);
  }
  const auto write_changed = [&](bool original) {
    size_t i = 0;
    for (const auto& [file, was] : copy.files) {
      const std::string& now = contents[i++];
      if (now != was) copy.directory.Write(file, original ? was : now);
    }
  };
  write_changed(/*original=*/false);
  // Before a model is loaded the server asks how much memory it will take.
  const models::MemoryEstimate estimate =
      models::MemoryNeeds(copy.directory.path()).With(models::MemoryUse());
  Require(estimate.total() >= 0 && estimate.files >= 0, "an estimate is no less than nothing");
  kernels::CompileOptions options;
  const auto model = models::Model::Load(copy.directory.path(), "fuzz", 1, **kBackend, options);
  write_changed(/*original=*/true);
  if (!model.ok()) return RequireMessage(model.status());
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
