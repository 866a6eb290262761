#include "server/translation/document.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/interruption.h"

namespace sru::server::translation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Translates into capitals; in `reversed` order if it is asked to. Its pieces are words, each
// aligned with the one that it was made from.
v1::Translation Capitals(const std::string& text, bool reversed) {
  v1::Translation translation;
  v1::Hypothesis* const hypothesis = translation.add_hypotheses();
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  const auto count = words.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t source = reversed ? count - 1 - i : i;
    translation.add_source_tokens(absl::StrCat("\xE2\x96\x81", words[i]));
    const std::string word = absl::AsciiStrToUpper(words[source]);
    hypothesis->add_tokens(absl::StrCat("\xE2\x96\x81", word));
    absl::StrAppend(hypothesis->mutable_text(), i == 0 ? "" : " ", word);
    for (size_t s = 0; s < count; ++s) hypothesis->add_alignment(s == source ? 0.9f : 0.01f);
  }
  return translation;
}

// The pieces of a translation as tokenizers make them; each looks at the piece of the source in its
// place.
v1::Translation OfPieces(const std::vector<std::string>& source,
                         const std::vector<std::string>& target) {
  v1::Translation translation;
  v1::Hypothesis* const hypothesis = translation.add_hypotheses();
  std::string text;
  for (const std::string& piece : source) translation.add_source_tokens(piece);
  for (size_t i = 0; i < target.size(); ++i) {
    hypothesis->add_tokens(target[i]);
    absl::StrAppend(&text, absl::StrReplaceAll(target[i], {{"\xE2\x96\x81", " "}}));
    for (size_t s = 0; s < source.size(); ++s) hypothesis->add_alignment(s == i ? 0.6f : 0.1f);
  }
  hypothesis->set_text(text.substr(1));
  return translation;
}

class DocumentTest : public ::testing::Test {
 protected:
  DocumentTest() { rules_.format = TextFormat::kHtml; }

  absl::StatusOr<std::unique_ptr<const Document>> ParseAny(const std::string& text) {
    return Document::Parse(
        text, rules_,
        [](std::string_view part, Splitting splitting) {
          return SplitSentences(part, "en", splitting);
        },
        [this](int64_t bytes) {
          reserved_ += bytes;
          return reserved_ <= most_ ? absl::OkStatus() : absl::ResourceExhaustedError("memory");
        });
  }
  std::unique_ptr<const Document> Parse(const std::string& text) {
    auto document = ParseAny(text);
    EXPECT_TRUE(document.ok()) << document.status();
    return document.ok() ? *std::move(document) : nullptr;
  }
  std::string Translate(const std::string& text, bool reversed = false, bool spaces = false) {
    const std::unique_ptr<const Document> document = Parse(text);
    std::vector<v1::Translation> translations;
    for (const Document::Unit& unit : document->units()) {
      translations.push_back(Capitals(unit.text, reversed));
    }
    const std::string assembled = *document->Assemble(translations, spaces);
    EXPECT_LE(2 * static_cast<int64_t>(assembled.size()), document->AnswerBytes(translations));
    return assembled;
  }
  std::vector<std::string> Units(const std::string& text) {
    std::vector<std::string> units;
    const std::unique_ptr<const Document> document = Parse(text);
    for (const Document::Unit& unit : document->units()) units.push_back(unit.text);
    return units;
  }

  TextRules rules_;
  int64_t most_ = int64_t{1} << 40;
  int64_t reserved_ = 0;
};

TEST_F(DocumentTest, PlainTextKeepsItsWhiteSpace) {
  rules_.format = TextFormat::kPlain;
  EXPECT_EQ(Translate("  One <b>.\n\n\tTwo & a half!  Three\r\n"),
            "  ONE <B>.\n\n\tTWO & A HALF!  THREE\r\n");
  EXPECT_EQ(Translate(" \n "), " \n ");
  EXPECT_EQ(Translate(""), "");
}

TEST_F(DocumentTest, UnitsWithoutSpaceBetweenThemGetOneIfTheTargetWritesIt) {
  rules_.format = TextFormat::kPlain;
  const std::string text =
      "a\xE3\x80\x82"
      "b\xE3\x80\x82";
  EXPECT_EQ(Translate(text, false, true), "A\xE3\x80\x82 B\xE3\x80\x82");
  EXPECT_EQ(Translate(text, false, false),
            "A\xE3\x80\x82"
            "B\xE3\x80\x82");
}

TEST_F(DocumentTest, BlocksEndSentences) {
  EXPECT_THAT(Units("<h1>a title</h1><p>some <b>text</b>\nthat. More<br>lines</p> rest"),
              ElementsAre("a title", "some text that.", "More", "lines", "rest"));
  EXPECT_EQ(Translate("<ul>\n <li>one</li>\n <li>two</li></ul>"),
            "<ul>\n <li>ONE</li>\n <li>TWO</li></ul>");
}

