#include "server/translation/document.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/base/interruption.h"
#include "server/translation/characters.h"
#include "unicode/uchar.h"
#include "unicode/unorm2.h"

namespace sru::server::translation {
namespace {

constexpr int kMostDepth = 200;
constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr std::string_view kSourceEnd = "</s>";          // models of Marian have it

// The bytes of a text are kept by the document, by a block that grows by doubling, and by its units
// or other items.
constexpr size_t kTextCopies = 4;
constexpr size_t kItemsUntilAsked = 4096;
// A page may begin with so much more of tags, styles and programs than of text.
constexpr size_t kMarkupPerText = 16;

using Names = MarkupReader::Names;

bool IsInline(const std::string& name) {
  static const Names* const names = NamesIn(
      "a abbr acronym b bdi bdo big cite data del dfn em embed font i img input ins label link "
      "mark "
      "meta nobr output picture q rb ruby s script small source span strike strong style sub sup "
      "time u var wbr");
  return names->count(name) > 0;
}

// Elements whose content is no text to translate.
bool IsLeftAlone(const std::string& name) {
  static const Names* const names = NamesIn(
      "code iframe kbd math noembed noframes rp rt rtc samp script style svg textarea tt var xmp");
  return names->count(name) > 0;
}

// The element that begins here is not translated.
bool OpensWhatStays(const MarkupToken& token, const TextRules& rules) {
  if (token.kind != MarkupToken::Kind::kOpen) return false;
  return rules.ignored_tags.count(token.name) > 0 ||
         (rules.format == TextFormat::kHtml &&
          (IsLeftAlone(token.name) || token.is_not_translated));
}

// True if it parts the words around it. What has no place on a page does not, nor do readings of
// words.
bool PartsWords(const MarkupToken& token, const TextRules& rules) {
  static const Names* const others = NamesIn("rb rp rt rtc ruby script style wbr");
  if (token.kind == MarkupToken::Kind::kRaw) {
    return token.raw[1] != '!' || token.raw.substr(0, 9) == "<![CDATA[";
  }
  return rules.format == TextFormat::kXml || others->count(token.name) == 0;
}

int LineBreak(UChar32 character) { return u_getIntPropertyValue(character, UCHAR_LINE_BREAK); }

// True if a space may come between the texts. One before a full stop or behind an opening bracket
// would part it from its word.
bool MayBeParted(std::string_view before, std::string_view after) {
  constexpr int kClosing[] = {U_LB_BREAK_SYMBOLS,  U_LB_CLOSE_PARENTHESIS, U_LB_CLOSE_PUNCTUATION,
                              U_LB_COMBINING_MARK, U_LB_EXCLAMATION,       U_LB_HYPHEN,
                              U_LB_INFIX_NUMERIC,  U_LB_INSEPARABLE,       U_LB_POSTFIX_NUMERIC};
  if (before.empty()) return false;
  const size_t last = Before(before, before.size());
  const int opening = LineBreak(CharacterAt(before, last));
  return !IsSpaceAt(before, last) && !IsSpaceAt(after, 0) && opening != U_LB_OPEN_PUNCTUATION &&
         opening != U_LB_HYPHEN &&
         std::count(std::begin(kClosing), std::end(kClosing), LineBreak(CharacterAt(after, 0))) ==
             0;
}

// True if the character's script puts no spaces between words.
bool StandsAlone(UChar32 character) {
  const int kind = LineBreak(character);
  return kind == U_LB_IDEOGRAPHIC || kind == U_LB_CONDITIONAL_JAPANESE_STARTER ||
         kind == U_LB_COMPLEX_CONTEXT;
}

// Marks between words, which need not be in the element of the word before them.
bool IsMark(UChar32 character) {
  return character > 0 && character < 128 &&
         std::string_view(".,;:!?()[]{}").find(static_cast<char>(character)) !=
             std::string_view::npos;
}

// True for a character that the rules of most SentencePiece models (nmt_nfkc) make a space, or
// begin with one: a zero-width non-joiner, or an acute accent that stands for an apostrophe.
bool BecomesSpace(std::string_view text, size_t at) {
  if (at >= text.size() || static_cast<unsigned char>(text[at]) < 0x80) return false;
  const UChar32 character = CharacterAt(text, at);
  if ((character >= 0x200B && character <= 0x200F) || character == 0xFEFF || character == 0xFFFD ||
      character == 0x2581) {
    return true;
  }
  UErrorCode error = U_ZERO_ERROR;
  UChar parts[32];
  const int32_t size = unorm2_getDecomposition(unorm2_getNFKCInstance(&error), character, parts,
                                               std::size(parts), &error);
  return U_SUCCESS(error) && size > 1 && parts[0] == ' ';
}

// <0xE4>: a byte of a character that the vocabulary does not have.
bool IsByte(std::string_view piece) {
  return piece.size() == 6 && piece.substr(0, 3) == "<0x" && piece.back() == '>';
}

size_t CountOf(std::string_view characters, std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [characters](char c) {
    return characters.find(c) != std::string_view::npos;
  }));
}

