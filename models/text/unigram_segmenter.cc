#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "models/text/code_point.h"
#include "models/text/piece_segmenter.h"

namespace sru::models {
namespace {

constexpr float kUnknownPenalty = 10.0f;

// An unused piece is never chosen.
bool IsChosen(PieceKind kind) { return IsInText(kind) && kind != PieceKind::kUnused; }

// Viterbi over the pieces that start at each character. score(path) = sum of the scores of its
// pieces; a character that is no piece by itself may also be unknown, which is worse than every
// piece.
class UnigramSegmenter final : public PieceSegmenter {
 public:
  explicit UnigramSegmenter(const SentencePieceModel& model)
      : model_(model), trie_(TrieOf(model, IsChosen)) {
    float lowest = std::numeric_limits<float>::max();
    for (const SentencePieceModel::Piece& piece : model.pieces) {
      if (piece.kind != PieceKind::kNormal) continue;
      lowest = std::min(lowest, piece.score);
      highest_score_ = std::max(highest_score_, piece.score);
    }
    unknown_score_ = lowest - kUnknownPenalty;
  }

  void Segment(std::string_view text, size_t window, Sink sink) const override {
    // ends[i]: the best way to reach byte `origin` + i of the text. Where no piece passes over a
    // place, every path goes through it; what comes before is then final and given out, so that
    // little is kept at any time.
    std::vector<End> ends(1);
    std::vector<End> best;  // pieces that are final, last first
    size_t origin = 0;
    size_t reached = 0;  // the furthest end of a piece so far, from `origin`
    for (size_t start = 0; origin + start < text.size();) {
      const float score_here = ends[start].score;
      const std::string_view rest = text.substr(origin + start);
      const size_t character = CodePointBytes(rest[0]);
      bool has_character = false;
      trie_.ForEachPrefix(rest, [&](size_t length, int32_t id) {
        const SentencePieceModel::Piece& piece = model_.pieces[id];
        // In double precision, and rounded when it is kept, as the library does.
        const double score = piece.kind == PieceKind::kUserDefined
                                 ? static_cast<float>(length) * highest_score_ - 0.1
                                 : piece.score;
        Offer(score + score_here, start, length, id, &ends);
        has_character = has_character || length == character;
        reached = std::max(reached, start + length);
      });
      if (!has_character) {
        Offer(unknown_score_ + score_here, start, character, model_.unknown_id, &ends);
        reached = std::max(reached, start + character);
      }
      start += character;
      if (start < reached && start < window && origin + start < text.size()) continue;

      best.clear();
      for (size_t end = start; end > 0; end = ends[end].start) {
        best.push_back(ends[end]);
        best.back().end = end;
      }
      for (auto piece = best.rbegin(); piece != best.rend(); ++piece) {
        if (!sink(text.substr(origin + piece->start, piece->end - piece->start), piece->id)) return;
      }
      origin += start;
      End here;
      here.score = ends[start].score;
      ends.assign(1, here);
      start = 0;
      reached = 0;
    }
  }

 private:
  struct End {
    float score = 0.0f;
    int32_t id = ByteTrie::kNone;  // kNone: not reached yet
    size_t start = 0;              // of the last piece
    size_t end = 0;
  };

  static void Offer(double score, size_t start, size_t length, int32_t id, std::vector<End>* ends) {
    if (start + length >= ends->size()) ends->resize(start + length + 1);
    End& end = (*ends)[start + length];
    if (end.id != ByteTrie::kNone && score <= end.score) return;
    end.score = static_cast<float>(score);
    end.id = id;
    end.start = start;
  }

  const SentencePieceModel& model_;
  const ByteTrie trie_;
  float highest_score_ = std::numeric_limits<float>::min();
  float unknown_score_ = 0.0f;
};

}  // namespace

ByteTrie TrieOf(const SentencePieceModel& model, bool (*has)(PieceKind)) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (!has(model.pieces[id].kind)) continue;
    entries.emplace_back(model.pieces[id].text, static_cast<int32_t>(id));
  }
  return ByteTrie(std::move(entries));
}

std::unique_ptr<PieceSegmenter> MakeUnigramSegmenter(const SentencePieceModel& model) {
  return std::make_unique<UnigramSegmenter>(model);
}

}  // namespace sru::models
