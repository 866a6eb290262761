#include "models/memory_estimate.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/weight_layout.h"
#include "models/files/gzip.h"
#include "models/language_model.h"
#include "models/reader.h"
#include "models/student.h"

namespace sru::models {
namespace {

using kernels::cpu::RowLayout;

constexpr int64_t kValueBytes = sizeof(float);
// Rows beyond a batch's last that a workspace and a token table have room for (packed_stack.h,
// classify.h).
constexpr int64_t kSpareRows = 256;
constexpr int64_t kSpareClassifierRows = 64;
// Columns that a product's packed weights are rounded up to.
constexpr int64_t kProductColumns = 64;
// Bytes per thread: the product of a chunk of rows for one part of a layer (packed_stack.cc).
constexpr int64_t kChunkBytes = 256 << 10;
constexpr int64_t kPartSize = 128;
// Threads that share a product of a program at most (cpu_program.h).
constexpr int64_t kProgramThreads = 4;
// Rows that one of them takes at a time (program_product.cc).
constexpr int64_t kPieceRows = 64;
// Float32 matrices of a part's size that packing it takes (product.cc).
constexpr int64_t kPartCopies = 3;
// Rows of a language model's output layer that are packed at a time (program_product.cc).
constexpr int64_t kOutputBlock = 512;
// Rows that a thread gathers for it: a group, and those past it that a product may read.
constexpr int64_t kOutputRows = 640;
// The sum of a column of an int8 product, and its bias.
constexpr int64_t kInt8ColumnBytes = 8;
// Positions whose sinusoids are kept (program_embed.cc).
constexpr int64_t kSinusoidRows = 1024;
// Bytes per word: its view, and its place in a hash map that is half full at worst.
constexpr int64_t kWordBytes = 16 + 2 * 25;
// Of a SentencePiece piece: the same, its text and score, and the nodes of the trie that few other pieces go through.
constexpr int64_t kPieceBytes = 2 * 25 + 48 + 6 * 12;
// A byte of a file of pieces takes a node of the trie, if no two pieces begin alike, in memory that may have doubled; and while the file is
// parsed, its part of the shortest piece, since nobody knows yet how many there are.
constexpr int64_t kPieceByteBytes = 2 * 12;
constexpr int64_t kPassingByteBytes = 2 * 48 / 5;

int64_t TokenBytes(TokenizerType type) {
  if (*Describe(type).file == '\0') return 0;  // a table of 256 ids
  return type == TokenizerType::kSentencePiece ? kPieceBytes : kWordBytes;
}

int64_t FileBytes(const FilePath& path) {
  const auto file = OpenFile::Open(path, std::numeric_limits<int64_t>::max());
  return file.ok() ? static_cast<int64_t>(file->size()) : 0;
}

int64_t ProductColumns(int64_t n) {
  return (n + kProductColumns - 1) / kProductColumns * kProductColumns;
}

// Values in the tensors of a model with this config, in the file and as the CPU backend lays them
// out.
struct Sizes {
  int64_t in_file = 0;
  int64_t packed = 0;  // weights of products
  int64_t int8_bytes =
      0;  // the same and tables, where the file has them as int8: with what is kept of each column
  int64_t columns = 0;  // of these
  int64_t token_table = 0;
  int64_t embedding = 0;  // rows that are kept
  int64_t constants = 0;  // as packed, but always float32
  // The largest tensor while it is packed, as it is in the file, with what is laid out of it at a
  // time; of the gates' weights only where activations are float32: bfloat16 takes them, as all take
  // embeddings, in small parts.
  int64_t passing = 0;
  int64_t passing_gates = 0;
  int64_t parts = 0;  // of a layer, each of which a thread may compute
  int64_t widest_row = 0;
  int64_t product_rows = 0;  // values per token that precede products, over all layers
  int64_t program_row = 0;   // values per token that a program keeps beside its stacks'
  int64_t stacks = 1;        // each with a workspace of its own
};

// The weights of y = x w, [k][n]. Returns how many values are packed.
int64_t AddProduct(int64_t k, int64_t n, Sizes* sizes) {
  const int64_t columns = ProductColumns(n);
  sizes->packed += k * columns;
  sizes->columns += columns;
  return k * columns;
}

// Rows of the output layer's weight, out.weight. A tied one is the embedding in the file, and yet
// packed for itself: looking up and multiplying want different layouts.
int64_t OutputRows(const ModelConfig& config) {
  return config.task == Task::kLanguageModel ? config.embedding.vocabulary_size
                                             : static_cast<int64_t>(config.labels.size());
}

// The layers of a stack, which reads `rows`. `vocabulary_size` is that of an embedding before it, 0
// without; returns whether nothing reads that embedding but the token table.
bool AddLayers(const EncoderConfig& encoder, RowLayout rows, int64_t vocabulary_size,
               Sizes* sizes) {
  sizes->widest_row = std::max<int64_t>(sizes->widest_row, rows.stride());
  const RowLayout output = {encoder.directions(), encoder.hidden_size};
  bool looks_up_input = false;
  if (encoder.has_input_to_hidden()) {
    sizes->in_file += int64_t{encoder.input_size} * encoder.output_size();
    const int64_t packed = AddProduct(rows.stride(), output.stride(), sizes);
    sizes->passing = packed + int64_t{encoder.input_size} * encoder.output_size();
    rows = output;
  }
  for (int i = 0; i < encoder.num_layers; ++i) {
    const int64_t projection = encoder.layer_projection_size(i);
    const int64_t input = encoder.layer_input_size(i);
    const int64_t gates = encoder.has_skip_term && input != encoder.output_size() ? 4 : 3;
    RowLayout product = rows;
    if (encoder.layer_norm && !encoder.normalize_after) sizes->product_rows += rows.stride();
    if (projection > 0) {
      product = {1, static_cast<int>(projection)};
      const int64_t packed = AddProduct(rows.stride(), product.stride(), sizes);
      sizes->in_file += input * projection;
      sizes->passing = std::max(sizes->passing, input * projection + packed);
      sizes->product_rows += product.stride();
    }
    for (int direction = 0; direction < encoder.directions(); ++direction) {
      AddProduct(product.stride(), gates * output.padded(), sizes);
    }
    const int64_t weight = (projection > 0 ? projection : input) * encoder.output_size() * gates;
    sizes->in_file += weight;
    const int64_t part = product.stride() * gates * std::min<int64_t>(kPartSize, output.padded());
    sizes->passing_gates = std::max(sizes->passing_gates, weight + kPartCopies * part);
    sizes->constants += int64_t{4} * output.stride();
    if (i == 0 && vocabulary_size > 0 && !encoder.has_input_to_hidden()) {
      const int64_t table =
          (vocabulary_size + kSpareRows) * encoder.directions() * gates * output.padded();
      if (table * kValueBytes <= static_cast<int64_t>(kernels::cpu::kMaxTokenProductBytes)) {
        sizes->token_table = table;
      }
      looks_up_input = sizes->token_table > 0 && (gates == 4 || !encoder.has_skip_term);
    }
    rows = output;
  }
  sizes->widest_row = std::max<int64_t>(sizes->widest_row, output.stride());
  sizes->parts = (output.stride() + kPartSize - 1) / kPartSize;
  return looks_up_input;
}

Sizes SizesOfStack(const ModelConfig& config) {
  const EncoderConfig& encoder = config.encoder;
  Sizes sizes;
  const RowLayout input = {1, encoder.input_size};
  const RowLayout output = {encoder.directions(), encoder.hidden_size};
  const int64_t vocabulary_size = config.has_embedding ? config.embedding.vocabulary_size : 0;
  const bool looks_up_input = AddLayers(encoder, input, vocabulary_size, &sizes);
  if (!looks_up_input) sizes.embedding = vocabulary_size * input.stride();
  sizes.in_file += vocabulary_size * encoder.input_size;
  const int64_t outputs = OutputRows(config);
  if (!config.tied) sizes.in_file += outputs * encoder.output_size();
  AddProduct(output.stride(), outputs, &sizes);
  // A language model's is packed in blocks.
  const int64_t block = config.task == Task::kLanguageModel ? kOutputBlock : outputs;
  sizes.passing =
      std::max(sizes.passing, std::min(block, outputs) * encoder.output_size() +
                                  output.stride() * ProductColumns(std::min(block, outputs)));
  return sizes;
}

// The program keeps each token's vector, and the features where there is no embedding.
Sizes SizesOfTagger(const ModelConfig& config) {
  Sizes sizes = SizesOfStack(config);
  sizes.program_row =
      config.encoder.output_size() + (config.has_embedding ? 0 : config.encoder.input_size);
  return sizes;
}

// Its values are in one workspace with those of the stacks.
Sizes SizesOfReader(const ModelConfig& config) {
  const ReaderConfig& reader = config.reader;
  Sizes sizes;
  const int64_t width = reader.embedding_dim;
  const int64_t embedding = config.embedding.vocabulary_size * width;
  sizes.in_file = embedding + int64_t{reader.pos_size} * reader.pos_dim +
                  int64_t{reader.ner_size} * reader.ner_dim;
  sizes.embedding = sizes.in_file;
  sizes.program_row = 2 * width + config.encoder.input_size + reader.num_features() +
                      reader.pos_dim + reader.ner_dim;
  int64_t match_table = 0;  // in memory while all else is packed
  if (reader.use_qemb) {
    sizes.in_file += width * width;
    // What the aligned question compares is a table, too, unless that is too large.
    if (embedding * kValueBytes <= static_cast<int64_t>(kMaxMatchTableBytes)) {
      sizes.embedding += embedding;
      match_table = embedding;
    }
    sizes.program_row += 3 * width;
  }
  EncoderConfig question = config.encoder;
  question.input_size = reader.embedding_dim;
  question.num_layers = reader.question_layers;
  const auto vectors = [&](const EncoderConfig& encoder) {
    const int64_t layers = reader.concat_rnn_layers ? encoder.num_layers : 1;
    sizes.stacks += layers;
    // Those of each layer, and beside each other.
    sizes.program_row += encoder.output_size() * (layers == 1 ? 1 : 2 * layers);
    return encoder.output_size() * layers;
  };
  sizes.stacks = 0;
  const int64_t passage_vector = vectors(config.encoder);
  const int64_t question_vector = vectors(question);
  for (const EncoderConfig& encoder : {config.encoder, question}) {
    AddLayers(encoder, {1, encoder.input_size}, 0, &sizes);
  }
  sizes.passing += match_table;
  sizes.passing_gates += match_table;
  sizes.in_file += 2 * question_vector * passage_vector;
  for (int i = 0; i < 2; ++i) AddProduct(question_vector, passage_vector, &sizes);
  return sizes;
}

// Each SRU layer is a stack of its own; the values between them are in one workspace.
Sizes SizesOfTranslator(const TranslatorConfig& config) {
  Sizes sizes;
  const int64_t width = config.d_model;
  // A linear map of `inputs` values.
  const auto linear = [&sizes](int64_t inputs, int64_t outputs) {
    sizes.in_file += inputs * outputs;
    const int64_t packed =
        AddProduct(RowLayout{1, static_cast<int>(inputs)}.stride(), outputs, &sizes);
    sizes.constants += outputs;
    const int64_t block = std::min(kOutputBlock, outputs);
    sizes.passing = std::max(sizes.passing, inputs * outputs + packed * block / outputs);
  };
  const auto layers = [&](int count, int attentions, bool bidirectional) {
    EncoderConfig sru;
    sru.input_size = config.d_model;
    sru.bidirectional = bidirectional;
    sru.hidden_size = config.d_sru / sru.directions();
    sru.num_layers = 1;
    sru.has_skip_term = false;
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < 4 * attentions; ++j) linear(width, width);
      AddLayers(sru, {1, config.d_model}, 0, &sizes);
      linear(config.d_sru, width);
    }
  };
  layers(config.encoder_layers, 1, config.bidirectional_encoder);
  layers(config.decoder_layers, 2, false);
  linear(width, config.target_vocabulary);
  const int64_t words =
      config.source_vocabulary + (config.shared_embeddings ? 0 : config.target_vocabulary);
  sizes.embedding = words * width;
  sizes.in_file += sizes.embedding;
  // The sinusoids of the first positions, with each table.
  sizes.constants += (config.shared_embeddings ? 1 : 2) * kSinusoidRows * width;
  sizes.stacks = config.encoder_layers + config.decoder_layers;
  // Of the source and of the target each: x, and queries, keys, values and what is attended to, or h.
  sizes.program_row = 2 * (width + std::max<int64_t>(4 * width, width + config.d_sru));
  return sizes;
}