TEST_F(DocumentTest, TagsFollowTheWords) {
  EXPECT_EQ(Translate("<p>the <b>big red</b> dog</p>"), "<p>THE <b>BIG RED</b> DOG</p>");
  EXPECT_EQ(Translate("the <b>big red</b> dog", true), "DOG <b>RED BIG</b> THE");
  EXPECT_EQ(Translate("<a href=\"x\">all of it</a>", true), "<a href=\"x\">IT OF ALL</a>");
  EXPECT_EQ(Translate("<b>one</b> two <i>three</i>", true), "<i>THREE</i> TWO <b>ONE</b>");
  EXPECT_EQ(Translate("<b>one <i>two</i></b> three", true), "THREE <b><i>TWO</i> ONE</b>");
  // Elements go over sentences.
  EXPECT_EQ(Translate("<b>One. Two</b> three."), "<b>ONE. TWO</b> THREE.");
  EXPECT_EQ(Translate("<b><p>one</p><p>two</b> three</p>"), "<b><p>ONE</p><p>TWO</b> THREE</p>");
}

TEST_F(DocumentTest, EmptyElementsStandBeforeTheirWord) {
  EXPECT_EQ(Translate("see <img src=x> here", true), "<img src=x> HERE SEE");
  EXPECT_EQ(Translate("see <i class=\"icon\"></i> here"), "SEE <i class=\"icon\"></i> HERE");
  EXPECT_EQ(Translate("one<!-- note --> two"), "ONE<!-- note --> TWO");
  EXPECT_EQ(Translate("see <i class=\"icon\"> </i> here"), "SEE <i class=\"icon\"> </i> HERE");
  EXPECT_EQ(Translate("one<b> </b>two <i>\n</i>"), "ONE<b> </b>TWO <i>\n</i>");
}

TEST_F(DocumentTest, WhatStandsBetweenTwoWordsIsASpaceForTheModel) {
  const auto check = [this](const std::string& thing, bool parts) {
    EXPECT_THAT(Units(absl::StrCat("one", thing, "two")), ElementsAre(parts ? "one two" : "onetwo"))
        << thing;
    EXPECT_EQ(Units(absl::StrCat("One.", thing, "Two")).size(), parts ? 2 : 1) << thing;
    if (!parts) return;
    EXPECT_EQ(Translate(absl::StrCat("one", thing, "two")), absl::StrCat("ONE", thing, "TWO"));
    EXPECT_EQ(Translate(absl::StrCat("One.", thing, "Two")), absl::StrCat("ONE.", thing, "TWO"));
  };
  for (const char* const thing :
       {"<img src=x>", "<input>", "<embed src=x>", "&unknown;", "<i></i>", "<i> </i>",
        "<b><img></b>", "<code>f</code>", "<textarea>x</textarea>", "<svg><a/></svg>",
        "<q translate=no>x</q>", "<my-icon></my-icon>", "<picture><source><img></picture>",
        "<?php f() ?>", "<img><input>", "<i><!-- --></i>", "<script></script><img>"}) {
    check(thing, true);
  }
  for (const char* const thing :
       {"<!-- x -->", "<script>x</script>", "<style>x</style>", "<wbr>", "<!>", "<rt>x</rt>"}) {
    check(thing, false);
  }
  rules_.format = TextFormat::kXml;
  rules_.ignored_tags = {"ph"};
  for (const char* const thing : {"<br/>", "<ph>%s</ph>", "<ph id='1'></ph>", "<?x y?>", "&nbsp;",
                                  "<![CDATA[x]]>", "<x></x>"}) {
    check(thing, true);
  }
  check("<!-- x -->", false);
}

TEST_F(DocumentTest, NoMarkIsPartedFromItsWord) {
  EXPECT_THAT(
      Units("(<img>one<img>, two<img>.) <code>x</code>s non-<img>three<img>% four<img>\u2026"),
      ElementsAre("(one, two.) s non-three% four\u2026"));
  EXPECT_EQ(Translate("one<img>, two<img>."), "ONE,<img> TWO.<img>") << "within a piece: behind it";
}

TEST_F(DocumentTest, AnEndTagBeforeAStartTagIsASpaceForTheModel) {
  EXPECT_EQ(Translate("<a>one</a><a>two</a> <b><i>a</i></b><!-- --><u>b</u>"),
            "<a>ONE</a><a>TWO</a> <b><i>A</i></b><!-- --><u>B</u>");
  EXPECT_THAT(Units("<a>one</a><a>two</a> <b><i>a</i></b><!-- --><u>b</u>"),
              ElementsAre("one two a b"));
  EXPECT_EQ(Translate("<a>one two</a><b>three</b>", true), "<b>THREE</b> <a>TWO ONE</a>");
  EXPECT_EQ(Translate("<a>One.</a><a>Two.</a>"), "<a>ONE.</a><a>TWO.</a>");
  EXPECT_THAT(Units("un<b>believ</b>able <b>a</b>b<i>c</i>"), ElementsAre("unbelievable abc"));
}

