// Document: a text as units that a model can translate, sentences or parts of them, and the text
// again from their translations. What lies between units stays as it is: white space, paragraphs,
// tags.
//
// HTML and XML. A block's tag (and every one that is not known to stand within a line) ends a
// sentence, even if its element is left alone. Tags within a sentence follow the words: each word
// of the translation gets the elements of the word of the source that it was made from, by the
// alignment; an element may come several times, and is empty if no word is left for it. Elements
// without content, comments and what is left alone stay behind the word that they touch, else
// before the one that they stood before. Between two words without a space they are one for the
// model, as is an end tag before a start tag. Entities are decoded for the model and written anew.
// The output is well-formed where the input was.
#ifndef SRU_SERVER_TRANSLATION_DOCUMENT_H_
#define SRU_SERVER_TRANSLATION_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/translation/markup.h"
#include "server/translation/sentences.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::translation {

enum class TextFormat { kPlain, kHtml, kXml };

struct TextRules {
  TextFormat format = TextFormat::kPlain;
  Splitting splitting = Splitting::kSentences;
  // Elements that end a sentence; those that do not; those that are left alone. Of HTML, besides
  // those that are known.
  std::set<std::string> splitting_tags;
  std::set<std::string> inline_tags;
  std::set<std::string> ignored_tags;
  // XML only: other elements end a sentence, unless they stand beside text somewhere.
  bool outline = true;
};

// Not movable: it has views of its text. Immutable once parsed.
class Document {
 public:
  // The units of a text, in their order; never empty ones.
  using Splitter = std::function<absl::StatusOr<std::vector<TextRange>>(std::string_view text,
                                                                        Splitting splitting)>;
  // Reserves memory, or says why not.
  using Reserve = std::function<absl::Status(int64_t bytes)>;

  struct Unit {
    std::string text;
    bool needs_alignment() const { return !marks.empty(); }

    // A tag between its first and its last character.
    struct Mark {
      size_t offset = 0;
      int element = 0;        // the innermost from here on, or around `raw`
      std::string_view raw;   // empty: `element` begins or ends here
      bool is_space = false;  // the space that `text` has here stands for this and is not written
    };
    std::vector<Mark> marks;
    int element = 0;  // the innermost around its first character
  };

  // `text` is valid UTF-8. Reserves the memory of the document and of its translations' frames
  // before it is taken. kInvalidArgument: elements nest too deeply; kCancelled: the thread's work
  // is to end (server/base/interruption.h); errors of `split` and `reserve`.
  static absl::StatusOr<std::unique_ptr<const Document>> Parse(std::string text,
                                                               const TextRules& rules,
                                                               const Splitter& split,
                                                               const Reserve& reserve);
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  const std::vector<Unit>& units() const { return units_; }
  // The memory that Assemble() takes, its result included.
  int64_t AnswerBytes(const std::vector<v1::Translation>& translations) const;

  // The text made of the best hypothesis of each unit's translation. `join_with_spaces`: write a
  // space between units that follow each other directly. kCancelled as for Parse().
  absl::StatusOr<std::string> Assemble(const std::vector<v1::Translation>& translations,
                                       bool join_with_spaces) const;

 private:
  friend class DocumentParser;
  class Writer;

  // An element that is open around words; 0 is none.
  struct Element {
    std::string_view tag;
    std::string name;
    int parent = 0;
    int depth = 0;
  };
  struct Item {
    enum class Kind { kText, kRaw, kUnit };
    Kind kind = Kind::kText;
    int element = 0;  // the innermost around it
    size_t unit = 0;
    std::string text;      // decoded
    std::string_view raw;  // a part of text_
  };

  Document() = default;

  std::string text_;
  bool is_markup_ = false;
  std::vector<Element> elements_ = std::vector<Element>(1);
  std::vector<Unit> units_;
  std::vector<Item> items_;
};

// About `most` bytes, whole characters, from the beginning of what is translated of a text: without
// tags, and without elements that are left alone. Takes memory and time by `most`, not by the text.
std::string BeginningOf(std::string_view text, const TextRules& rules, size_t most);

// Where each piece of a SentencePiece model begins in the text that it is a part of. Exact for text
// that was made of the pieces; close to it where the model has normalized the text.
std::vector<size_t> PieceOffsets(std::string_view text,
                                 const std::vector<std::string_view>& pieces);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_DOCUMENT_H_
