#include "models/memory_estimate.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "models/files/gzip.h"
#include "models/student.h"
#include "models/task_parts.h"

namespace sru::models {
namespace {

using kernels::kValueBytes;

// Bytes per word: its view, and its place in a hash map that is half full at worst.
constexpr int64_t kWordBytes = 16 + 2 * 25;
// Of a SentencePiece piece: the same, its text and score, and the nodes of the trie that few other
// pieces go through.
constexpr int64_t kPieceBytes = 2 * 25 + 48 + 6 * 12;
// A byte of a file of pieces takes a node of the trie, if no two pieces begin alike, in memory that
// may have doubled; and while the file is parsed, its part of the shortest piece, since nobody
// knows yet how many there are.
constexpr int64_t kPieceByteBytes = 2 * 12;
constexpr int64_t kPassingByteBytes = 2 * 48 / 5;
// The margin: models that were loaded where there was just enough memory took up to 17 MB and 4%
// more than the sizes of their arrays.
constexpr int64_t kMarginBytes = 24'000'000;
constexpr int64_t kMarginShare = 20;

int64_t TokenBytes(TokenizerType type) {
  if (*Describe(type).file == '\0') return 0;  // a table of 256 ids
  return type == TokenizerType::kSentencePiece ? kPieceBytes : kWordBytes;
}

int64_t FileBytes(const FilePath& path) {
  const auto file = OpenFile::Open(path);
  return file.ok() ? static_cast<int64_t>(file->size()) : 0;
}

MemoryEstimate EstimateOf(const ModelConfig& config, kernels::ModelSizes sizes,
                          const MemoryUse& use) {
  MemoryEstimate estimate;
  const auto weight_bytes = static_cast<int64_t>(use.bytes.weight);
  const auto embedding_bytes = static_cast<int64_t>(use.bytes.embedding);
  estimate.packed = sizes.int8_bytes + sizes.packed * weight_bytes +
                    sizes.embedding * embedding_bytes +
                    sizes.columns * static_cast<int64_t>(use.bytes.column) +
                    (sizes.constants + sizes.token_table) * kValueBytes;
  estimate.passing = sizes.passing * kValueBytes;
  if (use.bytes.activation == kValueBytes) {
    estimate.passing = std::max(estimate.passing, sizes.passing_gates * kValueBytes);
  }
  if (config.has_tokenizer) {
    estimate.vocabulary = config.embedding.vocabulary_size * TokenBytes(config.tokenizer.type);
  }
  int64_t bytes = 0;
  if (use.backend != nullptr) {
    sizes.pooled_row = config.encoder.output_size() + static_cast<int64_t>(config.labels.size());
    kernels::WorkspaceLimits limits;
    limits.max_tokens = use.max_tokens;
    limits.max_sequences = use.max_sequences;
    bytes = use.backend->workspace_bytes(sizes, limits, use.bytes.activation);
    if (sizes.step_tokens > 0) {
      // One workspace scores and one generates, in the same memory; the latter has what comes after
      // each sequence, too.
      limits.max_tokens = static_cast<int>(std::min<int64_t>(use.max_tokens, sizes.step_tokens));
      sizes.pooled_row += 2 * config.encoder.output_size();
      bytes = std::max(bytes, use.backend->workspace_bytes(sizes, limits, use.bytes.activation));
    }
  }
  // The buffer that features are gathered in.
  if (!config.has_embedding) {
    bytes += int64_t{use.max_tokens} * config.encoder.input_size * kValueBytes;
  }
  estimate.workspaces = bytes * use.workspaces;
  return estimate;
}

}  // namespace

MemoryEstimate EstimateMemory(const ModelConfig& config, const MemoryUse& use) {
  return EstimateOf(config, PartsOf(config.task).sizes(config), use);
}

void MemoryNeeds::AddPieceBytes(int64_t bytes) {
  rest_.vocabulary += bytes * kPieceByteBytes;
  rest_.passing = std::max(rest_.passing, bytes * kPassingByteBytes);
}

void MemoryNeeds::AddStudent(const Student& student) {
  sizes_ = StudentSizes(student.config.translator);
  if (sizes_->in_file > student.num_weights) sizes_.reset();
  const FilePath& directory = student.directory;
  for (const std::string& name : student.files.names()) rest_.files += FileBytes(directory / name);
  rest_.files += FileBytes(directory / "config.json");
  std::set<std::string> vocabularies = {student.files.source_vocabulary,
                                        student.files.target_vocabulary};
  for (const std::string& name : vocabularies) AddPieceBytes(DecompressedBytes(directory / name));
  if (vocabularies.size() > 1) {
    rest_.vocabulary +=
        student.options.target_vocabulary * TokenBytes(TokenizerType::kSentencePiece);
  }
  if (!student.files.shortlist.empty())
    rest_.vocabulary += DecompressedBytes(directory / student.files.shortlist);
}

MemoryNeeds::MemoryNeeds(const FilePath& directory, int64_t most_bytes) {
  const auto files = FindStudent(directory);
  if (files.ok() && files->has_value() && absl::EndsWith((*files)->weights, kGzipSuffix)) {
    const FilePath weights = directory / (*files)->weights;
    decompressed_ = DecompressedBytes(weights);
    if (decompressed_ > most_bytes) {
      rest_.files = FileBytes(weights);
      return;
    }
  }
  files_ = OpenModel(directory);
  const ModelFiles* const read = files_->ok() ? &**files_ : nullptr;
  if (read != nullptr && read->student.has_value()) {
    AddStudent(*read->student);
    return;
  }
  decompressed_ = 0;
  const int64_t weights = FileBytes(directory / "model.safetensors");
  int64_t words = 0;  // of the tokenizer's file
  bool pieces = false;
  if (read != nullptr) {
    const ModelConfig& config = read->config;
    sizes_ = PartsOf(config.task).sizes(config);
    if (sizes_->in_file > weights / kValueBytes) sizes_.reset();
    pieces = config.has_tokenizer && config.tokenizer.type == TokenizerType::kSentencePiece;
    const char* const file = config.has_tokenizer ? Describe(config.tokenizer.type).file : "";
    if (*file != '\0') words = FileBytes(directory / file);
  }
  rest_.files = FileBytes(directory / "config.json") + weights + words;
  // Read, and then kept in a string of its own.
  rest_.vocabulary += words;
  rest_.passing = words;
  if (pieces) AddPieceBytes(words);
}

MemoryEstimate MemoryNeeds::With(const MemoryUse& use) const {
  MemoryEstimate estimate;
  if (sizes_.has_value()) estimate = EstimateOf((*files_)->config, *sizes_, use);
  estimate.passing = std::max(estimate.passing + decompressed_, rest_.passing);
  estimate.vocabulary += rest_.vocabulary;
  estimate.files = rest_.files;
  if (estimate.total() > 0) estimate.margin = kMarginBytes + estimate.total() / kMarginShare;
  return estimate;
}

}  // namespace sru::models
