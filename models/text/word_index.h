// WordIndex: numbers different words in the order in which they come first.
//
// Abseil's hash tables, in the version of Debian 12, are broken by an allocation that fails, and the memory for
// words that a caller sends may not be there. Here nothing is allocated after the constructor. Like theirs, the
// hash has a seed of the process, so that nobody can send words which all have the same one.
#ifndef SRU_MODELS_TEXT_WORD_INDEX_H_
#define SRU_MODELS_TEXT_WORD_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace sru::models {

class WordIndex {
 public:
  static constexpr int kNotFound = -1;

  WordIndex() : WordIndex(0) {}

  // At most `max_words` different words may be added, below 2^30.
  explicit WordIndex(size_t max_words) {
    size_t slots = 2;
    while (slots < 2 * max_words) slots *= 2;  // at most half of them are taken
    slots_.assign(slots, kNotFound);
    words_.reserve(max_words);
  }

  // The word's number, from 0; adds it if it is new. Keeps a view of it.
  int Add(std::string_view word) {
    int& slot = slots_[SlotOf(word)];
    if (slot == kNotFound) {
      slot = static_cast<int>(words_.size());
      words_.push_back(word);
    }
    return slot;
  }

  int Find(std::string_view word) const { return slots_[SlotOf(word)]; }
  bool contains(std::string_view word) const { return Find(word) != kNotFound; }
  size_t size() const { return words_.size(); }

 private:
  // Where the word is, or would be.
  size_t SlotOf(std::string_view word) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = absl::Hash<absl::string_view>()({word.data(), word.size()}) & mask;
    while (slots_[slot] != kNotFound && words_[slots_[slot]] != word) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<int> slots_;  // numbers of words; a power of two
  std::vector<std::string_view> words_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_WORD_INDEX_H_