TEST_F(DocumentTest, AnElementWithinAWordSurvives) {
  EXPECT_EQ(Translate("a skate<a href=x>board</a>."), "A <a href=x>SKATEBOARD.</a>");
  EXPECT_EQ(Translate("skate<a href=x>board</a>"), "<a href=x>SKATEBOARD</a>");
  EXPECT_EQ(Translate("<b>skate<a href=x>board</a></b>"), "<b><a href=x>SKATEBOARD</a></b>");
  // There is one word for two of them.
  EXPECT_EQ(Translate("a<b>b</b>c<i id=x>d</i> e"), "<b>ABCD</b><i id=x></i> E");
  const std::string b = "\xE2\x96\x81";
  const std::unique_ptr<const Document> document = Parse("a skate<a>board</a> runs");
  EXPECT_EQ(*document->Assemble({OfPieces({b + "a", b + "skate", "board", b + "runs"},
                                          {b + "ein", b + "Brett", "chen", b + "rennt"})},
                                false),
            "ein <a>Brettchen</a> rennt");
}

TEST_F(DocumentTest, ReadingsOfWordsAreLeftAlone) {
  EXPECT_EQ(Translate("<ruby>dog<rp>(</rp><rt>inu</rt><rp>)</rp></ruby> runs", true),
            "RUNS <ruby>DOG<rp>(</rp><rt>inu</rt><rp>)</rp></ruby>");
  EXPECT_EQ(Translate("a <ruby>b<rt>x<rt>y</ruby> c"), "A <ruby>B<rt>x<rt>y</ruby> C");
  EXPECT_THAT(Units("<ruby><rb>a</rb><rb>b</rb><rtc><rt>x</rt></rtc></ruby><ruby>c<rp>(<rt>y<rp>)"
                    "</ruby>d"),
              ElementsAre("abcd"));
}

TEST_F(DocumentTest, WhatSaysThatItIsTranslatedIs) {
  EXPECT_EQ(
      Translate("<div translate=no>a <b translate=yes>one <i translate=no>x</i></b> b</div>two"),
      "<div translate=no>a <b translate=yes>ONE <i translate=no>x</i></b> b</div>TWO");
  EXPECT_EQ(Translate("one <b translate=no>x <i translate='YES'>two</i></b>, three"),
            "ONE <b translate=no>x <i translate='YES'>TWO</i></b>, THREE");
  const std::string code =
      "<p translate=no><script>'<b translate=yes>x</b></p>'</script>"
      "<code translate=yes>x</code></p>";
  EXPECT_EQ(Translate(code + "one"), code + "ONE");
}

TEST_F(DocumentTest, TagsKeepTheirCase) {
  EXPECT_EQ(Translate("<B>one</B> <SPAN ID=x>two</SPAN>"), "<B>ONE</B> <SPAN ID=x>TWO</SPAN>");
}

TEST_F(DocumentTest, CommentsDeclarationsAndInstructionsEndWhereTheyDo) {
  const auto check = [this](const std::string& raw) {
    EXPECT_EQ(Translate(raw + "one"), raw + "ONE");
  };
  for (const char* const raw :
       {"<!-- a > b --!>", "<!-- a -- b -->", "<!-->", "<!--->", "<!--!-->", "<!----!>",
        "<!DOCTYPE html>", "<!doctype html [<!ENTITY a \"]>\">]>", "<?a>"}) {
    check(raw);
  }
  rules_.format = TextFormat::kXml;
  for (const char* const raw :
       {"<?php if (2 > 1) { ?>", "<?a >?>",
        "<!DOCTYPE a [\n<!ENTITY b \"x]y\">\n<!ENTITY c 'z'>\n]>",
        "<!DOCTYPE a [<!-- it's ]> --><?p ]>\" ?><!ELEMENT a (#PCDATA)>] >",
        "<!DOCTYPE a PUBLIC \"[x>\" '>]'>", "<!DOCTYPE a [%b;]>", "<!-- --!> -->"}) {
    check(raw);
  }
  EXPECT_EQ(Translate("one <!DOCTYPE a [ two"), "ONE <!DOCTYPE a [ two");
}

TEST_F(DocumentTest, BehindAQuotationMarkWithoutASecondOneNothingChanges) {
  EXPECT_EQ(Translate("one <a href=\"x>two</a> <b>three</b> &amp;"),
            "ONE <a href=\"x>two</a> <b>three</b> &amp;");
}

TEST_F(DocumentTest, CodeAndScriptsAreLeftAlone) {
  EXPECT_EQ(Translate("call <code>f(<b>x</b>)</code> now"), "CALL <code>f(<b>x</b>)</code> NOW");
  EXPECT_EQ(Translate("<script>if (a < b) \"</p>\"</SCRIPT >text<style>p{}</style>"),
            "<script>if (a < b) \"</p>\"</SCRIPT >TEXT<style>p{}</style>");
  EXPECT_EQ(Translate("<div translate=\"no\">name <div>x</div></div><p>text</p>"),
            "<div translate=\"no\">name <div>x</div></div><p>TEXT</p>");
  EXPECT_EQ(Translate("text <script>never ends"), "TEXT <script>never ends");
  EXPECT_EQ(Translate("<p class='a notranslate'>x</p><p TRANSLATE = No>x</p>"),
            "<p class='a notranslate'>x</p><p TRANSLATE = No>x</p>");
  EXPECT_EQ(Translate("<a href=/notranslate/ title='translate=\"no\"' class=notranslate2>x</a>"),
            "<a href=/notranslate/ title='translate=\"no\"' class=notranslate2>X</a>");
}

