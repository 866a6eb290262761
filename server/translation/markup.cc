#include "server/translation/markup.h"

#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/interruption.h"
#include "unicode/utf8.h"

namespace sru::server::translation {
namespace {

constexpr size_t kLongestEntity = 40;  // HTML's have up to 33 bytes
constexpr size_t kTokensUntilAsked = 4096;

// Abseil's own type, where it is not the standard's.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

using Names = MarkupReader::Names;

// Elements without an end, and those whose content is not markup.
bool IsVoid(std::string_view name) {
  static const Names* const names =
      NamesIn("area base br col embed hr img input link meta param source track wbr");
  return names->count(name) > 0;
}
bool HasRawContent(std::string_view name) {
  static const Names* const names = NamesIn("iframe noembed noframes script style textarea xmp");
  return names->count(name) > 0;
}

// The elements that need no end tag, and the names of those that end them by their beginning.
const std::map<std::string, Names, std::less<>>& OptionalEnds() {
  const auto split = [](const char* names) -> Names { return absl::StrSplit(names, ' '); };
  static const auto* const ends = new std::map<std::string, Names, std::less<>>{
      {"dd", split("dd dt")},
      {"dt", split("dd dt")},
      {"li", split("li")},
      {"optgroup", split("optgroup")},
      {"option", split("optgroup option")},
      {"rp", split("rb rp rt rtc")},
      {"rt", split("rb rp rt rtc")},
      {"rtc", split("rb rtc")},
      {"p", split("address article aside blockquote center details dir div dl fieldset figcaption "
                  "figure footer form h1 h2 h3 h4 h5 h6 header hr main menu nav ol p pre section "
                  "table ul")},
      {"td", split("tbody td tfoot th tr")},
      {"th", split("tbody td tfoot th tr")},
      {"tr", split("tbody tfoot tr")}};
  return *ends;
}

// The end tag of these elements also ends what is open within them. Others do not, since end tags
// within a line may have no beginning.
bool HoldsOthers(std::string_view name) {
  static const Names* const names = NamesIn(
      "article aside blockquote body button center datalist details dir div dl fieldset figure "
      "footer form header html main menu nav object ol ruby section select table tbody template "
      "tfoot thead ul");
  return names->count(name) > 0 || OptionalEnds().count(name) > 0;
}

// These elements keep their inside apart: an li of a list within another li does not end that.
bool KeepsInside(std::string_view name) {
  static const Names* const names =
      NamesIn("button datalist dir dl menu object ol select table template ul");
  return names->count(name) > 0;
}

// True for elements of HTML that end with a tag <name .../>, as the elements within them do.
bool MayCloseItself(std::string_view name) { return name == "svg" || name == "math"; }

// The names of characters: those of HTML 4, of Latin Extended-A, of white space and of what has no
// width. Each run of names follows its first character: a hexadecimal number that begins with a
// digit.
constexpr char kNames[] =
    "0A0 nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg "
    "plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest "
    "Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute "
    "Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml "
    "Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc "
    "euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash "
    "ugrave uacute ucirc uuml yacute thorn yuml 391 Alpha Beta Gamma Delta Epsilon Zeta Eta "
    "Theta Iota Kappa Lambda Mu Nu Xi Omicron Pi Rho 3A3 Sigma Tau Upsilon Phi Chi Psi Omega 3B1 "
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "sigmaf sigma tau upsilon phi chi psi omega 100 Amacr amacr Abreve abreve Aogon aogon Cacute "
    "cacute Ccirc ccirc Cdot cdot Ccaron ccaron Dcaron dcaron Dstrok dstrok Emacr emacr 116 Edot "
    "edot Eogon eogon Ecaron ecaron Gcirc gcirc Gbreve gbreve Gdot gdot Gcedil 124 Hcirc hcirc "
    "Hstrok hstrok Itilde itilde Imacr imacr 12E Iogon iogon Idot imath IJlig ijlig Jcirc jcirc "
    "Kcedil kcedil 139 Lacute lacute Lcedil lcedil Lcaron lcaron Lmidot lmidot Lstrok lstrok "
    "Nacute nacute Ncedil ncedil Ncaron ncaron napos ENG eng Omacr omacr 150 Odblac odblac OElig "
    "oelig Racute racute Rcedil rcedil Rcaron rcaron Sacute sacute Scirc scirc Scedil scedil "
    "Scaron scaron Tcedil tcedil Tcaron tcaron Tstrok tstrok Utilde utilde Umacr umacr Ubreve "
    "ubreve Uring uring Udblac udblac Uogon uogon Wcirc wcirc Ycirc ycirc Yuml Zacute zacute "
    "Zdot zdot Zcaron zcaron 9 Tab NewLine 0A0 NonBreakingSpace 192 fnof 2C6 circ 2DC tilde 3D1 "
    "thetasym upsih 3D6 piv 2002 ensp emsp emsp13 emsp14 2007 numsp puncsp thinsp hairsp "
    "ZeroWidthSpace zwnj zwj lrm rlm 2009 ThinSpace VeryThinSpace NegativeThinSpace 200B "
    "NegativeMediumSpace 200B NegativeThickSpace 200B NegativeVeryThinSpace 205F MediumSpace "
    "NoBreak af it ic 205F ThickSpace 2061 ApplyFunction InvisibleTimes InvisibleComma 2013 "
    "ndash mdash 2018 lsquo rsquo sbquo 201C ldquo rdquo bdquo 2020 dagger Dagger bull 2026 "
    "hellip 2030 permil 2032 prime Prime 2039 lsaquo rsaquo 203E oline 2044 frasl 20AC euro 2111 "
    "image 2118 weierp 211C real 2122 trade 2135 alefsym 2190 larr uarr rarr darr harr 21B5 "
    "crarr 21D0 lArr uArr rArr dArr hArr 2200 forall 2202 part exist 2205 empty 2207 nabla isin "
    "notin 220B ni 220F prod 2211 sum minus 2217 lowast 221A radic 221D prop infin 2220 ang 2227 "
    "and or cap cup int 2234 there4 223C sim 2245 cong 2248 asymp 2260 ne equiv 2264 le ge 2282 "
    "sub sup nsub 2286 sube supe 2295 oplus 2297 otimes 22A5 perp 22C5 sdot 2308 lceil rceil "
    "lfloor rfloor 25CA loz 2660 spades 2663 clubs 2665 hearts diams 27E8 lang rang";
// HTML takes the numbers from 128 to 159 for those of Windows-1252. 0: the number itself.
constexpr uint16_t kWindows1252[] = {0x20AC, 0,      0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                     0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0,      0x17D,  0,
                                     0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0,      0x17E,  0x178};

const std::map<std::string, uint32_t, std::less<>>& Entities(bool is_xml) {
  using Table = std::map<std::string, uint32_t, std::less<>>;
  static const auto* const xml =
      new Table{{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  static const Table* const html = [] {
    auto* const table = new Table(*xml);
    uint32_t character = 0;
    for (const absl::string_view word : absl::StrSplit(kNames, ' ')) {
      if (absl::ascii_isdigit(word[0])) {
        (void)absl::SimpleHexAtoi(word, &character);
      } else {
        table->emplace(word, character++);
      }
    }
    return table;
  }();
  return is_xml ? *xml : *html;
}

// 0: none.
uint32_t CharacterOf(std::string_view name, bool is_xml) {
  absl::string_view digits = View(name);
  if (absl::ConsumePrefix(&digits, "#")) {
    uint32_t number = 0;
    const bool is_hex = absl::ConsumePrefix(&digits, "x") || absl::ConsumePrefix(&digits, "X");
    const bool good =
        is_hex ? absl::SimpleHexAtoi(digits, &number) : absl::SimpleAtoi(digits, &number);
    const bool is_space = number == '\t' || number == '\n' || number == '\r';
    if (!good || (number < 0x20 && !is_space) || !U_IS_UNICODE_CHAR(number)) return 0;
    const uint32_t other =
        !is_xml && number >= 0x80 && number < 0xA0 ? kWindows1252[number - 0x80] : 0;
    return other != 0 ? other : number;
  }
  const auto found = Entities(is_xml).find(name);
  return found == Entities(is_xml).end() ? 0 : found->second;
}

// True if browsers know the entity without its semicolon, too: numbers, Latin-1's names, and amp,
// lt, gt and quot.
bool NeedsNoSemicolon(std::string_view name) {
  const uint32_t character = CharacterOf(name, /*is_xml=*/false);
  return character != 0 && (name[0] == '#' || (character > ' ' && character <= 0xFF &&
                                               name != "apos" && name != "NonBreakingSpace"));
}

// The size of the entity without its semicolon, with which `start` begins.
size_t SizeOfEntity(std::string_view start) {
  const bool is_number = start.size() > 1 && start[1] == '#';
  const bool is_hex = is_number && start.size() > 2 && (start[2] == 'x' || start[2] == 'X');
  size_t size = is_hex ? 3 : is_number ? 2 : 1;
  const auto belongs = [&](char c) {
    return is_hex      ? absl::ascii_isxdigit(c)
           : is_number ? absl::ascii_isdigit(c)
                       : absl::ascii_isalnum(c);
  };
  while (size < start.size() && belongs(start[size])) ++size;
  return size;
}

void AppendCharacter(uint32_t character, std::string* text) {
  uint8_t bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, character);
  text->append(reinterpret_cast<const char*>(bytes), size);
}

bool StartsName(char c) { return absl::ascii_isalpha(c) || c == '_' || (c & 0x80) != 0; }
bool EndsName(char c) { return absl::ascii_isspace(c) || c == '/' || c == '>'; }

}  // namespace

bool MarkupReader::Next(MarkupToken* token) {
  if (at_ == markup_.size()) return false;
  if (++tokens_ % kTokensUntilAsked == 0 && Interruption::Asked()) return false;
  const size_t begin = at_;
  *token = MarkupToken();
  if (markup_[at_] == '&') {
    ReadEntity(token);
  } else if (markup_[at_] != '<' || !ReadTag(token)) {
    ReadText(token);
  }
  token->raw = markup_.substr(begin, at_ - begin);
  return true;
}

std::string_view MarkupReader::SkipElement(const MarkupToken& open) {
  const auto begin = static_cast<size_t>(open.raw.data() - markup_.data());
  if (!is_xml_ && HasRawContent(open.name)) {
    const std::string end = "</" + open.name;
    while (at_ < markup_.size() &&
           !(markup_[at_] == '<' &&
             absl::EqualsIgnoreCase(View(markup_.substr(at_, end.size())), end))) {
      ++at_;
    }
    at_ = EndOf(">", at_);
  } else {
    const size_t open_before = open_foreign_ - (!is_xml_ && MayCloseItself(open.name) ? 1 : 0);
    const auto ends = OptionalEnds().find(open.name);
    MarkupToken token;
    size_t depth = 1;
    if (!is_xml_ && ends != OptionalEnds().end()) {
      SkipOptionalEnd(open, ends->second);
      depth = 0;
    }
    while (depth > 0 && Next(&token)) {
      const bool is_open = token.kind == MarkupToken::Kind::kOpen;
      if (!is_xml_ && is_open && HasRawContent(token.name)) SkipElement(token);
      if (token.name != open.name) continue;
      if (is_open) ++depth;
      if (token.kind == MarkupToken::Kind::kClose) --depth;
    }
    open_foreign_ = open_before;
  }
  return markup_.substr(begin, at_ - begin);
}

void MarkupReader::SkipOptionalEnd(const MarkupToken& open, const Names& ends) {
  std::vector<std::string> inside;           // open elements that hold others
  std::map<std::string, size_t> open_names;  // of them
  size_t keeping = 0;                        // those of KeepsInside()
  const auto close = [&](const std::string& name) {
    while (true) {
      const std::string last = std::move(inside.back());
      inside.pop_back();
      --open_names[last];
      if (KeepsInside(last)) --keeping;
      if (last == name) return;
    }
  };
  MarkupToken token;
  for (size_t begin = at_; Next(&token); begin = at_) {
    using Kind = MarkupToken::Kind;
    const bool begins = token.kind == Kind::kOpen || token.kind == Kind::kEmpty;
    if (begins && keeping == 0 && ends.count(token.name) > 0) {
      at_ = begin;
      return;
    }
    if (token.kind == Kind::kOpen && HasRawContent(token.name)) SkipElement(token);
    if (!HoldsOthers(token.name)) continue;
    if (token.kind == Kind::kOpen) {
      inside.push_back(token.name);
      ++open_names[token.name];
      if (KeepsInside(token.name)) ++keeping;
    } else if (token.kind == Kind::kClose && open_names[token.name] > 0) {
      close(token.name);
    } else if (token.kind == Kind::kClose && (token.name != "p" || open.name == "p")) {
      if (token.name != open.name) at_ = begin;
      return;
    }
  }
}

void MarkupReader::ReadText(MarkupToken* token) {
  // The first character may be a < that begins no tag.
  const size_t end = markup_.find_first_of("<&", at_ + 1);
  const size_t begin = at_;
  at_ = end == std::string_view::npos ? markup_.size() : end;
  token->text = std::string(markup_.substr(begin, at_ - begin));
}

void MarkupReader::ReadEntity(MarkupToken* token) {
  const std::string_view start = markup_.substr(at_, kLongestEntity);
  const size_t size = SizeOfEntity(start);
  // Addresses such as a?b=1&copy=2 stay as they are.
  const bool may_be_address = start.size() > 1 && start[1] != '#';
  if (!is_xml_ &&
      (size == start.size() || (start[size] != ';' && !(may_be_address && start[size] == '='))) &&
      NeedsNoSemicolon(start.substr(1, size - 1))) {
    AppendCharacter(CharacterOf(start.substr(1, size - 1), is_xml_), &token->text);
    at_ += size;
    return;
  }
  const size_t semicolon = start.find(';');
  const std::string_view name =
      start.substr(1, semicolon == std::string_view::npos ? 0 : semicolon - 1);
  // A lone & is a character.
  if (name.empty() || name.find_first_of("& <>\"'\n") != std::string_view::npos) {
    return ReadText(token);
  }
  at_ += semicolon + 1;
  const uint32_t character = CharacterOf(name, is_xml_);
  if (character == 0) {
    token->kind = MarkupToken::Kind::kRaw;
  } else {
    AppendCharacter(character, &token->text);
  }
}

size_t MarkupReader::EndOf(std::string_view what, size_t from) const {
  const size_t found = markup_.find(what, from);
  return found == std::string_view::npos ? markup_.size() : found + what.size();
}

size_t MarkupReader::EndOfComment() const {
  size_t at = at_ + 2;  // those of the beginning may be those of the end, too
  for (; (at = markup_.find("--", at)) != std::string_view::npos; ++at) {
    const absl::string_view rest = View(markup_.substr(at));
    if (absl::StartsWith(rest, "-->")) return at + 3;
    if (!is_xml_ && at >= at_ + 4 && absl::StartsWith(rest, "--!>")) return at + 4;
  }
  return markup_.size();
}

size_t MarkupReader::EndOfType() const {
  bool in_subset = false;
  for (size_t at = at_; at < markup_.size();) {
    const absl::string_view rest = View(markup_.substr(at));
    if (rest[0] == '>' && !in_subset) return at + 1;
    if (rest[0] == '[' || rest[0] == ']') in_subset = rest[0] == '[';
    if (absl::StartsWith(rest, "<!--")) {
      at = EndOf("-->", at);
    } else if (absl::StartsWith(rest, "<?")) {
      at = EndOf("?>", at);
    } else {
      at = rest[0] == '"' || rest[0] == '\'' ? EndOf(markup_.substr(at, 1), at + 1) : at + 1;
    }
  }
  return markup_.size();
}

size_t MarkupReader::EndOfDeclaration() const {
  const absl::string_view rest = View(markup_.substr(at_));
  if (absl::StartsWith(rest, "<!--")) return EndOfComment();
  if ((is_xml_ || open_foreign_ > 0) && absl::StartsWith(rest, "<![CDATA["))
    return EndOf("]]>", at_);
  if (is_xml_ && rest[1] == '?') return EndOf("?>", at_);
  const size_t end = EndOf(">", at_);
  // Browsers end every type of a document there. One with declarations of its own stays
  // well-formed.
  const bool has_subset = absl::StrContains(rest.substr(0, end - at_), '[');
  return absl::StartsWithIgnoreCase(rest, "<!DOCTYPE") && (is_xml_ || has_subset) ? EndOfType()
                                                                                  : end;
}

size_t MarkupReader::ReadAttributes(size_t at, MarkupToken* token) const {
  const auto skip = [&](auto test) {
    const size_t begin = at;
    while (at < markup_.size() && test(markup_[at])) ++at;
    return markup_.substr(begin, at - begin);
  };
  const auto is_space = [](char c) { return absl::ascii_isspace(c); };
  while (true) {
    skip([](char c) { return absl::ascii_isspace(c) || c == '/'; });
    if (at == markup_.size() || markup_[at] == '>') return at;
    const size_t begin = at++;
    skip([](char c) { return !EndsName(c) && c != '='; });
    const std::string_view name = markup_.substr(begin, at - begin);
    skip(is_space);
    if (at == markup_.size() || markup_[at] != '=') continue;
    ++at;
    skip(is_space);
    std::string_view value;
    if (at < markup_.size() && (markup_[at] == '"' || markup_[at] == '\'')) {
      const char quote = markup_[at++];
      value = skip([quote](char c) { return c != quote; });
      if (at++ == markup_.size()) return std::string_view::npos;
    } else {
      value = skip([](char c) { return !absl::ascii_isspace(c) && c != '>'; });
    }
    if (absl::EqualsIgnoreCase(View(name), "translate")) {
      token->is_not_translated |= absl::EqualsIgnoreCase(View(value), "no");
      token->is_translated |= absl::EqualsIgnoreCase(View(value), "yes");
    } else if (absl::EqualsIgnoreCase(View(name), "class")) {
      for (const absl::string_view word :
           absl::StrSplit(View(value), absl::ByAnyChar(" \t\r\n\f"))) {
        token->is_not_translated |= word == "notranslate";
      }
    }
  }
}

bool MarkupReader::ReadTag(MarkupToken* token) {
  const std::string_view rest = markup_.substr(at_);
  if (rest.size() < 2) return false;
  if (rest[1] == '!' || rest[1] == '?') {
    token->kind = MarkupToken::Kind::kRaw;
    at_ = EndOfDeclaration();
    return true;
  }
  const bool is_close = rest[1] == '/';
  const size_t name_begin = is_close ? 2 : 1;
  if (!has_tags_ || rest.size() <= name_begin || !StartsName(rest[name_begin])) return false;
  size_t end = name_begin;
  while (end < rest.size() && !EndsName(rest[end])) ++end;
  const std::string_view name = rest.substr(name_begin, end - name_begin);
  const size_t tag_end = ReadAttributes(at_ + end, token);
  if (tag_end >= markup_.size()) {
    has_tags_ = false;
    *token = MarkupToken();
    if (tag_end == markup_.size()) return false;
    token->kind = MarkupToken::Kind::kRaw;  // it is not known what of the rest is a tag
    at_ = markup_.size();
    return true;
  }
  end = tag_end - at_;
  at_ += end + 1;
  token->name = is_xml_ ? std::string(name) : absl::AsciiStrToLower(View(name));
  const bool is_foreign = !is_xml_ && MayCloseItself(token->name);
  const bool may_close_itself = is_xml_ || is_foreign || open_foreign_ > 0;
  if (is_close) {
    token->kind = MarkupToken::Kind::kClose;
    if (is_foreign && open_foreign_ > 0) --open_foreign_;
  } else if ((may_close_itself && rest[end - 1] == '/') || (!is_xml_ && IsVoid(token->name))) {
    token->kind = MarkupToken::Kind::kEmpty;
  } else {
    token->kind = MarkupToken::Kind::kOpen;
    if (is_foreign) ++open_foreign_;
  }
  return true;
}

const Names* NamesIn(const char* names) { return new Names(absl::StrSplit(names, ' ')); }

void AppendEscaped(std::string_view text, std::string* markup) {
  *markup += absl::StrReplaceAll(View(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace sru::server::translation
