#include "models/tokenizer_loader.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/files/file.h"
#include "models/files/json.h"
#include "models/text/byte_tokenizer.h"
#include "models/text/character_tokenizer.h"
#include "models/text/line_word_tokenizer.h"
#include "models/text/sentencepiece_model.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/text/unicode_word_tokenizer.h"
#include "models/text/vocabulary.h"
#include "models/text/word_tokenizer.h"

namespace sru::models {
namespace {

constexpr uint64_t kMaxVocabularyBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxSentencePieceBytes = uint64_t{1} << 28;

using Loaded = absl::StatusOr<std::unique_ptr<const Tokenizer>>;

// A tokenizer of vocab.txt, of the type that the config says.
Loaded LoadWithVocabulary(const ModelConfig& config, const FilePath& directory) {
  static_assert(EmbeddingConfig::kNoOov == Tokenizer::kNotFound);
  const FilePath words_path = directory / Describe(config.tokenizer.type).file;
  SRU_ASSIGN_OR_RETURN(FileContents file, FileContents::Read(words_path, kMaxVocabularyBytes));
  const std::string& path = words_path.path();
  SRU_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::Parse(std::string(file.bytes()),
                                                          config.embedding.vocabulary_size, path));
  const int oov_id = config.embedding.oov_id;
  const bool lowercase = config.tokenizer.lowercase;
  switch (config.tokenizer.type) {
    case TokenizerType::kWhitespace:
    case TokenizerType::kLowercase:
    case TokenizerType::kSentenceClassification:
      return std::make_unique<const WordTokenizer>(
          PreprocessingConfig{config.tokenizer.type, lowercase}, std::move(vocabulary), oov_id);
    case TokenizerType::kCharacters:
      return std::make_unique<const CharacterTokenizer>(std::move(vocabulary), oov_id);
    case TokenizerType::kUnicodeWords:
      return std::make_unique<const UnicodeWordTokenizer>(std::move(vocabulary), oov_id, lowercase);
    case TokenizerType::kLineWords: {
      auto tokenizer = LineWordTokenizer::Create(std::move(vocabulary));
      if (tokenizer.ok()) return *std::move(tokenizer);
      return absl::Status(tokenizer.status().code(),
                          absl::StrCat(path, ": ", tokenizer.status().message()));
    }
    case TokenizerType::kBytes:
    case TokenizerType::kSentencePiece:
      break;  // they read no words
  }
  return absl::InternalError(
      absl::StrCat("no tokenizer of words, ", static_cast<int>(config.tokenizer.type)));
}

// That the pieces which a translation neither reads nor writes have their ids: a file of another
// model may have as many pieces.
absl::Status CheckPieces(const TranslatorConfig& config, const SentencePieceTokenizer& tokenizer,
                         const std::string& path) {
  const auto check = [&](const char* key, int id, PieceKind kind, const char* name) {
    if (tokenizer.kind(id) == kind) return absl::OkStatus();
    return InvalidArgument(path, ": expected ", name, " piece with the id ", id, " (translator.",
                           key, " in config.json), found ", Quoted(tokenizer.TokenName(id)));
  };
  absl::Status status = check("unk_id", config.unk_id, PieceKind::kUnknown, "the unknown");
  status.Update(check("pad_id", config.pad_id, PieceKind::kControl, "a control"));
  status.Update(check("bos_id", config.bos_id, PieceKind::kControl, "a control"));
  status.Update(check("eos_id", config.eos_id, PieceKind::kControl, "a control"));
  return status;
}

Loaded LoadSentencePiece(const ModelConfig& config, const FilePath& directory) {
  const FilePath pieces_path = directory / Describe(config.tokenizer.type).file;
  SRU_ASSIGN_OR_RETURN(FileContents file, FileContents::Read(pieces_path, kMaxSentencePieceBytes));
  const std::string& path = pieces_path.path();
  const bool translates = config.task == Task::kTranslator;
  SRU_ASSIGN_OR_RETURN(
      auto tokenizer,
      SentencePieceTokenizer::Parse(file.bytes(), config.embedding.vocabulary_size, path,
                                    translates ? "translator.source_vocabulary in config.json"
                                               : "embedding.vocabulary_size in config.json"));
  if (translates) {
    SRU_RETURN_UNLESS_OK(CheckPieces(config.translator, *tokenizer, path));
  }
  return tokenizer;
}

Loaded Load(const ModelConfig& config, const FilePath& directory) {
  if (config.tokenizer.type == TokenizerType::kBytes) {
    return std::make_unique<const ByteTokenizer>(config.tokenizer.byte_vocabulary);
  }
  return config.tokenizer.type == TokenizerType::kSentencePiece
             ? LoadSentencePiece(config, directory)
             : LoadWithVocabulary(config, directory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const ModelConfig& config,
                                                               const FilePath& directory) {
  SRU_ASSIGN_OR_RETURN(auto tokenizer, Load(config, directory));
  if (config.tokenizer.unknown == UnknownUse::kReplace &&
      tokenizer->ReplacementId() == Tokenizer::kNotFound) {
    return InvalidArgument((directory / "config.json").path(),
                           ": preprocessing.unknown: expected \"refuse\" or \"skip\", as the "
                           "vocabulary has no token that could replace others, found \"replace\"");
  }
  return tokenizer;
}

}  // namespace sru::models