TEST_F(DocumentTest, ElementsThatNeedNoEndTagAreLeftAloneUpToTheirEnd) {
  const auto check = [this](const std::string& text, const std::vector<std::string>& units) {
    EXPECT_THAT(Units(text), ::testing::ElementsAreArray(units)) << text;
    EXPECT_EQ(absl::AsciiStrToLower(Translate(text)), text);
  };
  check("<ul><li class=notranslate>a<li>b</ul><p>c</p>", {"b", "c"});
  check("<ul><li>b<li class=notranslate>a</ul><p>c</p>", {"b", "c"});
  check("<ul><li class=notranslate>a<ul><li>x<li>y</ul>z</li><li>b</ul>", {"b"});
  check("<ol><li class=notranslate><div>a</p>b</div>c<li>d</ol>", {"d"});
  check("<div><p class=notranslate>a</div>b", {"b"});
  check("<p class=notranslate>a <b>x</b><p>b</p>", {"b"});
  check("<p class=notranslate>a<h2>b</h2>", {"b"});
  check("<p class=notranslate>a<hr>b", {"b"});
  check("<p class=notranslate>a</p>b", {"b"});
  check("<table><tr><td class=notranslate>a<table><tr><td>x</table><td>b<tr><th>c</table>",
        {"b", "c"});
  check("<table><tr class=notranslate><td>a<td>x<tr><td>b</table>c", {"b", "c"});
  check("<dl><dt class=notranslate>a<dd>b<dd class=notranslate>x</dl>c", {"b", "c"});
  check("<select><option class=notranslate>a<option>b</select>c", {"b", "c"});
  check("<li class=notranslate>a", {});
  check("<ul><li class=notranslate><script>\"<li></ul>\"</script>a<li>b</ul>", {"b"});
  rules_.format = TextFormat::kXml;
  rules_.ignored_tags = {"li"};
  check("<a><li>x<li>y</li></li><p>b</p></a>", {"b"});
}

TEST_F(DocumentTest, PicturesAndFormulasMayCloseThemselves) {
  EXPECT_EQ(Translate("one <svg/> two <math class=\"x\" /> three"),
            "ONE <svg/> TWO <math class=\"x\" /> THREE");
  EXPECT_THAT(Units("one <svg/> two"), ElementsAre("one  two"));
  EXPECT_EQ(Translate("<svg>a<svg/>b</svg> one"), "<svg>a<svg/>b</svg> ONE");
  EXPECT_EQ(Translate("<a translate=no><svg><a/></svg>x</a> one"),
            "<a translate=no><svg><a/></svg>x</a> ONE");
  // Other elements of HTML don't, nor do those behind an element in which one has no end.
  EXPECT_EQ(Translate("<div translate=no><svg></div><b/>one</b> two"),
            "<div translate=no><svg></div><b/>ONE</b> TWO");
  EXPECT_EQ(Translate("<b translate=no>x<b/>y</b> one</b> two"),
            "<b translate=no>x<b/>y</b> one</b> TWO");
  EXPECT_EQ(Translate("<svg></svg><code/>f</code> one"), "<svg></svg><code/>f</code> ONE");
}

TEST_F(DocumentTest, BlocksThatAreLeftAloneEndSentences) {
  EXPECT_THAT(Units("Text one<div translate=\"no\">X</div>Text two"),
              ElementsAre("Text one", "Text two"));
  EXPECT_EQ(Translate("one<p class=notranslate>x <b>y</b></p>two"),
            "ONE<p class=notranslate>x <b>y</b></p>TWO");
  EXPECT_THAT(Units("one <span translate=no>x</span> two"), ElementsAre("one  two"));
  EXPECT_THAT(Units("one <code>x</code> two"), ElementsAre("one  two"));
  EXPECT_THAT(Units("a. <pre translate=no>x</pre>one\ntwo"), ElementsAre("a.", "one two"));
  rules_.ignored_tags = {"div", "code"};
  EXPECT_THAT(Units("one<div>x</div>two <code>y</code> three"), ElementsAre("one", "two  three"));
  rules_.splitting_tags = {"code"};
  EXPECT_THAT(Units("one <code>y</code> two"), ElementsAre("one", "two"));
  rules_.format = TextFormat::kXml;
  EXPECT_THAT(Units("<doc><p>one</p><div>x</div><p>two</p></doc>"), ElementsAre("one", "two"));
}