absl::Status CallerHasLeft() { return absl::CancelledError("the caller has left"); }

}  // namespace

std::vector<size_t> PieceOffsets(std::string_view text,
                                 const std::vector<std::string_view>& pieces) {
  std::vector<size_t> offsets;
  size_t at = 0;
  const auto skip_word = [&] {
    while (at < text.size() && !IsSpaceAt(text, at)) at = After(text, at);
  };
  const auto skip_space = [&] {
    while (at < text.size() && IsSpaceAt(text, at)) at = After(text, at);
  };
  for (std::string_view piece : pieces) {
    bool is_start = true;
    size_t begin = at;
    if (IsByte(piece)) {
      while (begin > 0 && begin < text.size() && ContinuesUtf8(text[begin])) --begin;
      if (at < text.size()) ++at;
      offsets.push_back(begin);
      continue;
    }
    while (!piece.empty()) {
      if (absl::StartsWith(absl::string_view(piece.data(), piece.size()),
                           absl::string_view(kWordStart.data(), kWordStart.size()))) {
        // The model and the text agree again at each word.
        if (BecomesSpace(text, at)) {
          at = After(text, at);
        } else if (at > 0) {
          skip_word();
        }
        skip_space();
        piece.remove_prefix(kWordStart.size());
        if (is_start) begin = at;
        continue;
      }
      is_start = false;
      const std::string_view character = piece.substr(0, After(piece, 0));
      piece.remove_prefix(character.size());
      if (at >= text.size() || IsSpaceAt(text, at)) continue;
      if (!BecomesSpace(text, at) || text.substr(at, character.size()) == character) {
        at = After(text, at);
      }
    }
    offsets.push_back(std::min(begin, text.size()));
  }
  return offsets;
}

std::string BeginningOf(std::string_view text, const TextRules& rules, size_t most) {
  const bool is_plain = rules.format == TextFormat::kPlain;
  text = CutUtf8(text, is_plain ? most : kMarkupPerText * most);
  if (is_plain) return std::string(text);
  std::string beginning;
  MarkupReader reader(text, rules.format == TextFormat::kXml);
  for (MarkupToken token; beginning.size() < most && reader.Next(&token);) {
    if (token.kind == MarkupToken::Kind::kText) {
      beginning += token.text;
    } else {
      if (OpensWhatStays(token, rules)) reader.SkipElement(token);
      if (token.kind != MarkupToken::Kind::kRaw && !IsInline(token.name)) beginning += ' ';
    }
  }
  return beginning;
}

// Reads a text and makes its items and units.
class DocumentParser {
 public:
  DocumentParser(Document* document, const TextRules& rules, const Document::Splitter& split,
                 const Document::Reserve& reserve)
      : document_(*document), rules_(rules), split_(split), reserve_(reserve) {}

