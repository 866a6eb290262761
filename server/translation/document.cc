#include "server/translation/document.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
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

// The bytes of a text are kept by the document, by a block that grows by doubling, and by its units or other items.
constexpr size_t kTextCopies = 4;
constexpr size_t kItemsUntilAsked = 4096;
// A page may begin with so much more of tags, styles and programs than of text.
constexpr size_t kMarkupPerText = 16;

using Names = std::set<std::string, std::less<>>;

bool IsInline(const std::string& name) {
  static const auto* const names = new Names{
      "a",      "abbr",   "acronym", "b",    "bdi", "bdo",   "big", "cite",   "data",  "del",
      "dfn",    "em",     "font",    "i",    "img", "input", "ins", "label",  "mark",  "meta",
      "link",   "output", "q",       "rp",   "rt",  "ruby",  "s",   "small",  "span",  "strike",
      "strong", "sub",    "sup",     "time", "u",   "var",   "wbr", "script", "style", "nobr"};
  return names->count(name) > 0;
}

// Elements whose content is no text to translate.
bool IsLeftAlone(const std::string& name) {
  static const auto* const names =
      new Names{"code",   "iframe", "kbd", "math",     "noembed", "noframes", "samp",
                "script", "style",  "svg", "textarea", "tt",      "var",      "xmp"};
  return names->count(name) > 0;
}

// The element that begins here is not translated.
bool OpensWhatStays(const MarkupToken& token, const TextRules& rules) {
  if (token.kind != MarkupToken::Kind::kOpen) return false;
  return rules.ignored_tags.count(token.name) > 0 ||
         (rules.format == TextFormat::kHtml &&
          (IsLeftAlone(token.name) || token.is_not_translated));
}

// True if the character's script puts no spaces between words.
bool StandsAlone(UChar32 character) {
  switch (u_getIntPropertyValue(character, UCHAR_LINE_BREAK)) {
    case U_LB_IDEOGRAPHIC:
    case U_LB_CONDITIONAL_JAPANESE_STARTER:
    case U_LB_COMPLEX_CONTEXT:
      return true;
    default:
      return false;
  }
}

// Marks between words, which need not be in the element of the word before them.
bool IsMark(UChar32 character) {
  return character > 0 && character < 128 &&
         std::string_view(".,;:!?()[]{}").find(static_cast<char>(character)) !=
             std::string_view::npos;
}

