#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "models/text/code_point.h"
#include "models/text/piece_segmenter.h"

namespace sru::models {
namespace {

constexpr int32_t kNone = -1;

// Whether a piece goes on with another word, so that words cannot be looked at one by one.
bool CrossesWords(std::string_view piece) {
  for (size_t at = 1; at < piece.size(); ++at) {
    if (piece.substr(at, kPieceSpace.size()) != kPieceSpace) continue;
    if (at < kPieceSpace.size() ||
        piece.substr(at - kPieceSpace.size(), kPieceSpace.size()) != kPieceSpace) {
      return true;
    }
  }
  return false;
}

// The characters of the text are symbols at first. Of all neighbors that make a piece together,
// those with the highest score, of equals the first, become one symbol, until none do.
class BpeSegmenter final : public PieceSegmenter {
 public:
  BpeSegmenter(const SentencePieceModel& model, const ByteTrie& user_defined)
      : model_(model), user_defined_(user_defined) {
    ids_.reserve(model.pieces.size());
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model.pieces[id];
      if (!IsInText(piece.kind)) continue;
      ids_.emplace(absl::string_view(piece.text), static_cast<int32_t>(id));
      if (CrossesWords(piece.text)) crosses_words_ = true;
      const std::string_view bytes = piece.text;
      const size_t first = CodePointBytes(bytes[0]);
      if (first == bytes.size()) continue;
      for (size_t at = 0; at < bytes.size(); at += CodePointBytes(bytes[at])) {
        const std::string_view character = bytes.substr(at, CodePointBytes(bytes[at]));
        joined_.emplace(character.data(), character.size());
      }
    }
  }

  void Segment(std::string_view text, size_t window, Sink sink) const override {
    while (!text.empty()) {
      const size_t length = crosses_words_ ? text.size() : WordEnd(text);
      if (!SegmentWord(text.substr(0, length), window, sink)) return;
      text.remove_prefix(length);
    }
  }

 private:
  struct Symbol {
    std::string_view text;  // empty: it became part of another
    int32_t previous = kNone;
    int32_t next = kNone;
  };

  struct Merge {
    float score;
    int32_t left;
    int32_t right;
    size_t bytes;  // of both, by which a merge whose symbols have changed is known

    bool operator<(const Merge& other) const {  // for a heap: the best is the largest
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  using Halves =
      absl::flat_hash_map<absl::string_view, std::pair<std::string_view, std::string_view>>;

  // The end of the word that `text` starts with: where a space follows something else.
  static size_t WordEnd(std::string_view text) {
    size_t at = 0;
    while (text.substr(at, kPieceSpace.size()) == kPieceSpace) at += kPieceSpace.size();
    return std::min(text.find(kPieceSpace, at), text.size());
  }

  int32_t Find(std::string_view text) const {
    const auto it = ids_.find(absl::string_view(text.data(), text.size()));
    return it == ids_.end() ? kNone : it->second;
  }

  bool IsUnused(int32_t id) const { return model_.pieces[id].kind == PieceKind::kUnused; }

  // A user-defined piece stands alone, and so does a character of no longer piece: they part the
  // text before them from the rest.
  bool SegmentWord(std::string_view text, size_t window, Sink sink) const {
    std::vector<Symbol> symbols;
    size_t bytes = 0;
    while (!text.empty()) {
      size_t length = user_defined_.empty() ? 0 : user_defined_.LongestPrefix(text);
      bool is_alone = length > 0;
      if (length == 0) {
        length = CodePointBytes(text[0]);
        is_alone = joined_.count(absl::string_view(text.data(), length)) == 0;
      }
      if ((is_alone || bytes >= window) && !symbols.empty()) {
        if (!MergeSymbols(&symbols, sink)) return false;
        symbols.clear();
        bytes = 0;
      }
      const std::string_view symbol = text.substr(0, length);
      text.remove_prefix(length);
      if (is_alone) {
        if (!Emit(symbol, Halves(), sink)) return false;
        continue;
      }
      const auto index = static_cast<int32_t>(symbols.size());
      if (index > 0) symbols.back().next = index;
      symbols.push_back({symbol, index - 1, kNone});
      bytes += length;
    }
    return symbols.empty() || MergeSymbols(&symbols, sink);
  }

  bool MergeSymbols(std::vector<Symbol>* word, Sink sink) const {
    std::vector<Symbol>& symbols = *word;
    std::priority_queue<Merge> merges;
    Halves halves;  // of the pieces that are not used, which are taken apart again
    const auto offer = [&](int32_t left, int32_t right) {
      if (left == kNone || right == kNone) return;
      const std::string_view both(symbols[left].text.data(),
                                  symbols[left].text.size() + symbols[right].text.size());
      const int32_t id = Find(both);
      if (id == kNone) return;
      merges.push({model_.pieces[id].score, left, right, both.size()});
      if (IsUnused(id)) {
        halves[absl::string_view(both.data(), both.size())] = {symbols[left].text,
                                                               symbols[right].text};
      }
    };
    for (size_t i = 1; i < symbols.size(); ++i) {
      offer(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    }
    while (!merges.empty()) {
      const Merge merge = merges.top();
      merges.pop();
      Symbol& left = symbols[merge.left];
      Symbol& right = symbols[merge.right];
      if (left.text.empty() || right.text.empty() ||
          left.text.size() + right.text.size() != merge.bytes) {
        continue;
      }
      left.text = std::string_view(left.text.data(), merge.bytes);
      left.next = right.next;
      if (right.next != kNone) symbols[right.next].previous = merge.left;
      right.text = {};
      offer(left.previous, merge.left);
      offer(merge.left, left.next);
    }
    for (int32_t i = 0; i != kNone; i = symbols[i].next) {
      if (!Emit(symbols[i].text, halves, sink)) return false;
    }
    return true;
  }

  // Gives out a symbol; one that is not used as what it was made of.
  bool Emit(std::string_view text, const Halves& halves, Sink sink) const {
    std::vector<std::string_view> pending = {text};
    while (!pending.empty()) {
      const std::string_view piece = pending.back();
      pending.pop_back();
      const int32_t id = Find(piece);
      if (id != kNone && IsUnused(id)) {
        const auto it = halves.find(absl::string_view(piece.data(), piece.size()));
        if (it != halves.end()) {
          pending.push_back(it->second.second);
          pending.push_back(it->second.first);
          continue;
        }
      }
      if (!sink(piece, id == kNone ? model_.unknown_id : id)) return false;
    }
    return true;
  }

  const SentencePieceModel& model_;
  const ByteTrie& user_defined_;
  // Abseil's own view where it is not the standard's (Debian 12): only that one has a hash.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  absl::flat_hash_set<absl::string_view> joined_;  // the characters of pieces that have several
  bool crosses_words_ = false;
};

}  // namespace

std::unique_ptr<PieceSegmenter> MakeBpeSegmenter(const SentencePieceModel& model,
                                                 const ByteTrie& user_defined) {
  return std::make_unique<BpeSegmenter>(model, user_defined);
}

}  // namespace sru::models
