#include "models/student.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status.h"
#include "models/decoding/shortlist.h"
#include "models/files/gzip.h"
#include "models/files/json.h"
#include "models/marian/tensor_file.h"
#include "models/object_reader.h"
#include "models/tensor_pages.h"
#include "nlohmann/json.hpp"

namespace sru::models {

namespace ops = kernels::ops;

namespace {

using kernels::FieldId;
using kernels::FloatView;
using kernels::Int8View;
using kernels::kNone;
using kernels::ValueId;

constexpr float kStudentNormEpsilon = 1e-9f;
constexpr int32_t kEndId = 0;
constexpr int32_t kUnknownId = 1;
// Positions are computed, so only memory bounds a length. Firefox cuts sentences at 127 pieces.
constexpr int kMaxStudentPositions = 2048;
constexpr uint64_t kMaxOptionsBytes = 64 << 10;
constexpr uint64_t kMaxPiecesBytes = uint64_t{1} << 28;
constexpr uint64_t kMaxShortlistBytes = uint64_t{1} << 30;
constexpr int kMaxStudentConfigDepth = 4;
// The sum of a column of an int8 product, and its bias.
constexpr int64_t kInt8ColumnBytes = 8;
constexpr char kMultiplierSuffix[] = "_QuantMultA";

// Takes tensors by their names in Marian, and remembers the first error and which were taken.
class StudentWeights {
 public:
  // [rows][columns], one of both.
  struct Matrix {
    FloatView floats;
    Int8View int8;
  };

  explicit StudentWeights(std::unique_ptr<TensorFile> file)
      : owned_file_(std::move(file)), file_(*owned_file_) {
    for (size_t i = 0; i < file_.tensors().size(); ++i) indices_[file_.tensors()[i].name] = i;
  }

  // A vector, which Marian writes as one row.
  FloatView Vector(const std::string& name, int64_t size) {
    const MarianTensor* const tensor = Find(name, {1, size});
    if (tensor == nullptr) return {};
    if (tensor->type != MarianTensor::Type::kFloat32) {
      Fail(name, "expected float32 values");
      return {};
    }
    const FloatView view{Read(name), tensor->elements};
    status_.Update(CheckFinite(file_.source(), name, view, 0));
    return view;
  }

  // A weight that is [inputs][outputs] in the file, as [outputs][inputs]. Called once for each.
  Matrix Weight(const std::string& name, int64_t inputs, int64_t outputs) {
    Matrix matrix = Take(name, {inputs, outputs}, {name});
    if (matrix.floats.empty()) return matrix;  // int8 values are in this order already
    std::unique_ptr<float[]> values(new float[matrix.floats.size]);
    for (int64_t i = 0; i < inputs; ++i) {
      for (int64_t o = 0; o < outputs; ++o) {
        values[o * inputs + i] = matrix.floats.data[i * outputs + o];
      }
    }
    matrix.floats.data = values.get();
    values_[name] = std::move(values);
    return matrix;
  }

  // A table, [rows][width] in every file, which may be the output layer's weight, too.
  Matrix Table(const std::string& name, int64_t rows, int64_t width) {
    return Take(name, {rows, width}, {name, "none"});
  }

  // Call last: returns the first error, or that of a tensor that was not taken or a file that was
  // written to meanwhile.
  absl::Status Finish() const {
    SRU_RETURN_UNLESS_OK(status_);
    for (const MarianTensor& tensor : file_.tensors()) {
      if (values_.count(tensor.name) != 0 || tensor.name == kMarianOptionsTensor ||
          absl::EndsWith(tensor.name, kMultiplierSuffix)) {
        continue;
      }
      return InvalidArgument(file_.source(), ": tensor ", Quoted(tensor.name), " of shape ",
                             ShapeString(tensor.shape),
                             " is not part of a model with these options");
    }
    return file_.CheckUnchanged();
  }

 private:
  void Fail(const std::string& name, const std::string& what) {
    status_.Update(InvalidArgument(file_.source(), ": tensor ", Quoted(name), ": ", what));
  }