// True for a character that the rules of most SentencePiece models (nmt_nfkc) make a space, or begin with one: a zero-width non-joiner,
// or an acute accent that stands for an apostrophe.
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
  size_t size = std::min(text.size(), is_plain ? most : kMarkupPerText * most);
  while (size > 0 && size < text.size() && ContinuesUtf8(text[size])) --size;
  text = text.substr(0, size);
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
    MarkupReader reader(text, is_xml());
    MarkupToken token;
    while (reader.Next(&token)) SRU_RETURN_UNLESS_OK(Take(token, &reader));
    if (Interruption::Asked()) return CallerHasLeft();  // perhaps before the end of the text
    SRU_RETURN_UNLESS_OK(Flush());
    AddRaw({});  // elements that are open end here
    return absl::OkStatus();
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

  absl::Status Take(const MarkupToken& token, MarkupReader* reader) {
    if (token.kind == Kind::kText) {
      block_ += token.text;
      return absl::OkStatus();
    }
    if (token.kind == Kind::kRaw) return AddMark(element_, token.raw);
    const bool is_open = token.kind == Kind::kOpen;
    const bool ends_sentence = EndsSentence(token.name);
    if (OpensWhatStays(token, rules_)) {
      if (!ends_sentence) return AddMark(element_, reader->SkipElement(token));
      SRU_RETURN_UNLESS_OK(Flush());
      AddRaw(reader->SkipElement(token));
      return absl::OkStatus();
    }
    if (ends_sentence) {
      SRU_RETURN_UNLESS_OK(Flush());
      AddRaw(token.raw);
      if (token.name == "pre") in_pre_ = is_open;
      return absl::OkStatus();
    }
    switch (token.kind) {
      case Kind::kOpen:
        return Open(token);
      case Kind::kClose:
        return Close(token);
      default:
        return AddMark(element_, token.raw);
    }
  }

  absl::Status AddMark(int element, std::string_view raw) {
    marks_.push_back({block_.size(), element, raw});
    return absl::OkStatus();
  }
  void AddRaw(std::string_view raw) {
    document_.items_.push_back({Item::Kind::kRaw, element_, 0, {}, raw});
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
    return AddMark(element_, {});
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
    if (!is_empty) return AddMark(element_, {});
    const char* const begin = element.tag.data();
    // Its white space stands between words as well, if there is no other.
    const size_t offset = marks_[mark].offset;
    if (offset == 0 || IsSpaceAt(block_, Before(block_, offset))) block_.resize(offset);
    marks_.resize(mark);
    return AddMark(element_,
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
      if (at == end) return;
      document_.items_.push_back({Item::Kind::kText, element, 0, block_.substr(at, end - at), {}});
      at = end;
    };
    const auto add_marks = [&](size_t end) {
      for (; mark < marks_.size() && marks_[mark].offset <= end; ++mark) {
        add_text(marks_[mark].offset);
        element = marks_[mark].element;
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
    switch (item.kind) {
      case Item::Kind::kText:
        WriteText(item.text, item.element);
        break;
      case Item::Kind::kRaw:
        WriteRaw(item.raw, item.element);
        break;
      case Item::Kind::kUnit: {
        const v1::Translation& translation = translations[item.unit];
        if (after_unit_ && join_with_spaces_) text_ += ' ';
        if (translation.hypotheses_size() > 0) {
          WriteUnit(document_.units_[item.unit], translation, translation.hypotheses(0));
        }
        break;
      }
    }
    after_unit_ = item.kind == Item::Kind::kUnit;
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
      text_.append("</").append(document_.elements_[inside_].name).append(">");
    }
    std::vector<int> entered;
    size_t repeated = 0;
    for (; element != common; element = Parent(element)) {
      entered.push_back(element);
      if (was_written_[element]) repeated += document_.elements_[element].tag.size();
    }
    // A long tag around words that come in another order must not make the answer many times as long as the text.
    if (repeated > most_repeated_) return;
    most_repeated_ -= repeated;
    for (auto it = entered.rbegin(); it != entered.rend(); ++it) {
      text_.append(document_.elements_[*it].tag);
      was_written_[*it] = true;
      inside_ = *it;
    }
  }

  void WriteUnit(const Unit& unit, const v1::Translation& translation,
                 const v1::Hypothesis& hypothesis) {
    const std::string& text = hypothesis.text();
    if (unit.marks.empty()) return WriteText(text, unit.element);
    std::vector<std::string_view> pieces(translation.source_tokens().begin(),
                                         translation.source_tokens().end());
    if (!pieces.empty() && pieces.back() == kSourceEnd) pieces.pop_back();  // it has no element
    const std::vector<size_t> sources = PieceOffsets(unit.text, pieces);
    // The innermost element around each token of the source, and the tokens that marks stand before.
    std::vector<int> elements;
    std::vector<std::pair<int, const Unit::Mark*>> raws;  // in the order of the tokens
    auto mark = unit.marks.begin();
    int element = unit.element;
    const auto pass = [&](size_t offset) {
      for (; mark != unit.marks.end() && mark->offset <= offset; ++mark) {
        element = mark->element;
        if (!mark->raw.empty()) raws.emplace_back(static_cast<int>(elements.size()), &*mark);
      }
    };
    for (const size_t offset : sources) {
      pass(offset);
      elements.push_back(element);
    }
    pass(unit.text.size());
    std::vector<bool> is_done(elements.size() + 1);  // the raws before this token are written
    size_t at = 0;
    // A tag may begin where the unit does: the whole is in what is around all tokens.
    int outside = unit.element;
    for (const int of_token : elements) outside = Common(outside, of_token);
    for (const Group& group : GroupsOf(unit.text, sources, hypothesis, elements, outside)) {
      auto first = raws.end();
      if (!is_done[group.token]) {
        first = std::lower_bound(raws.begin(), raws.end(), group.token,
                                 [](const auto& raw, int token) { return raw.first < token; });
      }
      const auto write_raws = [&](bool after_space) {
        for (auto it = first; it != raws.end() && it->first == group.token; ++it) {
          const Unit::Mark& raw = *it->second;
          if (after_space != StandsApart(unit, raw)) continue;
          WriteRaw(raw.raw, raw.element);
          if (after_space && IsSpaceAt(unit.text, raw.offset)) text_ += ' ';
        }
      };
      write_raws(/*after_space=*/false);
      const int around = Common(inside_, group.element);
      WriteText(std::string_view(text).substr(at, group.begin - at), around);
      write_raws(/*after_space=*/true);
      is_done[group.token] = true;
      WriteText(std::string_view(text).substr(group.begin, group.end - group.begin), group.element);
      at = group.end;
    }
    WriteText(std::string_view(text).substr(at), element);
    for (const auto& [token, raw] : raws) {
      if (is_done[token]) continue;
      if (StandsApart(unit, *raw)) text_ += ' ';
      WriteRaw(raw->raw, raw->element);
    }
  }

  // The words of a translation, and the marks between them; characters of scripts without spaces are words.
  static std::vector<Group> GroupsOf(const std::string& source,
                                     const std::vector<size_t>& source_offsets,
                                     const v1::Hypothesis& hypothesis,
                                     const std::vector<int>& elements, int outside) {
    const std::string_view text = hypothesis.text();
    const std::vector<std::string_view> pieces(hypothesis.tokens().begin(),
                                               hypothesis.tokens().end());
    const std::vector<size_t> offsets = PieceOffsets(text, pieces);
    const auto sources = static_cast<int>(elements.size());
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
        groups.push_back({i == 0 ? 0 : at, 0, 0, outside, is_mark});
        weights.emplace_back(sources);
      }
      for (int s = 0; s < counted; ++s) {
        weights.back()[s] += hypothesis.alignment(static_cast<int>(i) * columns + s);
      }
    }
    std::map<int, int> counts;  // of words, by element
    for (size_t g = 0; g < groups.size(); ++g) {
      Group& group = groups[g];
      group.end = g + 1 < groups.size() ? groups[g + 1].begin : text.size();
      while (group.end > group.begin + 1 && text[group.end - 1] == ' ') --group.end;
      if (sources == 0) continue;
      // Without an alignment, words are taken to keep their order.
      auto best = std::max_element(weights[g].begin(), weights[g].end());
      // A mark looks at the word before it, too: it stands for the same mark of the source, if there is one.
      float most = -1;
      for (int s = 0; group.is_mark && s < counted; ++s) {
        const bool is_same =
            source_offsets[s] < source.size() && source[source_offsets[s]] == text[group.begin];
        if (!is_same || weights[g][s] <= most) continue;
        most = weights[g][s];
        best = weights[g].begin() + s;
      }
      group.token = counted > 0 ? static_cast<int>(best - weights[g].begin())
                                : static_cast<int>(g * elements.size() / groups.size());
      group.element = elements[group.token];
      if (!group.is_mark) ++counts[group.element];
    }
    for (const Group& group : groups) {
      if (group.is_mark && sources > 0) {
        counts[group.element] = std::max(counts[group.element], 1);
      }
    }
    KeepElements(elements, weights, outside, &counts, &groups);
    return groups;
  }

  // An element that no word has got takes the one that looked at it most, from an element with several.
  static void KeepElements(const std::vector<int>& elements,
                           const std::vector<std::vector<float>>& weights, int outside,
                           std::map<int, int>* counts, std::vector<Group>* groups) {
    for (size_t s = 0; s < elements.size(); ++s) {
      if (elements[s] == outside || (*counts)[elements[s]] > 0) continue;
      Group* best = nullptr;
      float most = -1;
      for (size_t g = 0; g < groups->size(); ++g) {
        const Group& group = (*groups)[g];
        if (group.is_mark || (*counts)[group.element] < 2 || weights[g][s] <= most) continue;
        most = weights[g][s];
        best = &(*groups)[g];
      }
      if (best == nullptr) return;
      --(*counts)[best->element];
      best->element = elements[s];
      best->token = static_cast<int>(s);
      ++(*counts)[best->element];
    }
  }

  const Document& document_;
  const bool join_with_spaces_;
  std::string text_;
  int inside_ = 0;  // the innermost element that is written and has no end yet
  bool after_unit_ = false;
  std::vector<bool> was_written_;
  size_t most_repeated_;  // bytes of tags that may yet come again
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