// A table that is also the output layer counts for both: without a shortlist they are laid out differently.
Sizes SizesOfStudent(const TranslatorConfig& config) {
  Sizes sizes;
  const int64_t width = config.d_model;
  const auto linear = [&](int64_t inputs, int64_t outputs) {
    sizes.in_file += inputs * outputs;
    if (config.int8_weights) {
      sizes.int8_bytes += (inputs + kInt8ColumnBytes) * ProductColumns(outputs);
    } else {
      AddProduct(RowLayout{1, static_cast<int>(inputs)}.stride(), outputs, &sizes);
    }
    sizes.constants += outputs;
  };
  const auto layers = [&](int count, int maps) {
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < maps; ++j) linear(width, width);
      linear(width, config.d_ffn);
      linear(config.d_ffn, width);
    }
  };
  layers(config.encoder_layers, 4);
  layers(config.decoder_layers, 6);
  const int64_t words =
      config.source_vocabulary + (config.shared_embeddings ? 0 : config.target_vocabulary);
  sizes.in_file += words * width;
  // The output layer's weight is a table in the file.
  const int64_t in_file = sizes.in_file;
  linear(width, config.target_vocabulary);
  sizes.in_file = in_file;
  (config.int8_weights ? sizes.int8_bytes : sizes.embedding) += words * width;
  sizes.constants += 2 * kSinusoidRows * width;
  // All values are in memory while they are packed.
  sizes.passing = config.int8_weights ? in_file / kValueBytes : in_file;
  sizes.stacks = 0;
  sizes.program_row = 2 * (width + std::max<int64_t>(4 * width, width + config.d_ffn));
  return sizes;
}