  // Null, with an error, when there is none of this name and shape. A vector may have one
  // dimension.
  const MarianTensor* Find(const std::string& name, const std::vector<int64_t>& shape) {
    const auto it = indices_.find(name);
    if (it == indices_.end()) {
      status_.Update(
          absl::NotFoundError(absl::StrCat(file_.source(), ": tensor ", Quoted(name),
                                           " is missing; expected shape ", ShapeString(shape))));
      return nullptr;
    }
    const MarianTensor& tensor = file_.tensors()[it->second];
    const bool is_vector = shape[0] == 1 && tensor.shape == std::vector<int64_t>{shape[1]};
    if (tensor.shape == shape || is_vector) return &tensor;
    Fail(name, absl::StrCat("expected shape ", ShapeString(shape), ", found ",
                            ShapeString(tensor.shape)));
    return nullptr;
  }

  // The values, read once; zeros after an error.
  const float* Read(const std::string& name) {
    std::unique_ptr<float[]>& values = values_[name];
    if (values == nullptr) {
      const size_t index = indices_.at(name);
      const uint64_t bytes = file_.tensors()[index].bytes();
      values = std::make_unique<float[]>((bytes + sizeof(float) - 1) / sizeof(float));
      if (status_.ok()) status_ = file_.Read(index, reinterpret_cast<char*>(values.get()));
    }
    return values.get();
  }

  // The matrix, whose activations have the first multiplier that there is.
  Matrix Take(const std::string& name, const std::vector<int64_t>& shape,
              const std::vector<std::string>& multipliers) {
    const MarianTensor* const tensor = Find(name, shape);
    if (tensor == nullptr) return {};
    Matrix matrix;
    switch (tensor->type) {
      case MarianTensor::Type::kFloat32:
        matrix.floats = {Read(name), tensor->elements};
        status_.Update(CheckFinite(file_.source(), name, matrix.floats, 0));
        return matrix;
      case MarianTensor::Type::kBytes:
        Fail(name, "expected float32 or intgemm8 values, found bytes");
        return matrix;
      case MarianTensor::Type::kIntgemm8:
        break;
    }
    const float* const values = Read(name);
    matrix.int8.data = reinterpret_cast<const int8_t*>(values);
    matrix.int8.size = tensor->elements;
    std::memcpy(&matrix.int8.multiplier, matrix.int8.data + tensor->elements, sizeof(float));
    CheckMultiplier(name, matrix.int8.multiplier);
    const int8_t* const end = matrix.int8.data + tensor->elements;
    if (std::find(matrix.int8.data, end, -128) != end)
      Fail(name, "expected values from -127 to 127, found -128");
    for (const std::string& multiplier : multipliers) {
      const std::string of = multiplier + kMultiplierSuffix;
      if (indices_.count(of) == 0 || matrix.int8.activation != 0) continue;
      const FloatView value = Vector(of, 1);
      if (value.empty()) continue;
      matrix.int8.activation = *value.data;
      CheckMultiplier(of, *value.data);
    }
    return matrix;
  }

  void CheckMultiplier(const std::string& name, float value) {
    if (status_.ok() && !(std::isnormal(value) && value > 0)) {
      Fail(name, absl::StrCat("expected a positive multiplier, found ", value));
    }
  }

  const std::unique_ptr<TensorFile> owned_file_;
  TensorFile& file_;
  std::map<std::string, size_t> indices_;
  std::map<std::string, std::unique_ptr<float[]>> values_;  // of what was taken
  absl::Status status_;
};

class StudentBuilder {
 public:
  // `shortlist` may be null.
  StudentBuilder(const Student& student, std::shared_ptr<const Shortlist> shortlist,
                 StudentWeights* weights, LoadedStudent* loaded)
      : config_(student.config.translator),
        student_(student),
        shortlist_(std::move(shortlist)),
        weights_(*weights),
        target_pieces_(loaded->target == nullptr ? *loaded->source : *loaded->target),
        model_(&loaded->translator),
        program_(model_->program) {}

  absl::Status Build() {
    const bool one = student_.options.one_table;
    const std::string target_name = one ? "Wemb" : "decoder_Wemb";
    const auto source_table =
        weights_.Table(one ? "Wemb" : "encoder_Wemb", config_.source_vocabulary, config_.d_model);
    const auto target_table =
        weights_.Table(target_name, config_.target_vocabulary, config_.d_model);
    AddInputs();
    AddTranslatorStates(config_, /*self_attention=*/false, model_);
    const ValueId memory = Encode(source_table);
    model_->encoder_output = program_.AddOutput("encoder output", memory);
    KeepContext(memory);
    Predict(Decode(target_table), target_table);
    return weights_.Finish();
  }

 private:
  using Matrix = StudentWeights::Matrix;