  absl::Status Parse() {
    const std::string_view text = document_.text_;
    SRU_RETURN_UNLESS_OK(Reserve(kTextCopies, text.size()));
    if (rules_.format == TextFormat::kPlain) {
      block_ = document_.text_;
      return Flush();
    }
    document_.is_markup_ = true;
    SRU_RETURN_UNLESS_OK(Reserve(kTagBytes, CountOf("<&", text) + 1));
    if (is_xml() && rules_.outline) FindOutline(text);
    if (Interruption::Asked()) return CallerHasLeft();  // perhaps before the end of the outline
    SRU_RETURN_UNLESS_OK(Read(text));
    if (Interruption::Asked()) return CallerHasLeft();  // perhaps before the end of the text
    return AddRaw({});                                  // elements that are open end here
  }

 private:
  using Kind = MarkupToken::Kind;
  using Item = Document::Item;

  // Lists grow by doubling. A tag is an item or a mark, perhaps an element, and has text behind it.
  static constexpr size_t kTagBytes =
      2 * (2 * sizeof(Item) + sizeof(Document::Unit::Mark) + sizeof(Document::Element) +
           sizeof(std::pair<size_t, size_t>));
  // A sentence is found, is an item and a unit, and stands in a call.
  static constexpr size_t kUnitBytes =
      2 * (sizeof(Item) + sizeof(Document::Unit) + sizeof(v1::Translation) + 3 * sizeof(TextRange));

  absl::Status Reserve(size_t bytes, size_t count) const {
    return reserve_(static_cast<int64_t>(bytes * count));
  }

  bool is_xml() const { return rules_.format == TextFormat::kXml; }

  // True if a sentence ends where an element of this name begins or ends.
  bool EndsSentence(const std::string& name) const {
    if (rules_.splitting_tags.count(name) > 0) return true;
    if (rules_.inline_tags.count(name) > 0) return false;
    return is_xml() ? outline_.count(name) > 0 : !IsInline(name) && !IsLeftAlone(name);
  }

  void FindOutline(std::string_view text) {
    struct Tag {
      std::string_view name;
      uint32_t parent = 0;
      bool has_text = false;  // directly within it
    };
    std::vector<Tag> tags(1);
    uint32_t parent = 0;
    MarkupReader reader(text, /*is_xml=*/true);
    for (MarkupToken token; reader.Next(&token);) {
      if (token.kind == Kind::kText) {
        tags[parent].has_text |= !absl::StripAsciiWhitespace(token.text).empty();
      } else if (token.kind == Kind::kClose) {
        if (tags[parent].name == token.name) parent = tags[parent].parent;
      } else if (token.kind != Kind::kRaw) {
        tags.push_back({token.raw.substr(1, token.name.size()), parent});
        outline_.insert(token.name);
        if (token.kind == Kind::kOpen) parent = static_cast<uint32_t>(tags.size() - 1);
      }
    }
    for (const Tag& tag : tags) {
      if (tags[tag.parent].has_text) outline_.erase(std::string(tag.name));
    }
  }

  absl::Status Read(std::string_view text) {
    MarkupReader reader(text, is_xml());
    MarkupToken token;
    while (reader.Next(&token)) SRU_RETURN_UNLESS_OK(Take(token, &reader));
    return absl::OkStatus();
  }

  absl::Status Take(const MarkupToken& token, MarkupReader* reader) {
    if (token.kind == Kind::kText) {
      AddText(token.text);
      return absl::OkStatus();
    }
    if (token.kind == Kind::kRaw) return AddMark(token, token.raw);
    const bool is_open = token.kind == Kind::kOpen;
    if (OpensWhatStays(token, rules_)) return Leave(token, reader->SkipElement(token));
    if (EndsSentence(token.name)) {
      if (IsIcon(token, *reader)) return AddMark(token, reader->SkipElement(token));
      SRU_RETURN_UNLESS_OK(AddRaw(token.raw));
      if (token.name == "pre") in_pre_ = is_open;
      return absl::OkStatus();
    }
    if (is_open) return Open(token);
    return token.kind == Kind::kClose ? Close(token) : AddMark(token, token.raw);
  }

