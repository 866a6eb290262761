#include "models/tokenizer_loader.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/file.h"
#include "models/json.h"
#include "models/text/byte_tokenizer.h"
#include "models/text/character_tokenizer.h"
#include "models/text/line_word_tokenizer.h"
#include "models/text/preprocessing.h"
#include "models/text/sentencepiece_model.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/text/unicode_word_tokenizer.h"
#include "models/text/vocabulary.h"
#include "models/text/word_tokenizer.h"

namespace sru::models {
namespace {

constexpr char kVocabularyFile[] = "vocab.txt";
constexpr char kSentencePieceFile[] = "spm.model";
constexpr uint64_t kMaxVocabularyBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxSentencePieceBytes = uint64_t{1} << 28;

using Loaded = absl::StatusOr<std::unique_ptr<const Tokenizer>>;

absl::StatusOr<std::unique_ptr<Vocabulary>> ReadVocabulary(const std::string& path, int size) {
  absl::StatusOr<FileContents> file = FileContents::Read(path, kMaxVocabularyBytes);
  if (!file.ok()) return file.status();
  return Vocabulary::Parse(std::string(file->bytes()), size, path);
}

// Reads vocab.txt, and makes a tokenizer of it.
template <typename Make>
Loaded WithVocabulary(const ModelConfig& config, const std::string& directory, Make make) {
  const std::string path = absl::StrCat(directory, "/", kVocabularyFile);
  auto vocabulary = ReadVocabulary(path, config.embedding.vocabulary_size);
  if (!vocabulary.ok()) return vocabulary.status();
  return make(*std::move(vocabulary), path);
}

Loaded LoadWords(const ModelConfig& config, const std::string& directory, PreprocessingType type) {
  return WithVocabulary(config, directory,
                        [&](std::unique_ptr<Vocabulary> vocabulary, const std::string&) -> Loaded {
                          const PreprocessingConfig preprocessing{type, config.tokenizer.lowercase};
                          return std::make_unique<const WordTokenizer>(
                              preprocessing, std::move(vocabulary), config.embedding.oov_id);
                        });
}

Loaded LoadCharacters(const ModelConfig& config, const std::string& directory) {
  return WithVocabulary(config, directory,
                        [&](std::unique_ptr<Vocabulary> vocabulary, const std::string&) -> Loaded {
                          static_assert(EmbeddingConfig::kNoOov == Tokenizer::kNotFound);
                          return std::make_unique<const CharacterTokenizer>(
                              std::move(vocabulary), config.embedding.oov_id);
                        });
}

Loaded LoadLineWords(const ModelConfig& config, const std::string& directory) {
  return WithVocabulary(
      config, directory,
      [](std::unique_ptr<Vocabulary> vocabulary, const std::string& path) -> Loaded {
        auto tokenizer = LineWordTokenizer::Create(std::move(vocabulary));
        if (tokenizer.ok()) return *std::move(tokenizer);
        return absl::Status(tokenizer.status().code(),
                            absl::StrCat(path, ": ", tokenizer.status().message()));
      });
}

Loaded LoadUnicodeWords(const ModelConfig& config, const std::string& directory) {
  return WithVocabulary(
      config, directory, [&](std::unique_ptr<Vocabulary> vocabulary, const std::string&) -> Loaded {
        return std::make_unique<const UnicodeWordTokenizer>(
            std::move(vocabulary), config.embedding.oov_id, config.tokenizer.lowercase);
      });
}

// That the pieces which a translation neither reads nor writes have their ids: a file of another model may have as many pieces.
absl::Status CheckPieces(const TranslatorConfig& config, const SentencePieceTokenizer& tokenizer,
                         const std::string& path) {
  const auto check = [&](const char* key, int id, PieceKind kind, const char* name) {
    if (tokenizer.kind(id) == kind) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected ", name, " piece with the id ", id, " (translator.", key,
                     " in config.json), found ", Quoted(tokenizer.TokenName(id))));
  };
  absl::Status status = check("unk_id", config.unk_id, PieceKind::kUnknown, "the unknown");
  status.Update(check("pad_id", config.pad_id, PieceKind::kControl, "a control"));
  status.Update(check("bos_id", config.bos_id, PieceKind::kControl, "a control"));
  status.Update(check("eos_id", config.eos_id, PieceKind::kControl, "a control"));
  return status;
}

Loaded LoadSentencePiece(const ModelConfig& config, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kSentencePieceFile);
  absl::StatusOr<FileContents> file = FileContents::Read(path, kMaxSentencePieceBytes);
  if (!file.ok()) return file.status();
  const bool translates = config.task == Task::kTranslator;
  auto tokenizer = SentencePieceTokenizer::Parse(
      file->bytes(), config.embedding.vocabulary_size, path,
      translates ? "translator.source_vocabulary" : "embedding.vocabulary_size");
  if (!tokenizer.ok()) return tokenizer.status();
  if (translates) {
    absl::Status status = CheckPieces(config.translator, **tokenizer, path);
    if (!status.ok()) return status;
  }
  return *std::move(tokenizer);
}

}  // namespace

const char* TokenizerFile(TokenizerType type) {
  switch (type) {
    case TokenizerType::kWhitespace:
    case TokenizerType::kLowercase:
    case TokenizerType::kSentenceClassification:
    case TokenizerType::kCharacters:
    case TokenizerType::kLineWords:
    case TokenizerType::kUnicodeWords:
      return kVocabularyFile;
    case TokenizerType::kSentencePiece:
      return kSentencePieceFile;
    case TokenizerType::kBytes:
      return "";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const ModelConfig& config,
                                                               const std::string& directory) {
  switch (config.tokenizer.type) {
    case TokenizerType::kWhitespace:
      return LoadWords(config, directory, PreprocessingType::kWhitespace);
    case TokenizerType::kLowercase:
      return LoadWords(config, directory, PreprocessingType::kLowercase);
    case TokenizerType::kSentenceClassification:
      return LoadWords(config, directory, PreprocessingType::kSentenceClassification);
    case TokenizerType::kBytes:
      return std::make_unique<const ByteTokenizer>(config.tokenizer.byte_vocabulary);
    case TokenizerType::kCharacters:
      return LoadCharacters(config, directory);
    case TokenizerType::kLineWords:
      return LoadLineWords(config, directory);
    case TokenizerType::kUnicodeWords:
      return LoadUnicodeWords(config, directory);
    case TokenizerType::kSentencePiece:
      return LoadSentencePiece(config, directory);
  }
  return absl::InternalError(
      absl::StrCat("no such tokenizer, ", static_cast<int>(config.tokenizer.type)));
}

}  // namespace sru::models
