// MarkupReader: HTML or XML as a sequence of texts and tags, in the order in which they stand and
// with all of their bytes. It builds no tree and repairs nothing: what it cannot read is text.
//
//   MarkupReader reader(markup, /*is_xml=*/false);
//   MarkupToken token;
//   while (reader.Next(&token)) ...
//
// Time is linear in the bytes. Not thread-safe.
#ifndef SRU_SERVER_TRANSLATION_MARKUP_H_
#define SRU_SERVER_TRANSLATION_MARKUP_H_

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace sru::server::translation {

struct MarkupToken {
  enum class Kind {
    kText,   // `text`: characters, entities decoded
    kOpen,   // <name ...>
    kClose,  // </name>
    kEmpty,  // <name .../> of XML, or of HTML's svg and math and within these; or an element of
             // HTML that has no end
    kRaw,    // comments, declarations, instructions, CDATA, entities that are not known
  };
  Kind kind = Kind::kText;
  std::string_view raw;  // the bytes, a part of the markup
  std::string name;      // of a tag; in lower case unless it is XML
  std::string text;
  bool is_not_translated = false;  // translate="no" or the class "notranslate"
  bool is_translated = false;      // translate="yes"
};

class MarkupReader {
 public:
  using Names = std::set<std::string, std::less<>>;

  // `markup` is valid UTF-8 and outlives the reader.
  MarkupReader(std::string_view markup, bool is_xml) : markup_(markup), is_xml_(is_xml) {}

  // False at the end, and when the thread's work is to end (server/base/interruption.h).
  bool Next(MarkupToken* token);

  // Passes over the rest of the element that the token `open` has opened. Returns all of the
  // element, up to the end of the markup if it has no end tag. An element of HTML that needs none,
  // such as li, ends before the next one like it and before the end of what is around it, too.
  std::string_view SkipElement(const MarkupToken& open);

 private:
  // The part of SkipElement() for elements that need no end tag; `ends`: those that begin after its
  // end.
  void SkipOptionalEnd(const MarkupToken& open, const Names& ends);
  void ReadText(MarkupToken* token);
  void ReadEntity(MarkupToken* token);
  // False: no tag, comment or the like begins here.
  bool ReadTag(MarkupToken* token);
  // Reads the attributes of a tag from `at` on. Returns where its > stands; the end of the markup
  // if there is none; npos if a quotation mark has no second one.
  size_t ReadAttributes(size_t at, MarkupToken* token) const;
  // Where `what` ends that is looked for from `from` on; the end of the markup if it is not there.
  size_t EndOf(std::string_view what, size_t from) const;
  // The same for the comment, the type of the document, and the comment, declaration or instruction
  // that begins at `at_`.
  size_t EndOfComment() const;
  size_t EndOfType() const;
  size_t EndOfDeclaration() const;

  const std::string_view markup_;
  const bool is_xml_;
  size_t at_ = 0;
  size_t tokens_ = 0;
  size_t open_foreign_ = 0;  // elements svg and math of HTML that are open
  bool has_tags_ = true;     // false once a tag had no end: another one has none either
};

// The names in a text, which spaces part. Never freed: for tables.
const MarkupReader::Names* NamesIn(const char* names);

// Appends `text` with &, < and > as entities.
void AppendEscaped(std::string_view text, std::string* markup);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_MARKUP_H_
