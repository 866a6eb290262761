// Shortlist: the target words that a sentence may be translated with, by Marian's lexical shortlist
// (lex*.bin, FORMAT.md): the most frequent words of the target vocabulary, the likely translations
// of each source piece, and, if both languages share a vocabulary, the source pieces themselves.
// The softmax and the choice of candidates are over these words only.
//
// Marian and Bergamot take the union over a batch; here each sentence has its own, so its
// translation doesn't depend on its neighbors.
#ifndef SRU_MODELS_DECODING_SHORTLIST_H_
#define SRU_MODELS_DECODING_SHORTLIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sru::models {

// The vocabularies that a shortlist is for.
struct ShortlistVocabularies {
  int source = 0;  // numbers of ids
  int target = 0;
  bool shared = false;  // an id is the same piece in both
  int32_t eos_id = 0;
};

// Immutable and thread-safe.
class Shortlist {
 public:
  // Parses the binary file. kInvalidArgument ("<source>: ...") when it is damaged or doesn't fit
  // the vocabularies. A source word at the end of the vocabulary may lack a list, though Marian's
  // own check refuses such files.
  static absl::StatusOr<Shortlist> Parse(std::string_view bytes,
                                         const ShortlistVocabularies& vocabularies,
                                         const std::string& source);

  // Returns the words for a sentence, ascending: words 0 to firstNum - 1, the lists of the pieces
  // and of </s>, the pieces if the vocabulary is shared, then the next words from firstNum on until
  // the count is a multiple of 8 or no word is left. `source_ids`, in the source vocabulary, may or
  // may not end with </s>. Takes O(target vocabulary / 64 + words) time.
  std::vector<int32_t> For(absl::Span<const int32_t> source_ids) const;

 private:
  Shortlist() = default;

  ShortlistVocabularies vocabularies_;
  int first_num_ = 0;              // at most the target vocabulary
  std::vector<uint32_t> offsets_;  // [source words with a list + 1]
  std::vector<uint32_t> words_;    // words_[offsets_[s] .. offsets_[s + 1]): those of source word s
};

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_SHORTLIST_H_