TEST_F(DocumentTest, EntitiesWithoutASemicolon) {
  EXPECT_THAT(Units("a&nbsp&copy b &amp c &lt d &eacute, &AElig"),
              ElementsAre("a\xC2\xA0\xC2\xA9 b & c < d \xC3\xA9, \xC3\x86"));
  EXPECT_EQ(Translate("a &amp b; c"), "A &amp; B; C");
  EXPECT_EQ(Translate("a?b&copy=c &notit &alpha &apos d"),
            "A?B&amp;COPY=C &amp;NOTIT &amp;ALPHA &amp;APOS D");
  rules_.format = TextFormat::kXml;
  EXPECT_EQ(Translate("a &amp b"), "A &amp;AMP B");
}

TEST_F(DocumentTest, GreekLettersAreEntities) {
  EXPECT_THAT(Units("a &Alpha;&Rho;&Sigma;&Omega; &alpha;&rho;&sigmaf;&sigma;&omega;"),
              ElementsAre("a ΑΡΣΩ αρςσω"));
}

TEST_F(DocumentTest, WhiteSpaceMayBeAnEntity) {
  EXPECT_THAT(Units("one&#10;two&#x9;three&#13;four&Tab;five&NewLine;six"),
              ElementsAre("one two\tthree four\tfive six"));
  EXPECT_EQ(Translate("<p>one.&#10;</p>&Tab two &#1;"), "<p>ONE.\n</p>&amp;TAB TWO &#1;");
  rules_.format = TextFormat::kXml;
  EXPECT_THAT(Units("one&#10;two"), ElementsAre("one", "two"));
  EXPECT_EQ(Translate("one&#9;two&Tab;"), "ONE\tTWO&Tab;");
}

TEST_F(DocumentTest, WhiteSpaceOfHtml5IsAnEntity) {
  EXPECT_THAT(
      Units("a&emsp13;b&numsp;c&puncsp;d&hairsp;e&MediumSpace;f&NonBreakingSpace;g&ThinSpace;h"),
      ElementsAre("a\u2004b\u2007c\u2008d\u200Ae\u205Ff\u00A0g\u2009h"));
  EXPECT_THAT(Units("a&ZeroWidthSpace;b&NoBreak;c&InvisibleComma;d&NonBreakingSpace e"),
              ElementsAre("a\u200Bb\u2060c\u2063d&NonBreakingSpace e"));
}

TEST_F(DocumentTest, SymbolsAreEntities) {
  EXPECT_THAT(
      Units("a &fnof;&circ;&tilde; &thetasym;&upsih;&piv; &bull;&prime;&Prime;&oline;&frasl; "
            "&larr;&rarr;&harr;&crarr;&hArr; &part;&isin;&notin;&sum;&minus;&infin; &ne;&le;&ge; "
            "&rfloor;"
            "&lang;&rang;&loz; &hearts;&diams;&euro;&permil;&lrm;b&ensp;c"),
      ElementsAre("a ƒˆ˜ ϑϒϖ •′″‾⁄ "
                  "←→↔↵⇔ ∂∈∉∑−∞ ≠≤≥ ⌋"
                  "⟨⟩◊ ♥♦€‰‎b c"));
}

TEST_F(DocumentTest, EntitiesAreDecodedForTheModel) {
  EXPECT_THAT(Units("a &lt; b &amp;&nbsp;caf&eacute; &#x41;&#66; &hellip;"),
              ElementsAre("a < b &\xC2\xA0"
                          "caf\xC3\xA9 AB \xE2\x80\xA6"));
  EXPECT_EQ(Translate("a &lt; b &amp; c > d"), "A &lt; B &amp; C &gt; D");
  EXPECT_THAT(Units("Wroc&lstrok;aw &Amacr;&emacr; &Edot;&Gcedil; &Hcirc;&imacr; &Iogon;&kcedil; "
                    "&Lacute;&omacr; &Odblac;&zcaron; a&zwnj;b"),
              ElementsAre("Wroc\u0142aw \u0100\u0113 \u0116\u0122 \u0124\u012B \u012E\u0137 "
                          "\u0139\u014D \u0150\u017E a\u200Cb"));
  // Numbers mean what they do in browsers: Windows-1252, and without a semicolon, too.
  EXPECT_THAT(Units("don&#146;t caf&#233 &#xE9; &#x80 &#129;!"),
              ElementsAre("don\u2019t caf\u00E9 \u00E9 \u20AC \u0081!"));
  EXPECT_EQ(Translate("<td>&#149;</td>"), "<td>\u2022</td>");
  EXPECT_EQ(Translate("a?b=1&#35=2"), "A?B=1#=2");
  EXPECT_EQ(Translate("AT&T a & b &; &#0; &#xD800;"), "AT&amp;T A &amp; B &amp;; &#0; &#xD800;");
  EXPECT_EQ(Translate("one &unknown; two"), "ONE &unknown; TWO");
  EXPECT_EQ(Translate("a &DoubleLeftRightArrow; b"), "A &DoubleLeftRightArrow; B");
}