  void AddInputs() {
    AddTranslatorInputs(config_, model_);
    model_->target_positions =
        program_.AddIds("positions", model_->target, 0, kernels::kMaxPosition);
    if (shortlist_ == nullptr) return;
    model_->choices = program_.AddAxis("choices");
    model_->choice_ids = program_.AddIds("choices", model_->choices, 0, config_.target_vocabulary);
    model_->choice_map = program_.AddMap("choices of target", model_->target, model_->choices);
    model_->shortlist = [list = shortlist_](absl::Span<const int32_t> source_ids) {
      return list->For(source_ids);
    };
  }

  ops::Embed Embedding(kernels::InputId ids, const Matrix& table, int vocabulary) const {
    ops::Embed embed;
    embed.ids = ids;
    embed.table = table.floats;
    embed.int8_table = table.int8;
    embed.int8_table.activation = 0;
    embed.vocabulary_size = vocabulary;
    embed.width = config_.d_model;
    embed.scale = std::sqrt(static_cast<float>(config_.d_model));
    embed.positions = ops::Positions::kHalves;
    return embed;
  }

  // `bias` may be empty: there is none.
  ValueId Linear(ValueId x, const std::string& weight, const std::string& bias, int inputs,
                 int outputs, bool relu = false) {
    const Matrix matrix = weights_.Weight(weight, inputs, outputs);
    ops::Linear linear;
    linear.x = x;
    linear.width = outputs;
    linear.weight = matrix.floats;
    linear.int8_weight = matrix.int8;
    if (!bias.empty()) linear.bias = weights_.Vector(bias, outputs);
    linear.relu = relu;
    return program_.Apply(linear);
  }

  // `part` is one letter: q, k, v or o.
  ValueId Projection(ValueId x, const std::string& name, const char* part) {
    return Linear(x, absl::StrCat(name, "_W", part), absl::StrCat(name, "_b", part),
                  config_.d_model, config_.d_model);
  }

  // LN(x + y).
  ValueId AddNorm(ValueId x, ValueId y, const std::string& name) {
    ops::Normalize norm;
    norm.x = program_.Apply(ops::Add{y, x});
    norm.weight = weights_.Vector(name + "_ln_scale", config_.d_model);
    norm.bias = weights_.Vector(name + "_ln_bias", config_.d_model);
    norm.epsilon = kStudentNormEpsilon;
    return program_.Apply(norm);
  }

  // With keys and values still to be set.
  ops::Attend Attention(ValueId x, const std::string& name) {
    return TranslatorAttention(config_, Projection(x, name, "q"));
  }

  ValueId AddAttention(ValueId x, ValueId attended, const std::string& name) {
    return AddNorm(x, Projection(attended, name, "o"), name + "_Wo");
  }

  ValueId FeedForward(ValueId x, const std::string& name) {
    const ValueId h =
        Linear(x, name + "_W1", name + "_b1", config_.d_model, config_.d_ffn, /*relu=*/true);
    return AddNorm(x, Linear(h, name + "_W2", name + "_b2", config_.d_ffn, config_.d_model),
                   name + "_ffn");
  }

  ValueId Encode(const Matrix& table) {
    ValueId x = program_.Apply(Embedding(model_->source_ids, table, config_.source_vocabulary));
    for (int i = 1; i <= config_.encoder_layers; ++i) {
      const std::string self = absl::StrCat("encoder_l", i, "_self");
      ops::Attend attend = Attention(x, self);
      attend.keys = Projection(x, self, "k");
      attend.values = Projection(x, self, "v");
      x = AddAttention(x, program_.Apply(attend), self);
      x = FeedForward(x, absl::StrCat("encoder_l", i, "_ffn"));
    }
    return x;
  }

  static std::string DecoderLayer(int i) { return absl::StrCat("decoder_l", i + 1); }

  void KeepContext(ValueId memory) {
    for (int i = 0; i < config_.decoder_layers; ++i) {
      const std::string name = DecoderLayer(i) + "_context";
      program_.Apply(ops::Append{Projection(memory, name, "k"), model_->layers[i].context_keys});
      program_.Apply(ops::Append{Projection(memory, name, "v"), model_->layers[i].context_values});
    }
  }