  void AddText(std::string_view text) {
    if (is_parted_ && MayBeParted(block_, text)) {
      for (auto it = marks_.rbegin(); it != marks_.rend() && it->offset == block_.size(); ++it) {
        it->is_space = true;
      }
      block_ += ' ';
    }
    is_parted_ = is_behind_end_ = false;
    block_ += text;
  }
  absl::Status AddMark(const MarkupToken& token, std::string_view raw) {
    marks_.push_back({block_.size(), element_, raw});
    is_parted_ |= PartsWords(token, rules_);
    return absl::OkStatus();
  }
  // It ends a sentence.
  absl::Status AddRaw(std::string_view raw) {
    SRU_RETURN_UNLESS_OK(Flush());
    document_.items_.push_back({Item::Kind::kRaw, element_, 0, {}, raw});
    return absl::OkStatus();
  }

  // What `open` has opened is left alone, except elements with translate="yes" where it says "no".
  // These end sentences, as the parts around them do. Within them nothing is looked for a second
  // time: that would take time with each level.
  absl::Status Leave(const MarkupToken& open, std::string_view whole) {
    size_t at = 0;  // what stands before is in the document
    if (open.is_not_translated && !is_xml() && !IsLeftAlone(open.name) && !is_within_left_) {
      MarkupReader reader(whole, /*is_xml=*/false);
      for (MarkupToken token; reader.Next(&token);) {
        const bool is_sought = token.is_translated || IsLeftAlone(token.name);
        if (token.kind != Kind::kOpen || !is_sought) continue;
        const std::string_view part = reader.SkipElement(token);
        if (OpensWhatStays(token, rules_)) continue;
        const auto begin = static_cast<size_t>(part.data() - whole.data());
        SRU_RETURN_UNLESS_OK(AddRaw(whole.substr(at, begin - at)));
        at = begin + part.size();
        is_within_left_ = true;
        SRU_RETURN_UNLESS_OK(Read(part));
        is_within_left_ = false;
      }
    }
    if (at == 0 && !EndsSentence(open.name)) return AddMark(open, whole);
    return AddRaw(whole.substr(at));
  }

  // An element of a page's own making that has no content stands within a line.
  bool IsIcon(const MarkupToken& open, MarkupReader ahead) const {
    MarkupToken end;
    return !is_xml() && absl::StrContains(open.name, '-') && open.kind == Kind::kOpen &&
           ahead.Next(&end) && end.kind == Kind::kClose && end.name == open.name;
  }

  absl::Status Open(const MarkupToken& token) {
    const int depth = document_.elements_[element_].depth + 1;
    if (depth > kMostDepth) {
      return InvalidArgument("the markup nests deeper than ", kMostDepth, " elements");
    }
    document_.elements_.push_back({token.raw, token.name, element_, depth});
    open_names_.insert(token.name);
    element_ = static_cast<int>(document_.elements_.size()) - 1;
    openings_.push_back({marks_.size(), blocks_});
    is_parted_ |= is_behind_end_ && PartsWords(token, rules_);
    marks_.push_back({block_.size(), element_, {}});
    return absl::OkStatus();
  }

  // An end tag ends what is open within its element, too; one without a beginning is left out.
  absl::Status Close(const MarkupToken& token) {
    if (open_names_.count(token.name) == 0) return absl::OkStatus();
    int closed = element_;
    for (; document_.elements_[closed].name != token.name;
         closed = document_.elements_[closed].parent) {
      open_names_.erase(open_names_.find(document_.elements_[closed].name));
    }
    open_names_.erase(open_names_.find(token.name));
    const Document::Element& element = document_.elements_[closed];
    const auto& [mark, block] = openings_[static_cast<size_t>(closed) - 1];
    const bool is_empty =
        closed == element_ && block == blocks_ && mark < marks_.size() &&
        absl::StripAsciiWhitespace(absl::string_view(block_).substr(marks_[mark].offset)).empty();
    element_ = element.parent;
    if (!is_empty) {
      is_behind_end_ = true;
      marks_.push_back({block_.size(), element_, {}});
      return absl::OkStatus();
    }
    const char* const begin = element.tag.data();
    block_.resize(marks_[mark].offset);
    marks_.resize(mark);
    return AddMark(token,
                   {begin, static_cast<size_t>(token.raw.data() + token.raw.size() - begin)});
  }