TEST_F(DocumentTest, WhatIsNoTagIsText) {
  EXPECT_EQ(Translate("1 < 2 <3 <"), "1 &lt; 2 &lt;3 &lt;");
  EXPECT_EQ(Translate("one <b unfinished"), "ONE &lt;B UNFINISHED");
  EXPECT_EQ(Translate("one</i> two</b>"), "ONE TWO");
  EXPECT_EQ(Translate("<a title=\"x > y\">z</a>"), "<a title=\"x > y\">Z</a>");
  EXPECT_EQ(Translate("<a title = 'x > y'>z</a>"), "<a title = 'x > y'>Z</a>");
}

TEST_F(DocumentTest, Xml) {
  rules_.format = TextFormat::kXml;
  rules_.splitting_tags = {"par"};
  rules_.ignored_tags = {"keep"};
  EXPECT_EQ(Translate("<doc><par>one <X>two</X></par><par>a<keep>b <c/></keep></par></doc>", true),
            "<doc><par><X>TWO</X> ONE</par><par>A<keep>b <c/></keep></par></doc>");
  EXPECT_EQ(Translate("a <x/> b <![CDATA[<raw>]]>"), "A <x/> B <![CDATA[<raw>]]>");
  EXPECT_EQ(Translate("<!DOCTYPE x [<!ENTITY y \"z\"> ] ><x>a</x>"),
            "<!DOCTYPE x [<!ENTITY y \"z\"> ] ><x>A</x>");
}

TEST_F(DocumentTest, TheRulesNameElementsOfHtml) {
  rules_.splitting_tags = {"b"};
  rules_.inline_tags = {"p"};
  rules_.ignored_tags = {"i"};
  EXPECT_THAT(Units("one <p>two</p> <b>three</b> <i>four</i>"), ElementsAre("one two", "three"));
}

TEST_F(DocumentTest, ElementsThatStandBesideNoTextEndSentencesOfXml) {
  rules_.format = TextFormat::kXml;
  const std::string text =
      "<doc><title>one</title><par>two <i>three</i></par><par><i>four</i></par></doc>";
  EXPECT_THAT(Units(text), ElementsAre("one", "two three", "four"));
  EXPECT_THAT(Units("<i>one</i> two"), ElementsAre("one two"));
  rules_.inline_tags = {"title"};
  EXPECT_THAT(Units("<title>one</title><par>two</par>"), ElementsAre("one", "two"));
  rules_.inline_tags = {"title", "par"};
  EXPECT_THAT(Units("<title>one</title><par>two</par>"), ElementsAre("one two"));
  rules_.splitting_tags = {"i"};
  EXPECT_THAT(Units("<i>one</i> two"), ElementsAre("one", "two"));
  rules_.outline = false;
  EXPECT_THAT(Units(text), ElementsAre("one two", "three", "four"));
}

TEST_F(DocumentTest, NoWordIsRobbedForWhatStandsOutside) {
  const std::string b = "\xE2\x96\x81";
  const std::vector<std::string> dog = {b + "A", b + "dog", b + "runs", "."};
  const std::vector<std::string> hund = {b + "Ein", b + "Hund", b + "rennt", "."};
  std::unique_ptr<const Document> document = Parse("<b>A dog</b> <span>runs</span>.");
  EXPECT_EQ(*document->Assemble({OfPieces(dog, hund)}, false),
            "<b>Ein Hund</b> <span>rennt</span>.");
  document = Parse("A dog <b>runs.</b>");
  EXPECT_EQ(*document->Assemble({OfPieces(dog, hund)}, false), "Ein Hund <b>rennt.</b>");
}

// A model of Marian aligns words that stand for none with the end of its source.
TEST_F(DocumentTest, TheEndOfTheSourceHasNoElement) {
  const std::unique_ptr<const Document> document = Parse("a <b>dog</b>");
  v1::Translation translation;
  for (const char* const piece : {"\u2581a", "\u2581dog", "</s>"}) {
    translation.add_source_tokens(piece);
  }
  v1::Hypothesis* const hypothesis = translation.add_hypotheses();
  hypothesis->set_text("ein Hund");
  for (const char* const piece : {"\u2581ein", "\u2581Hund"}) hypothesis->add_tokens(piece);
  for (const float weight : {0.2f, 0.1f, 0.7f, 0.1f, 0.8f, 0.1f}) {
    hypothesis->add_alignment(weight);
  }
  EXPECT_EQ(*document->Assemble({translation}, /*join_with_spaces=*/false), "ein <b>Hund</b>");
}

TEST_F(DocumentTest, AMarkStandsForTheSameMark) {
  const std::string b = "\xE2\x96\x81";
  const std::unique_ptr<const Document> document =
      Parse("see (the <a href=\"x\">park</a>), or <i>not!</i>");
  v1::Translation translation =
      OfPieces({b + "see", b + "(", "the", b + "park", ")", ",", b + "or", b + "not", "!"},
               {b + "siehe", b + "(", "den", b + "Park", ")", ",", b + "oder", b + "nicht", "!"});
  // Marks look at the word before them most.
  v1::Hypothesis* const hypothesis = translation.mutable_hypotheses(0);
  for (const int mark : {1, 4, 5, 8}) {
    for (int s = 0; s < 9; ++s)
      hypothesis->set_alignment(mark * 9 + s, s == mark - 1 ? 0.5f : 0.05f);
  }
  EXPECT_EQ(*document->Assemble({translation}, false),
            "siehe (den <a href=\"x\">Park</a>), oder <i>nicht!</i>");
}

