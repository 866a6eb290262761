#include "models/task_parts.h"

#include <utility>

#include "models/language_model.h"
#include "models/reader.h"
#include "models/stack_builder.h"
#include "models/tagger.h"
#include "models/translator.h"

namespace sru::models {
namespace {

using Config = const ModelConfig&;
using Tensors = const SafetensorsFile&;

template <typename Parts>
absl::StatusOr<std::unique_ptr<ProgramParts>> Boxed(absl::StatusOr<Parts> built) {
  if (!built.ok()) return built.status();
  return std::make_unique<Parts>(*std::move(built));
}

}  // namespace

TaskParts PartsOf(Task task) {
  switch (task) {
    case Task::kClassifier:
    case Task::kEncoder:
      return {ReadStackKeys, nullptr, StackSizes};
    case Task::kLanguageModel:
      return {ReadStackKeys, [](Config c, Tensors t) { return Boxed(BuildLanguageModel(c, t)); },
              LanguageModelSizes};
    case Task::kReader:
      return {ReadReaderKeys, [](Config c, Tensors t) { return Boxed(BuildReader(c, t)); },
              ReaderSizes};
    case Task::kTranslator:
      return {ReadTranslatorKeys, [](Config c, Tensors t) { return Boxed(BuildTranslator(c, t)); },
              TranslatorSizes};
    case Task::kTagger:
      return {ReadStackKeys, [](Config c, Tensors t) { return Boxed(BuildTagger(c, t)); },
              TaggerSizes};
  }
  return {};
}

}  // namespace sru::models