  ValueId Decode(const Matrix& table) {
    ops::Embed embed = Embedding(model_->target_ids, table, config_.target_vocabulary);
    embed.zero_row = true;
    embed.position_ids = model_->target_positions;
    ValueId x = program_.Apply(embed);
    for (int i = 0; i < config_.decoder_layers; ++i) {
      const std::string rnn = DecoderLayer(i) + "_rnn";
      ops::Ssru ssru;
      ssru.x = Linear(x, rnn + "_W", "", config_.d_model, config_.d_model);
      ssru.forget = Linear(x, rnn + "_Wf", rnn + "_bf", config_.d_model, config_.d_model);
      ssru.state = model_->layers[i].c;
      x = AddNorm(x, program_.Apply(ssru), rnn + "_ffn");

      const std::string context = DecoderLayer(i) + "_context";
      ops::Attend across = Attention(x, context);
      across.key_field = model_->layers[i].context_keys;
      across.value_field = model_->layers[i].context_values;
      const ValueId attended = program_.Apply(across);
      if (i == student_.options.alignment_layer) {
        model_->alignment =
            program_.AddOutput("alignment", attended, kernels::OutputType::kAttention);
      }
      x = AddAttention(x, attended, context);
      x = FeedForward(x, DecoderLayer(i) + "_ffn");
    }
    return x;
  }

  // Ascending.
  std::vector<int32_t> NeverChosen() const {
    std::vector<int32_t> never;
    if (!student_.search.allow_unk) never.push_back(kUnknownId);
    for (int byte = 0; byte < 32 && !student_.search.allow_special; ++byte) {
      const int32_t id = target_pieces_.Lookup(ByteName(static_cast<unsigned char>(byte)));
      if (target_pieces_.kind(id) == PieceKind::kByte) never.push_back(id);
    }
    std::sort(never.begin(), never.end());
    return never;
  }

  void Predict(ValueId x, const Matrix& table) {
    ops::Predict predict;
    predict.x = x;
    predict.weight = table.floats;
    predict.int8_weight = table.int8;
    predict.bias = weights_.Vector("decoder_ff_logit_out_b", config_.target_vocabulary);
    predict.choices = model_->choice_ids;
    predict.choices_map = model_->choice_map;
    predict.never = NeverChosen();
    AddPrediction(config_, std::move(predict), model_);
  }