  // Makes units of the text since the last block's tag.
  absl::Status Flush() {
    Splitting splitting = rules_.splitting;
    if (rules_.format == TextFormat::kHtml && !in_pre_ && splitting == Splitting::kSentences) {
      splitting = Splitting::kNoNewlines;
    }
    SRU_ASSIGN_OR_RETURN(const std::vector<TextRange> ranges, split_(block_, splitting));
    SRU_RETURN_UNLESS_OK(Reserve(kUnitBytes, ranges.size()));
    size_t at = 0;
    size_t mark = 0;
    int element = block_element_;
    const auto add_text = [&](size_t end) {
      if (at >= end) return;
      document_.items_.push_back({Item::Kind::kText, element, 0, block_.substr(at, end - at), {}});
      at = end;
    };
    const auto add_marks = [&](size_t end) {
      for (; mark < marks_.size() && marks_[mark].offset <= end; ++mark) {
        add_text(marks_[mark].offset);
        element = marks_[mark].element;
        at += marks_[mark].is_space && at == marks_[mark].offset ? 1 : 0;
        if (marks_[mark].raw.empty()) continue;
        document_.items_.push_back({Item::Kind::kRaw, element, 0, {}, marks_[mark].raw});
      }
      add_text(end);
    };
    for (const TextRange& range : ranges) {
      add_marks(range.begin);
      document_.items_.push_back({Item::Kind::kUnit, element, document_.units_.size(), {}, {}});
      Document::Unit& unit = document_.units_.emplace_back();
      unit.text = block_.substr(range.begin, range.end - range.begin);
      std::replace_if(
          unit.text.begin(), unit.text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
      unit.element = element;
      for (; mark < marks_.size() && marks_[mark].offset < range.end; ++mark) {
        unit.marks.push_back(marks_[mark]);
        unit.marks.back().offset -= range.begin;
        element = marks_[mark].element;
      }
      at = range.end;
    }
    add_marks(block_.size());
    block_.clear();
    marks_.clear();
    block_element_ = element_;
    ++blocks_;
    return absl::OkStatus();
  }

  Document& document_;
  const TextRules& rules_;
  const Document::Splitter& split_;
  const Document::Reserve& reserve_;
  std::set<std::string> outline_;  // names of XML's elements that stand beside no text
  std::string block_;              // its text, decoded
  std::vector<Document::Unit::Mark> marks_;
  int block_element_ = 0;                  // the innermost at the beginning of the block
  int element_ = 0;                        // the innermost
  std::multiset<std::string> open_names_;  // of the elements that are open
  size_t blocks_ = 0;
  std::vector<std::pair<size_t, size_t>> openings_;  // by element - 1: its mark and its block
  bool in_pre_ = false;
  bool is_parted_ = false;       // what stands behind the text so far parts it from the next word
  bool is_behind_end_ = false;   // an end tag stands there
  bool is_within_left_ = false;  // within an element that is left alone
};

absl::StatusOr<std::unique_ptr<const Document>> Document::Parse(std::string text,
                                                                const TextRules& rules,
                                                                const Splitter& split,
                                                                const Reserve& reserve) {
  std::unique_ptr<Document> document(new Document());
  document->text_ = std::move(text);
  SRU_RETURN_UNLESS_OK(DocumentParser(document.get(), rules, split, reserve).Parse());
  return std::unique_ptr<const Document>(std::move(document));
}

// Writes the text of a document. Tags are written when something follows that stands between them.
class Document::Writer {
 public:
  Writer(const Document& document, bool join_with_spaces)
      : document_(document),
        join_with_spaces_(join_with_spaces),
        was_written_(document.elements_.size()),
        most_repeated_(document.text_.size()) {}

  void Write(const Item& item, const std::vector<v1::Translation>& translations) {
    const bool is_unit = item.kind == Item::Kind::kUnit;
    if (item.kind == Item::Kind::kText) WriteText(item.text, item.element);
    if (item.kind == Item::Kind::kRaw) WriteRaw(item.raw, item.element);
    if (is_unit && after_unit_ && join_with_spaces_) text_ += ' ';
    if (is_unit) WriteUnit(document_.units_[item.unit], translations[item.unit]);
    after_unit_ = is_unit;
  }
  std::string Take() { return std::move(text_); }