Sizes SizesOf(const ModelConfig& config) {
  switch (config.task) {
    case Task::kClassifier:
    case Task::kEncoder:
    case Task::kLanguageModel:
      return SizesOfStack(config);
    case Task::kTagger:
      return SizesOfTagger(config);
    case Task::kReader:
      return SizesOfReader(config);
    case Task::kTranslator:
      return config.translator.student ? SizesOfStudent(config.translator)
                                       : SizesOfTranslator(config.translator);
  }
  return Sizes();
}

MemoryEstimate EstimateOf(const ModelConfig& config, const Sizes& sizes, const MemoryUse& use) {
  MemoryEstimate estimate;
  const auto weight_bytes = static_cast<int64_t>(use.bytes.weight);
  const auto embedding_bytes = static_cast<int64_t>(use.bytes.embedding);
  const auto activation_bytes = static_cast<int64_t>(use.bytes.activation);
  estimate.packed = sizes.int8_bytes + sizes.packed * weight_bytes +
                    sizes.embedding * embedding_bytes +
                    sizes.columns * static_cast<int64_t>(use.bytes.column) +
                    (sizes.constants + sizes.token_table) * kValueBytes;
  estimate.passing = sizes.passing * kValueBytes;
  if (activation_bytes == kValueBytes) {
    estimate.passing = std::max(estimate.passing, sizes.passing_gates * kValueBytes);
  }
  if (config.has_tokenizer) {
    estimate.vocabulary = config.embedding.vocabulary_size * TokenBytes(config.tokenizer.type);
  }
  const int64_t rows = use.max_tokens + kSpareRows;
  const int64_t pooled_rows = use.max_sequences + kSpareClassifierRows;
  const auto labels = static_cast<int64_t>(config.labels.size());
  const int64_t threads = std::min<int64_t>(kProgramThreads, use.threads);
  const auto workspace = [&](int64_t tokens) {
    int64_t bytes = tokens * (2 * sizes.widest_row + sizes.product_rows) * activation_bytes;
    bytes += pooled_rows * (config.encoder.output_size() + labels) * kValueBytes;
    bytes += std::min<int64_t>(sizes.parts, use.threads) * kChunkBytes;
    bytes *= sizes.stacks;
    // The token vectors, and those of the tokens before, from which the tokens are predicted; and
    // per thread the rows that it multiplies by the output layer, with a piece of the product.
    if (config.task == Task::kLanguageModel) {
      bytes += (2 * tokens + threads * kOutputRows) * config.encoder.output_size() * kValueBytes;
      bytes += threads * kChunkBytes;
    }
    return bytes;
  };
  int64_t bytes = workspace(rows);
  if (config.task == Task::kLanguageModel) {
    // One workspace scores and one generates; the latter has what comes after each sequence as well.
    bytes += workspace(std::min<int64_t>(use.max_tokens, kMaxStepTokens) + kSpareRows) +
             2 * pooled_rows * config.encoder.output_size() * kValueBytes;
  }
  bytes += rows * sizes.program_row * kValueBytes;
  // A piece of a product, per thread (program_product.cc).
  if (config.task == Task::kReader || config.task == Task::kTagger) bytes += threads * kChunkBytes;
  // The rows that go into it, which a thread gathers, and those past the last that it may read.
  if (config.task == Task::kTagger) {
    bytes += (2 * threads + 1) * kPieceRows * config.encoder.output_size() * kValueBytes;
  }
  // The buffer that features are gathered in.
  if (!config.has_embedding) {
    bytes += int64_t{use.max_tokens} * config.encoder.input_size * kValueBytes;
  }
  estimate.workspaces = bytes * use.workspaces;
  return estimate;
}

