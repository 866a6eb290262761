#include "models/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace sru::models {
namespace {

// The tokenizer looks at so many pieces behind those that are wanted, as the choice of a piece
// depends on its neighbors.
constexpr size_t kPiecesBehind = 64;

size_t LongestPiece(const SentencePieceModel& model) {
  size_t longest = 1;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (IsInText(piece.kind)) longest = std::max(longest, piece.text.size());
  }
  return longest;
}

int HexDigit(char c) { return c <= '9' ? c - '0' : c - 'A' + 10; }

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model)
    : model_(std::move(model)),
      user_defined_(TrieOf(model_, [](PieceKind kind) { return kind == PieceKind::kUserDefined; })),
      longest_piece_(LongestPiece(model_)),
      segmenter_(model_.algorithm == SentencePieceModel::Algorithm::kBpe
                     ? MakeBpeSegmenter(model_, user_defined_)
                     : MakeUnigramSegmenter(model_)) {
  ids_.reserve(model_.pieces.size());
  for (size_t id = 0; id < model_.pieces.size(); ++id) {
    ids_.emplace(absl::string_view(model_.pieces[id].text), static_cast<int32_t>(id));
  }
}

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Parse(
    std::string_view bytes, int expected_size, const std::string& source, const char* size_key) {
  SRU_ASSIGN_OR_RETURN(SentencePieceModel model, SentencePieceModel::Parse(bytes, source));
  // Before memory is taken for each byte of the pieces.
  if (model.pieces.size() != static_cast<size_t>(expected_size)) {
    return InvalidArgument(source, ": expected ", expected_size, " pieces (", size_key, "), found ",
                           model.pieces.size());
  }
  std::unique_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer(std::move(model)));
  absl::StatusOr<SentencePieceNormalizer> normalizer =
      SentencePieceNormalizer::Create(tokenizer->model_, tokenizer->user_defined_);
  if (!normalizer.ok()) {
    return InvalidArgument(source, ": ", normalizer.status().message());
  }
  tokenizer->normalizer_ = std::make_unique<const SentencePieceNormalizer>(*std::move(normalizer));
  return tokenizer;
}

absl::Status SentencePieceTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  if (sink->is_full()) return absl::OkStatus();
  const size_t max_tokens = sink->most_looked_at();
  const size_t behind = kPiecesBehind * longest_piece_;
  const size_t window =
      max_tokens < kNoLimit / 2 / longest_piece_ ? max_tokens * longest_piece_ + behind : kNoLimit;
  bool is_whole = false;
  SentencePieceNormalizer::Origins origins;
  SentencePieceNormalizer::Origins* const wanted = sink->reads_places() ? &origins : nullptr;
  const std::string normalized = normalizer_->Normalize(text, window, &is_whole, wanted);
  const size_t bytes = AppendPieces(normalized, origins, window, sink);
  // Unknown text may be one token, however long it is.
  if (is_whole || bytes + behind <= normalized.size() || sink->refused().has_value()) {
    return absl::OkStatus();
  }
  sink->Clear();
  origins.clear();
  AppendPieces(normalizer_->Normalize(text, kNoLimit, &is_whole, wanted), origins, window, sink);
  return absl::OkStatus();
}

size_t SentencePieceTokenizer::AppendPieces(std::string_view normalized,
                                            const SentencePieceNormalizer::Origins& origins,
                                            size_t window, TokenSink* sink) const {
  const std::string_view space = model_.escape_whitespaces ? kPieceSpace : " ";
  const auto begin_of = [&](size_t byte) { return origins.empty() ? 0 : origins[byte].first; };
  const auto end_of = [&](size_t byte) { return origins.empty() ? 0 : origins[byte].second; };
  size_t end = 0;
  bool after_unknown = false;
  segmenter_->Segment(normalized, window, [&](std::string_view piece, int32_t id) {
    size_t begin = end;
    end += piece.size();
    const bool unknown = id == model_.unknown_id;
    const bool extends = unknown && after_unknown;
    after_unknown = unknown;
    if (unknown && model_.byte_fallback) {
      for (size_t i = begin; i < end && !sink->is_full(); ++i) {
        const auto byte = static_cast<unsigned char>(normalized[i]);
        sink->Add(model_.byte_ids[byte], begin_of(i), end_of(i));
      }
    } else if (extends) {
      sink->ExtendUnknown(end_of(end - 1));
    } else {
      // The spaces before a word are no part of its place.
      while (!origins.empty() && begin + space.size() < end &&
             normalized.substr(begin, space.size()) == space) {
        begin += space.size();
      }
      sink->Add(id, begin_of(begin), end_of(end - 1));
    }
    return !sink->is_full();
  });
  return end;
}

int32_t SentencePieceTokenizer::Lookup(std::string_view piece) const {
  const auto it = ids_.find(absl::string_view(piece.data(), piece.size()));
  return it == ids_.end() ? model_.unknown_id : it->second;
}

void SentencePieceTokenizer::Append(int32_t id, Position* position, std::string* text) const {
  const SentencePieceModel::Piece& piece = model_.pieces[id];
  std::string_view rest = piece.text;
  switch (piece.kind) {
    case PieceKind::kControl:
      return;
    case PieceKind::kUnknown:
      text->append(model_.unknown_text);
      if (!model_.unknown_text.empty()) position->at_start = false;
      return;
    case PieceKind::kByte:
      text->push_back(static_cast<char>(HexDigit(rest[3]) << 4 | HexDigit(rest[4])));  // <0xE4>
      position->at_start = false;
      return;
    case PieceKind::kNormal:
    case PieceKind::kUserDefined:
    case PieceKind::kUnused:
      break;
  }
  // The space that normalization puts before a text is not part of it.
  if (position->at_start && (model_.add_dummy_prefix || model_.remove_extra_whitespaces) &&
      rest.substr(0, kPieceSpace.size()) == kPieceSpace) {
    rest.remove_prefix(kPieceSpace.size());
    if (!model_.remove_extra_whitespaces) position->at_start = false;
  }
  if (!rest.empty()) position->at_start = false;
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(kPieceSpace), rest.size());
    text->append(rest.substr(0, space));
    rest.remove_prefix(space);
    if (rest.empty()) break;
    text->push_back(' ');
    rest.remove_prefix(kPieceSpace.size());
  }
}

}  // namespace sru::models