 private:
  // Words of a translation, and what they were made from.
  struct Group {
    size_t begin = 0;
    size_t end = 0;
    int token = 0;    // of the source
    int element = 0;  // the innermost around it
    bool is_mark = false;
  };
  // True if there is a space before the mark.
  static bool StandsApart(const Unit& unit, const Unit::Mark& mark) {
    return IsSpaceAt(unit.text, mark.offset - 1);
  }

  void WriteText(std::string_view text, int element) {
    if (text.empty()) return;
    if (!document_.is_markup_) {
      text_.append(text);
      return;
    }
    Enter(element);
    AppendEscaped(text, &text_);
  }
  void WriteRaw(std::string_view raw, int element) {
    Enter(element);
    text_.append(raw);
  }

  int Parent(int element) const { return document_.elements_[element].parent; }
  int Common(int a, int b) const {
    const std::vector<Element>& elements = document_.elements_;
    while (a != b)
      (elements[a].depth >= elements[b].depth ? a : b) =
          Parent(elements[a].depth >= elements[b].depth ? a : b);
    return a;
  }

  // Ends and begins elements, until `element` is the innermost.
  void Enter(int element) {
    const int common = Common(inside_, element);
    for (; inside_ != common; inside_ = Parent(inside_)) {
      const Element& left = document_.elements_[inside_];
      text_.append("</").append(left.tag, 1, left.name.size()).append(">");  // in its own case
    }
    std::vector<int> entered;
    size_t repeated = 0;
    for (; element != common; element = Parent(element)) {
      entered.push_back(element);
      if (was_written_[element]) repeated += document_.elements_[element].tag.size();
    }
    // A long tag around words that come in another order must not make the answer many times as
    // long as the text.
    if (repeated > most_repeated_) return;
    most_repeated_ -= repeated;
    for (auto it = entered.rbegin(); it != entered.rend(); ++it) {
      text_.append(document_.elements_[*it].tag);
      was_written_[*it] = true;
      inside_ = *it;
    }
  }

  void WriteUnit(const Unit& unit, const v1::Translation& translation) {
    const v1::Hypothesis& hypothesis = translation.hypotheses_size() > 0
                                           ? translation.hypotheses(0)
                                           : v1::Hypothesis::default_instance();
    const std::string_view text = hypothesis.text();
    if (unit.marks.empty()) {
      Enter(unit.element);
      return WriteText(text, unit.element);
    }
    ReadSource(unit, translation);
    const std::vector<Group> groups = GroupsOf(unit.text, hypothesis);

    // By place: the marks before token t have 2 t, those behind it 2 t + 1. If no word was made of
    // it, they go to one beside it.
    std::vector<std::pair<int, const Unit::Mark*>> marks;
    marks.reserve(unit.marks.size());
    const int end = 2 * static_cast<int>(offsets_.size());
    std::set<int> taken;
    for (const Group& group : groups) taken.insert(group.token);
    for (const Unit::Mark& mark : unit.marks) {
      const auto offset = std::lower_bound(offsets_.begin(), offsets_.end(), mark.offset);
      const auto next = taken.lower_bound(static_cast<int>(offset - offsets_.begin()));
      const bool is_behind = !mark.is_space && !StandsApart(unit, mark) && next != taken.begin();
      const int before = next == taken.end() ? end : 2 * *next;
      marks.emplace_back(is_behind ? 2 * *std::prev(next) + 1 : before, &mark);
    }
    const auto by_place = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::stable_sort(marks.begin(), marks.end(), by_place);
    // `space` is what the translation has before the next word, which is in `element`. It is
    // written before a mark that stands apart.
    const auto write_marks = [&](int place, int element, std::string_view space) {
      const Unit::Mark* last = nullptr;  // that stands apart
      const std::pair<int, const Unit::Mark*> sought(place, nullptr);
      auto it = std::lower_bound(marks.begin(), marks.end(), sought, by_place);
      for (; it != marks.end() && it->first == place && it->second != nullptr; ++it) {
        const Unit::Mark& mark = *std::exchange(it->second, nullptr);  // once
        const bool is_written = !mark.raw.empty() || IsLost(mark.element);
        const int around = Common(inside_, element);
        if (mark.is_space && (is_written || (inside_ != around && element != around))) space = {};
        if (!is_written) continue;
        if (!mark.is_space && StandsApart(unit, mark)) {
          if (last != nullptr && last->offset != mark.offset) space = " ";
          WriteText(std::exchange(space, {}), Common(inside_, mark.element));
          last = &mark;
        }
        WriteRaw(mark.raw, mark.element);
      }
      return last != nullptr && IsSpaceAt(unit.text, last->offset) ? " " : space;
    };
    if (IsLost(unit.element)) Enter(unit.element);
    size_t at = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto& [begin, end_of_group, token, element, is_mark] = groups[g];
      const std::string_view space = text.substr(at, begin - at);
      WriteText(write_marks(2 * token, element, space), Common(inside_, element));
      Enter(element);
      at = end_of_group;
      WriteText(text.substr(begin, at - begin), element);
      const bool is_last = g + 1 == groups.size() || groups[g + 1].token != token;
      if (is_last) write_marks(2 * token + 1, element, {});
    }
    const int element = unit.marks.back().element;
    WriteText(text.substr(at), element);
    write_marks(end, element, groups.empty() ? "" : " ");
  }

