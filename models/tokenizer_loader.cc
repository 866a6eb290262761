#include "models/tokenizer_loader.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/files/file.h"
#include "models/files/json.h"
#include "models/text/sentencepiece_tokenizer.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

constexpr uint64_t kMaxVocabularyBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxSentencePieceBytes = uint64_t{1} << 28;

using Loaded = absl::StatusOr<std::unique_ptr<const Tokenizer>>;

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

Loaded ParsePieces(const ModelConfig& config, std::string_view bytes, const std::string& path) {
  const bool translates = config.task == Task::kTranslator;
  SRU_ASSIGN_OR_RETURN(
      auto tokenizer,
      SentencePieceTokenizer::Parse(bytes, config.embedding.vocabulary_size, path,
                                    translates ? "translator.source_vocabulary in config.json"
                                               : "embedding.vocabulary_size in config.json"));
  if (translates) SRU_RETURN_UNLESS_OK(CheckPieces(config.translator, *tokenizer, path));
  return tokenizer;
}

Loaded Load(const ModelConfig& config, const FilePath& directory) {
  const TokenizerType type = config.tokenizer.type;
  if (type == TokenizerType::kBytes) return MakeByteTokenizer(config.tokenizer.byte_vocabulary);
  const FilePath file_path = directory / Describe(type).file;
  const std::string& path = file_path.path();
  const bool has_pieces = type == TokenizerType::kSentencePiece;
  SRU_ASSIGN_OR_RETURN(
      const FileContents file,
      FileContents::Read(file_path, has_pieces ? kMaxSentencePieceBytes : kMaxVocabularyBytes));
  if (has_pieces) return ParsePieces(config, file.bytes(), path);
  SRU_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::Parse(std::string(file.bytes()),
                                                          config.embedding.vocabulary_size, path));
  const int oov_id = config.embedding.oov_id;
  const bool lowercase = config.tokenizer.lowercase;
  switch (type) {
    case TokenizerType::kCharacters:
      return MakeCharacterTokenizer(std::move(vocabulary), oov_id);
    case TokenizerType::kUnicodeWords:
      return MakeUnicodeWordTokenizer(std::move(vocabulary), oov_id, lowercase);
    case TokenizerType::kLineWords:
      return MakeLineWordTokenizer(std::move(vocabulary), path);
    case TokenizerType::kWhitespace:
    case TokenizerType::kLowercase:
    case TokenizerType::kSentenceClassification:
    case TokenizerType::kBytes:
    case TokenizerType::kSentencePiece:
      break;  // the last two have no words
  }
  return MakeWordTokenizer({type, lowercase}, std::move(vocabulary), oov_id);
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
