#include "models/task_parts.h"

#include <utility>

#include "base/status.h"
#include "models/language_model.h"
#include "models/reader.h"
#include "models/stack_builder.h"
#include "models/tagger.h"
#include "models/translator.h"

namespace sru::models {

TaskParts PartsOf(Task task) {
  switch (task) {
    case Task::kClassifier:
    case Task::kEncoder:
      return {ReadStackKeys, nullptr, StackSizes};
    case Task::kLanguageModel:
      return {ReadStackKeys, BuildLanguageModel, LanguageModelSizes};
    case Task::kReader:
      return {ReadReaderKeys,
              [](const ModelConfig& config, const SafetensorsFile& tensors) -> BuiltProgram {
                SRU_ASSIGN_OR_RETURN(Reader reader, BuildReader(config, tensors));
                return std::make_unique<Reader>(std::move(reader));
              },
              ReaderSizes};
    case Task::kTranslator:
      return {ReadTranslatorKeys, BuildTranslator, TranslatorSizes};
    case Task::kTagger:
      return {ReadStackKeys, BuildTagger, TaggerSizes};
  }
  return {};
}

}  // namespace sru::models