  // Finds the elements around the tokens of a unit.
  void ReadSource(const Unit& unit, const v1::Translation& translation) {
    std::vector<std::string_view> pieces(translation.source_tokens().begin(),
                                         translation.source_tokens().end());
    if (!pieces.empty() && pieces.back() == kSourceEnd) pieces.pop_back();  // it has no element
    offsets_ = PieceOffsets(unit.text, pieces);
    around_.clear();
    places_.clear();
    counts_.clear();
    int element = outside_ = unit.element;
    size_t begin = 0;
    const auto pass = [&](size_t end) {
      const size_t first = around_.size();
      while (around_.size() < offsets_.size() && offsets_[around_.size()] < end) {
        around_.push_back(element);
      }
      if (begin == end || offsets_.empty()) return;
      const size_t token = first > 0 && first == around_.size() ? first - 1 : first;
      places_.emplace_back(token, element, begin > 0 && !IsSpaceAt(unit.text, begin - 1));
      outside_ = Common(outside_, element);
      begin = end;
    };
    for (const Unit::Mark& mark : unit.marks) {
      pass(mark.offset);
      element = mark.element;
    }
    pass(std::string_view::npos);
  }

  // True if no word has the element, nor has another text.
  bool IsLost(int element) { return !was_written_[element] && counts_[element] == 0; }