// Adds the memory of the pieces of a file of `bytes` bytes.
void AddPieceBytes(int64_t bytes, MemoryEstimate* estimate) {
  estimate->vocabulary += bytes * kPieceByteBytes;
  estimate->passing = std::max(estimate->passing, bytes * kPassingByteBytes);
}

MemoryEstimate EstimateOfStudent(const Student& student, const MemoryUse& use) {
  const Sizes sizes = SizesOf(student.config);
  int64_t elements = 0;
  int64_t bytes = 0;
  for (const MarianTensor& tensor : student.weights->tensors()) {
    elements += static_cast<int64_t>(tensor.elements);
    bytes += static_cast<int64_t>(tensor.bytes());
  }
  MemoryEstimate estimate;
  // Fewer values than the options say are refused for that, once they are read.
  if (sizes.in_file <= elements) estimate = EstimateOf(student.config, sizes, use);
  // A gzip'd file is in memory as a whole, too.
  const FilePath& directory = student.directory;
  if (absl::EndsWith(student.files.weights, kGzipSuffix)) estimate.passing += bytes;
  for (const std::string& name : student.files.names())
    estimate.files += FileBytes(directory / name);
  estimate.files += FileBytes(directory / "config.json");
  std::set<std::string> vocabularies = {student.files.source_vocabulary,
                                        student.files.target_vocabulary};
  for (const std::string& name : vocabularies) {
    AddPieceBytes(FileBytes(directory / name), &estimate);
  }
  if (vocabularies.size() > 1) {
    estimate.vocabulary +=
        student.options.target_vocabulary * TokenBytes(TokenizerType::kSentencePiece);
  }
  if (!student.files.shortlist.empty())
    estimate.vocabulary += FileBytes(directory / student.files.shortlist);
  return estimate;
}

}  // namespace