  const TranslatorConfig& config_;
  const Student& student_;
  const std::shared_ptr<const Shortlist> shortlist_;
  StudentWeights& weights_;
  const SentencePieceTokenizer& target_pieces_;
  Translator* const model_;
  kernels::Program& program_;
};

// The YAML in the file of weights.
absl::StatusOr<std::string> ReadOptions(TensorFile& weights) {
  for (size_t i = 0; i < weights.tensors().size(); ++i) {
    const MarianTensor& tensor = weights.tensors()[i];
    if (tensor.name != kMarianOptionsTensor) continue;
    if (tensor.type != MarianTensor::Type::kBytes || tensor.elements > kMaxOptionsBytes) {
      return InvalidArgument(weights.source(), ": tensor ", Quoted(tensor.name),
                             ": expected text of at most ", kMaxOptionsBytes, " bytes");
    }
    std::string text(tensor.elements, '\0');
    SRU_RETURN_UNLESS_OK(weights.Read(i, text.data()));
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }
  return InvalidArgument(weights.source(), ": tensor ", Quoted(kMarianOptionsTensor),
                         " is missing: expected the options of a model of Marian");
}

// Reads config.json, if there is one.
absl::Status ReadStudentConfig(const FilePath& path, Student* student, bool* use_shortlist) {
  absl::StatusOr<FileContents> file = FileContents::Read(path, kMaxConfigBytes);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  SRU_RETURN_UNLESS_OK(file.status());
  SRU_ASSIGN_OR_RETURN(const nlohmann::json root,
                       ParseJsonObject(file->bytes(), {kMaxStudentConfigDepth}, path.path()));
  ObjectReader reader(root, path.path(), "");
  int format_version = 0;
  if (reader.Has("format_version")) {
    reader.Integer("format_version", kFormatVersion, kFormatVersion, &format_version);
  }
  reader.OptionalString("description", &student->config.description);
  reader.OptionalString("source", &student->config.translator.source_language);
  reader.OptionalString("source_language", &student->config.translator.source_language);
  reader.OptionalString("target", &student->config.translator.target_language);
  reader.OptionalString("target_language", &student->config.translator.target_language);
  reader.OptionalBoolean("shortlist", use_shortlist);
  MarianSearch& search = student->search;
  const auto number = [&reader](const char* key, double low, double high, double* value) {
    if (reader.Has(key))
      reader.Number(key, absl::StrCat("a number from ", low, " to ", high), low, high, value);
  };
  if (reader.Has("beam_size")) reader.Integer("beam_size", 1, kMaxBeam, &search.beam_size);
  number("normalize", 0, kMaxNormalize, &search.normalize);
  number("word_penalty", -kMaxMarianWordPenalty, kMaxMarianWordPenalty, &search.word_penalty);
  number("max_length_factor", 0, kMaxMarianLengthFactor, &search.max_length_factor);
  if (reader.Has("max_length_break")) {
    reader.Integer("max_length_break", 0, kMaxLengthBreak, &search.max_length_break);
  }
  return reader.Finish();
}

void SetStudentConfig(const MarianOptions& options, const MarianSearch& search, bool int8,
                      ModelConfig* config) {
  config->task = Task::kTranslator;
  config->has_embedding = true;
  config->embedding.vocabulary_size = options.source_vocabulary;
  config->has_tokenizer = true;
  config->tokenizer.type = TokenizerType::kSentencePiece;
  TranslatorConfig& translator = config->translator;
  translator.student = true;
  translator.d_model = options.width;
  translator.heads = options.heads;
  translator.d_sru = options.width;
  translator.d_ffn = options.ffn;
  translator.int8_weights = int8;
  translator.encoder_layers = options.encoder_layers;
  translator.decoder_layers = options.decoder_layers;
  translator.shared_embeddings = options.one_table;
  translator.source_vocabulary = options.source_vocabulary;
  translator.target_vocabulary = options.target_vocabulary;
  translator.unk_id = kUnknownId;
  translator.bos_id = kNoToken;
  translator.eos_id = kEndId;
  translator.source_end_id = kEndId;
  translator.max_positions = kMaxStudentPositions;
  // Firefox breaks a sentence so that its parts have fewer pieces than the option says, </s>
  // included.
  translator.max_sentence_tokens = std::max(search.max_length_break - 1, 0);
  translator.search.beam_size = search.beam_size;
  translator.search.narrows = true;
  translator.search.length_penalty =
      search.normalize == 0 ? LengthPenalty::kNone : LengthPenalty::kPower;
  translator.search.alpha = search.normalize;
  translator.search.word_penalty = search.word_penalty;
  translator.search.max_length_factor = search.max_length_factor;
  translator.search.max_length = kMaxStudentPositions;
}

absl::StatusOr<std::unique_ptr<const SentencePieceTokenizer>> LoadPieces(const FilePath& path,
                                                                         int size) {
  SRU_ASSIGN_OR_RETURN(const FileContents file, ReadPerhapsGzipped(path, kMaxPiecesBytes));
  SRU_ASSIGN_OR_RETURN(
      std::unique_ptr<SentencePieceTokenizer> pieces,
      SentencePieceTokenizer::Parse(file.bytes(), size, path.path(), "dim-vocabs of its weights"));
  if (size > kUnknownId && pieces->kind(kEndId) == PieceKind::kControl &&
      pieces->kind(kUnknownId) == PieceKind::kUnknown) {
    return pieces;
  }
  return InvalidArgument(path.path(), ": expected </s> with the id ", kEndId,
                         " and the unknown piece with the id ", kUnknownId,
                         ", as Marian's vocabularies have them");
}

}  // namespace

absl::StatusOr<std::optional<PublishedFiles>> FindStudent(const FilePath& directory) {
  if (OpenFile::Open(directory / "model.safetensors", 0).status().code() !=
      absl::StatusCode::kNotFound) {
    return std::nullopt;
  }
  return FindPublishedFiles(directory);
}

absl::StatusOr<std::optional<Student>> OpenStudent(const FilePath& directory) {
  SRU_ASSIGN_OR_RETURN(std::optional<PublishedFiles> files, FindStudent(directory));
  if (!files.has_value()) return std::nullopt;
  Student student;
  student.directory = directory;
  student.files = *std::move(files);
  SRU_ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> weights,
                       TensorFile::Open(student.weights()));
  SRU_ASSIGN_OR_RETURN(const std::string options, ReadOptions(*weights));
  SRU_ASSIGN_OR_RETURN(student.options, ParseMarianOptions(options, weights->source()));
  if (!student.files.search.empty()) {
    const FilePath path = directory / student.files.search;
    SRU_ASSIGN_OR_RETURN(const FileContents search, ReadPerhapsGzipped(path, kMaxOptionsBytes));
    SRU_RETURN_UNLESS_OK(ReadMarianSearch(search.bytes(), path.path(), &student.search));
  }
  student.config.translator.source_language = student.files.source_language;
  student.config.translator.target_language = student.files.target_language;
  bool use_shortlist = true;
  SRU_RETURN_UNLESS_OK(ReadStudentConfig(directory / "config.json", &student, &use_shortlist));
  if (!use_shortlist) student.files.shortlist.clear();
  if (use_shortlist && !student.search.shortlist.empty() && student.files.shortlist.empty()) {
    return InvalidArgument(
        (directory / student.files.search).path(),
        ": key 'shortlist': expected a binary shortlist, lex*.bin, in this folder, found ",
        Quoted(student.search.shortlist), "; a config.json with \"shortlist\": false does without");
  }
  bool int8 = false;
  for (const MarianTensor& tensor : weights->tensors()) {
    int8 = int8 || tensor.type == MarianTensor::Type::kIntgemm8;
    student.num_weights += static_cast<int64_t>(tensor.elements);
  }
  SetStudentConfig(student.options, student.search, int8, &student.config);
  return student;
}