  // The words of a translation, and the marks between them; characters of scripts without spaces
  // are words.
  std::vector<Group> GroupsOf(const std::string& source, const v1::Hypothesis& hypothesis) {
    const std::string_view text = hypothesis.text();
    const std::vector<std::string_view> pieces(hypothesis.tokens().begin(),
                                               hypothesis.tokens().end());
    const std::vector<size_t> offsets = PieceOffsets(text, pieces);
    const auto sources = static_cast<int>(around_.size());
    const int columns =
        pieces.empty() ? 0 : hypothesis.alignment_size() / static_cast<int>(pieces.size());
    const int counted = std::min(columns, sources);
    std::vector<Group> groups;
    std::vector<std::vector<float>> weights;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const size_t at = offsets[i];
      const bool starts =
          i == 0 || at == text.size() ||
          (at > offsets[i - 1] &&
           (IsSpaceAt(text, at - 1) || StandsAlone(CharacterAt(text, at)) ||
            IsMark(CharacterAt(text, at)) || IsMark(static_cast<unsigned char>(text[at - 1]))));
      if (starts && (i == 0 || at < text.size())) {
        const bool is_mark = at < text.size() && IsMark(CharacterAt(text, at));
        groups.push_back({i == 0 ? 0 : at, 0, 0, outside_, is_mark});
        weights.emplace_back(sources);
      }
      for (int s = 0; s < counted; ++s) {
        weights.back()[s] += hypothesis.alignment(static_cast<int>(i) * columns + s);
      }
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      Group& group = groups[g];
      group.end = g + 1 < groups.size() ? groups[g + 1].begin : text.size();
      while (group.end > group.begin + 1 && text[group.end - 1] == ' ') --group.end;
      if (sources == 0) continue;
      // Without an alignment, words are taken to keep their order.
      auto best = std::max_element(weights[g].begin(), weights[g].end());
      // A mark looks at the word before it, too: it stands for the same mark of the source, if
      // there is one.
      float most = -1;
      for (int s = 0; group.is_mark && s < counted; ++s) {
        const bool is_same =
            offsets_[s] < source.size() && source[offsets_[s]] == text[group.begin];
        if (!is_same || weights[g][s] <= most) continue;
        most = weights[g][s];
        best = weights[g].begin() + s;
      }
      group.token = counted > 0 ? static_cast<int>(best - weights[g].begin())
                                : static_cast<int>(g * sources / groups.size());
      group.element = around_[group.token];
      if (!group.is_mark) Count(group.element, 1);
    }
    for (const Group& group : groups) {
      if (group.is_mark && counts_[group.element] == 0) Count(group.element, 1);
    }
    KeepElements(weights, &groups);
    return groups;
  }

  // Counts words of an element and of those around it.
  void Count(int element, int more) {
    for (; element != outside_; element = Parent(element)) counts_[element] += more;
    counts_[outside_] += more;
  }

  // An element that no word has got takes the one that looked at it most, from an element with
  // several or from one around it. Part of a word takes no other one.
  void KeepElements(const std::vector<std::vector<float>>& weights, std::vector<Group>* groups) {
    for (const auto& [token, element, is_within_word] : places_) {
      if (counts_[element] > 0) continue;
      Group* best = nullptr;
      float most = -1;
      for (size_t g = 0; g < groups->size(); ++g) {
        Group& group = (*groups)[g];
        if (group.is_mark || weights[g][token] <= most) continue;
        const bool is_free =
            counts_[group.element] > 1 || Common(group.element, element) == group.element;
        if (!is_free && !is_within_word) continue;
        most = weights[g][token];
        best = is_free ? &group : nullptr;
      }
      if (best == nullptr) continue;
      Count(best->element, -1);
      best->element = element;
      Count(element, 1);
    }
  }

  const Document& document_;
  const bool join_with_spaces_;
  std::string text_;
  int inside_ = 0;  // the innermost element that is written and has no end yet
  bool after_unit_ = false;
  std::vector<bool> was_written_;
  size_t most_repeated_;  // bytes of tags that may yet come again
  // Of the unit that is being written.
  std::vector<size_t> offsets_;  // of the tokens of the source
  std::vector<int> around_;      // the innermost element around the beginning of each
  int outside_ = 0;              // the innermost around all
  // The texts between marks: the token in which each begins, its innermost element, and whether it
  // begins within a word.
  std::vector<std::tuple<size_t, int, bool>> places_;
  std::map<int, int> counts_;  // of words, by element; those of the elements within it count, too
};

int64_t Document::AnswerBytes(const std::vector<v1::Translation>& translations) const {
  const auto written = [this](std::string_view text) {
    return text.size() + (is_markup_ ? 4 * CountOf("<>&", text) : 0);
  };
  // Tags may come again, up to the length of the text, and all get ends.
  size_t bytes = written(text_) + (is_markup_ ? 4 * text_.size() : 0);
  for (const v1::Translation& translation : translations) {
    if (translation.hypotheses_size() > 0) bytes += 1 + written(translation.hypotheses(0).text());
  }
  return static_cast<int64_t>(2 * bytes);  // the text grows by doubling
}

absl::StatusOr<std::string> Document::Assemble(const std::vector<v1::Translation>& translations,
                                               bool join_with_spaces) const {
  Writer writer(*this, join_with_spaces);
  size_t items = 0;
  for (const Item& item : items_) {
    if (++items % kItemsUntilAsked == 0 && Interruption::Asked()) return CallerHasLeft();
    writer.Write(item, translations);
  }
  return writer.Take();
}

}  // namespace sru::server::translation