MemoryEstimate EstimateMemory(const ModelConfig& config, const MemoryUse& use) {
  return EstimateOf(config, SizesOf(config), use);
}

MemoryEstimate EstimateMemory(const FilePath& directory, const MemoryUse& use) {
  if (const auto student = OpenStudent(directory); student.ok() && student->has_value()) {
    return EstimateOfStudent(**student, use);
  }
  const FilePath config_path = directory / "config.json";
  const int64_t weights = FileBytes(directory / "model.safetensors");
  MemoryEstimate estimate;
  int64_t words = 0;  // of the tokenizer's file
  bool pieces = false;
  if (const auto config = ReadModelConfig(config_path); config.ok()) {
    const Sizes sizes = SizesOf(*config);
    // A file that is too small for what the config says is refused for that, once it is read.
    if (sizes.in_file * kValueBytes <= weights) estimate = EstimateOf(*config, sizes, use);
    pieces = config->has_tokenizer && config->tokenizer.type == TokenizerType::kSentencePiece;
    const char* const file = config->has_tokenizer ? Describe(config->tokenizer.type).file : "";
    if (*file != '\0') words = FileBytes(directory / file);
  }
  estimate.files = FileBytes(config_path) + weights + words;
  // Read, and then kept in a string of its own.
  estimate.vocabulary += words;
  estimate.passing = std::max(estimate.passing, words);
  if (pieces) AddPieceBytes(words, &estimate);
  return estimate;
}

}  // namespace sru::models
