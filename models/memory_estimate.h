// How much memory a version of a model takes while it is loaded and served, told from the sizes of
// its files and its config.json alone, so that one that does not fit can be refused before it is
// read.
#ifndef SRU_MODELS_MEMORY_ESTIMATE_H_
#define SRU_MODELS_MEMORY_ESTIMATE_H_

#include <cstdint>
#include <string>

#include "kernels/backend.h"
#include "models/config.h"

namespace sru::models {

// How the version will be served. Workspaces are those of the CPU backend; 0 where they are not in
// the process' memory, as on a GPU.
struct MemoryUse {
  kernels::PackedBytes bytes;  // of values as the backend keeps them
  int workspaces = 1;
  int threads = 1;        // that may compute one batch
  int max_tokens = 4096;  // of one batch
  int max_sequences = 256;
};

// Bytes.
struct MemoryEstimate {
  int64_t files =
      0;  // of the model on disk: config.json, the weights, the tokenizer's file and so on
  int64_t packed = 0;      // the weights as the backend keeps them, the token table included
  int64_t vocabulary = 0;  // words and their index, and a shortlist
  int64_t workspaces = 0;  // all of them
  int64_t passing = 0;     // more that only loading takes

  int64_t total() const { return packed + vocabulary + workspaces + passing; }
};

// Never fails: what cannot be read or does not fit together counts as far as it can be known, and
// loading it will say what is wrong.
MemoryEstimate EstimateMemory(const FilePath& directory, const MemoryUse& use);

// The part that a config.json determines: everything but `files` and the bytes of the tokenizer's
// file.
MemoryEstimate EstimateMemory(const ModelConfig& config, const MemoryUse& use);

}  // namespace sru::models

#endif  // SRU_MODELS_MEMORY_ESTIMATE_H_
