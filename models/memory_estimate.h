// How much memory a version of a model takes while it is loaded and served, told from the sizes of
// its files and its config.json alone, so that one that does not fit can be refused before it is
// read.
#ifndef SRU_MODELS_MEMORY_ESTIMATE_H_
#define SRU_MODELS_MEMORY_ESTIMATE_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/model_sizes.h"
#include "models/config.h"
#include "models/files/file.h"
#include "models/model.h"

namespace sru::models {

// How the version will be served.
struct MemoryUse {
  const kernels::Backend* backend = nullptr;  // whose workspaces count; null: none
  kernels::PackedBytes bytes;                 // of values as the backend keeps them
  int workspaces = 1;                         // in which batches run at once
  int max_tokens = 4096;                      // of one batch
  int max_sequences = 256;
};

// Bytes.
struct MemoryEstimate {
  int64_t files =
      0;  // of the model on disk: config.json, the weights, the tokenizer's file and so on
  int64_t packed = 0;      // the weights as the backend keeps them, the token table included
  int64_t vocabulary = 0;  // words and their index, and a shortlist
  int64_t workspaces = 0;  // that they add to those of the models that are loaded
  int64_t passing = 0;     // more that only loading takes

  // For what a load takes beside these: the allocator's rounding, oneDNN's primitives and their
  // code, stacks of threads, pages of the files and of programs that run for the first time.
  int64_t margin = 0;

  int64_t total() const { return packed + vocabulary + workspaces + passing + margin; }
};

// The memory that a version takes as its files tell it, before it is known how it will be served.
// Never fails: what cannot be read or does not fit together counts as far as it can be known, and
// loading it will say what is wrong.
class MemoryNeeds {
 public:
  MemoryNeeds() = default;  // of nothing
  // Reads the files in `directory`. Compressed weights are read as a whole only to know their
  // sizes: if they take more than `most_bytes` decompressed, nothing else is read, and the estimate
  // has no more than these bytes.
  explicit MemoryNeeds(const FilePath& directory,
                       int64_t most_bytes = std::numeric_limits<int64_t>::max());

  MemoryEstimate With(const MemoryUse& use) const;

  // What the files say, for Model::Load(), or what is wrong with them. Nullopt: they were not read.
  const std::optional<absl::StatusOr<ModelFiles>>& files() const { return files_; }

 private:
  void AddStudent(const Student& student);
  void AddPieceBytes(int64_t bytes);  // of a file of SentencePiece's

  std::optional<absl::StatusOr<ModelFiles>> files_;
  // Nullopt: not known, or the weights are fewer, for which they are refused once they are read.
  std::optional<kernels::ModelSizes> sizes_;
  int64_t decompressed_ = 0;  // bytes of compressed weights; 0 of others
  MemoryEstimate rest_;
};

// The part that a config.json determines: everything but `files` and the bytes of the tokenizer's
// file.
MemoryEstimate EstimateMemory(const ModelConfig& config, const MemoryUse& use);

}  // namespace sru::models

#endif  // SRU_MODELS_MEMORY_ESTIMATE_H_