TEST_F(DocumentTest, EveryElementKeepsAWord) {
  const std::unique_ptr<const Document> document = Parse("one <b>two</b> three");
  v1::Translation translation = Capitals("one two three", false);
  v1::Hypothesis* const hypothesis = translation.mutable_hypotheses(0);
  // Nothing looks at the second word most.
  for (int i = 0; i < 9; ++i) hypothesis->set_alignment(i, i % 3 == 0 ? 0.9f : 0.01f);
  hypothesis->set_alignment(3 + 1, 0.3f);
  EXPECT_EQ(*document->Assemble({translation}, false), "ONE <b>TWO</b> THREE");
  // Without an alignment words are taken to keep their order.
  hypothesis->clear_alignment();
  EXPECT_EQ(*document->Assemble({translation}, false), "ONE <b>TWO</b> THREE");
  // A translation of nothing.
  EXPECT_EQ(*document->Assemble({v1::Translation()}, false), "<b></b>");
  translation.clear_hypotheses();
  translation.add_hypotheses();
  EXPECT_EQ(*document->Assemble({translation}, false), "<b></b>");
}

TEST_F(DocumentTest, DeepMarkupIsRefused) {
  std::string text;
  for (int i = 0; i < 201; ++i) text += "<b>";
  const auto document = ParseAny(text);
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(document.status().message()), HasSubstr("deeper than 200"));
}

TEST_F(DocumentTest, LongTagsAroundManyWordsDoNotMultiply) {
  const std::string tag = "<a title=\"" + std::string(10000, 'x') + "\">";
  std::string text = "zero ";
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, i % 2 == 0 ? tag : "</a>", " w", i);
  EXPECT_LE(Translate(text, true).size(), 3 * text.size());
}

// The processor time of a text's way to its translation and back.
double Seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const std::clock_t begin = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

TEST_F(DocumentTest, HostileMarkupTakesLinearTime) {
  // Quadratic time takes 64 times as long.
  constexpr int kTimes = 8;
  const std::string parts =
      R"(&|<|<a |<a "|<!--|<b></b>|</b>|<p>|<p> |&amp|&amp;|<b>x</b> |<script>|<code>|<i>x|)"
      R"(<!|<!>|</|<b x='|<b x=|<b> </b> |<p>.|<p>a <b>b</b>|</u><u>|<li translate=no>|)"
      R"(<li translate=no><ul>|<b translate=no><b translate=yes>|)"
      R"(<b translate=no>x<b translate=yes>y</b></b>|<!-- --!|<!-- --!>|<!DOCTYPE [|)"
      R"(<!DOCTYPE [>|<!DOCTYPE '>|<ruby>a<rt>b|x<b>y</b>|<img>x|<a-b>|<a-b></a-b>|)"
      R"(<p translate=no></ul>|<code></code>)";
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(parts, '|'))) {
    const auto seconds = [&](size_t bytes) {
      std::string text;
      for (int i = 0; i < 199; ++i) text += "<u>";
      while (text.size() < bytes) text += part;
      return Seconds([&] {
        const auto document = ParseAny(text);
        if (!document.ok()) return;
        std::vector<v1::Translation> translations;
        for (const Document::Unit& unit : (*document)->units()) {
          translations.push_back(Capitals(unit.text.substr(0, 50), false));
        }
        EXPECT_TRUE((*document)->Assemble(translations, false).ok());
      });
    };
    EXPECT_LT(seconds(kTimes * 10000), 3 * kTimes * seconds(10000) + 0.01) << part;
  }
}

TEST_F(DocumentTest, MarksAndWordsOfASentenceTakeLinearTime) {
  constexpr int kTimes = 8;
  const auto seconds = [&](int count) {
    std::string text = "one ";
    v1::Translation translation;
    for (const char* const word : {"one", "two", "three"}) {
      translation.add_source_tokens(absl::StrCat("\xE2\x96\x81", word));
    }
    v1::Hypothesis* const hypothesis = translation.add_hypotheses();
    for (int i = 0; i < count; ++i) {
      text += "<!>";
      hypothesis->add_tokens("\xE2\x96\x81w");
      absl::StrAppend(hypothesis->mutable_text(), i == 0 ? "w" : " w");
    }
    const std::unique_ptr<const Document> document = Parse(text + "two three");
    return Seconds([&] { EXPECT_TRUE(document->Assemble({translation}, false).ok()); });
  };
  EXPECT_LT(seconds(kTimes * 2000), 3 * kTimes * seconds(2000) + 0.01);
}