absl::StatusOr<LoadedStudent> LoadStudent(const Student& student) {
  const PublishedFiles& files = student.files;
  const MarianOptions& options = student.options;
  LoadedStudent loaded;
  SRU_ASSIGN_OR_RETURN(loaded.source, LoadPieces(student.directory / files.source_vocabulary,
                                                 options.source_vocabulary));
  if (!files.shares_vocabulary()) {
    SRU_ASSIGN_OR_RETURN(loaded.target, LoadPieces(student.directory / files.target_vocabulary,
                                                   options.target_vocabulary));
  } else if (options.source_vocabulary != options.target_vocabulary) {
    return InvalidArgument(student.weights().path(),
                           ": key 'dim-vocabs': expected two equal numbers beside ",
                           Quoted(files.source_vocabulary), ", found ", options.source_vocabulary,
                           " and ", options.target_vocabulary);
  }
  std::shared_ptr<const Shortlist> shortlist;
  if (!files.shortlist.empty()) {
    const FilePath path = student.directory / files.shortlist;
    SRU_ASSIGN_OR_RETURN(const FileContents file, ReadPerhapsGzipped(path, kMaxShortlistBytes));
    const ShortlistVocabularies vocabularies{options.source_vocabulary, options.target_vocabulary,
                                             files.shares_vocabulary(), kEndId};
    SRU_ASSIGN_OR_RETURN(Shortlist list, Shortlist::Parse(file.bytes(), vocabularies, path.path()));
    shortlist = std::make_shared<const Shortlist>(std::move(list));
  }
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<TensorFile> file, TensorFile::Open(student.weights()));
  const auto weights = std::make_shared<StudentWeights>(std::move(file));
  loaded.translator.values = weights;
  SRU_RETURN_UNLESS_OK(
      StudentBuilder(student, std::move(shortlist), weights.get(), &loaded).Build());
  return loaded;
}

// A table that is also the output layer counts for both: without a shortlist they are laid out
// differently.
kernels::ModelSizes StudentSizes(const TranslatorConfig& config) {
  kernels::ModelSizes sizes;
  const int64_t width = config.d_model;
  const auto linear = [&](int64_t inputs, int64_t outputs) {
    if (!config.int8_weights) {
      kernels::AddLinear(inputs, outputs, &sizes);
      return;
    }
    sizes.in_file += inputs * outputs;
    // Rows of whole numbers are filled up as columns are.
    sizes.int8_bytes +=
        (kernels::ProductColumns(inputs) + kInt8ColumnBytes) * kernels::ProductColumns(outputs);
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
  const int64_t table = TableWords(config) * width;
  // The output layer's weight is a table in the file.
  const int64_t in_file = sizes.in_file + table;
  linear(width, config.target_vocabulary);
  sizes.in_file = in_file;
  if (config.int8_weights) {
    sizes.int8_bytes += TableWords(config) * kernels::ProductColumns(width);
  } else {
    sizes.embedding += table;
  }
  sizes.constants +=
      (config.shared_embeddings ? 1 : 2) * kernels::kProgramBlocks.sinusoid_rows * width;
  // All values are in memory while they are packed.
  sizes.passing = config.int8_weights ? in_file / kernels::kValueBytes : in_file;
  sizes.stacks = 0;
  sizes.program_row = TranslatorRow(config, config.d_ffn);
  return sizes;
}

}  // namespace sru::models
