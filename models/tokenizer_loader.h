// Makes the tokenizer that a config.json names, from the files beside it.
#ifndef SRU_MODELS_TOKENIZER_LOADER_H_
#define SRU_MODELS_TOKENIZER_LOADER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/config.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// The tokenizer of a model that has an embedding. `directory` has its file, if it needs one.
// Errors name the file: kNotFound when it is missing, kInvalidArgument when it is damaged or does
// not fit the config.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const ModelConfig& config,
                                                               const FilePath& directory);

}  // namespace sru::models

#endif  // SRU_MODELS_TOKENIZER_LOADER_H_