TEST_F(DocumentTest, SentencesWithTagsTakeLinearTime) {
  constexpr int kTimes = 8;
  const auto seconds = [&](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "<p>a <b>b</b>";
    const std::unique_ptr<const Document> document = Parse(text);
    const std::vector<v1::Translation> translations(document->units().size(),
                                                    Capitals("a b", false));
    return Seconds([&] { EXPECT_TRUE(document->Assemble(translations, false).ok()); });
  };
  EXPECT_LT(seconds(kTimes * 10000), 3 * kTimes * seconds(10000) + 0.01);
}

TEST_F(DocumentTest, AnEndWithoutABeginningIsNotLookedForInEachElement) {
  std::string ends;
  for (int i = 0; i < 50000; ++i) ends += "</b>";
  std::string nested;
  for (int i = 0; i < 199; ++i) nested += "<u>";
  EXPECT_LT(Seconds([&] { EXPECT_TRUE(ParseAny(nested + ends).ok()); }),
            2 * Seconds([&] { EXPECT_TRUE(ParseAny("<u>" + ends).ok()); }) + 0.01);
}

TEST_F(DocumentTest, MemoryIsReservedBeforeItIsTaken) {
  std::string tags;
  std::string sentences;
  for (int i = 0; i < 10000; ++i) {
    tags += "<p>";
    sentences += "Yes.\n";
  }
  for (const std::string& text : {tags, sentences}) {
    reserved_ = 0;
    most_ = int64_t{1} << 40;
    EXPECT_TRUE(ParseAny(text).ok());
    EXPECT_GT(reserved_, 10000 * 100);
    most_ = reserved_ - 1;
    reserved_ = 0;
    EXPECT_TRUE(absl::IsResourceExhausted(ParseAny(text).status()));
  }
}

TEST_F(DocumentTest, EndsEarlyWhenNobodyWaits) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "<p>a</p>";
  const std::unique_ptr<const Document> document = Parse(text);
  for (const TextFormat format : {TextFormat::kHtml, TextFormat::kXml}) {
    rules_.format = format;
    int asked = 0;
    const Interruption interruption([&asked] { return ++asked >= 5; });
    EXPECT_TRUE(absl::IsCancelled(ParseAny(text).status()));
    EXPECT_LE(asked, 10);
    EXPECT_TRUE(
        absl::IsCancelled(document->Assemble(std::vector<v1::Translation>(50000), false).status()));
  }
}

TEST(BeginningOfTextTest, HasNoTagsAndNothingThatIsLeftAlone) {
  TextRules rules;
  EXPECT_EQ(BeginningOf("<p>K\xC3\xA4se", rules, 5), "<p>K") << "whole characters";
  rules.format = TextFormat::kHtml;
  rules.ignored_tags = {"q"};
  const auto words = [&](const std::string& text, size_t most) {
    return absl::StrJoin(absl::StrSplit(BeginningOf(text, rules, most), ' ', absl::SkipEmpty()),
                         " ");
  };
  const std::string page =
      "<head><style>" + std::string(20000, 'x') +
      "</style><title>Ein Titel</title></head><!-- a comment --><p title=\"the fox\">Drei"
      " K&auml;se<b>rad</b>.</p><code>int main</code><p class=notranslate>Fox</p><q>fox</q>";
  EXPECT_EQ(words(page, 2000), "Ein Titel Drei K\xC3\xA4serad.");
  EXPECT_EQ(words(page, 100), "") << "looks at no more than a part";
  rules.format = TextFormat::kXml;
  EXPECT_EQ(words("<a>Ein <q>fox</q><style>Satz</style></a>", 1000), "Ein Satz");
}

TEST(PieceOffsetsTest, PiecesAndTheirText) {
  const std::string space = "\xE2\x96\x81";
  const std::string a = space + "ab";
  const std::string d = space + "d";
  const std::string u = "<0xC3>";
  const std::string v = "<0xA9>";
  EXPECT_THAT(PieceOffsets("abc d\xC3\xA9", {a, "c", d, u, v}), ElementsAre(0, 2, 4, 5, 5));
  // Where the model has normalized the text, they agree again at the next word.
  EXPECT_THAT(PieceOffsets("\xEF\xAC\x83x  d", {space + "ffix", d}), ElementsAre(0, 6));
  EXPECT_THAT(PieceOffsets("", {a, d}), ElementsAre(0, 0));
  // Characters that the model has made a space, or that begin with one then; a model may keep them,
  // too.
  EXPECT_THAT(PieceOffsets("ab\xE2\x80\x8C"
                           "d ab",
                           {a, d, a}),
              ElementsAre(0, 5, 7));
  EXPECT_THAT(PieceOffsets("ab\xE2\x80\x8C"
                           "d ab",
                           {a, "\xE2\x80\x8C", "d", a}),
              ElementsAre(0, 2, 5, 7));
  EXPECT_THAT(PieceOffsets("ab\xC2\xB4s d ab", {a, space + "\xCC\x81s", d, a}),
              ElementsAre(0, 4, 6, 8));
}

}  // namespace
}  // namespace sru::server::translation
