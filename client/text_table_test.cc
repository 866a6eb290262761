#include "client/text_table.h"

#include <sstream>

#include "gtest/gtest.h"

namespace sru::client {
namespace {

TEST(TextTableTest, AlignsColumns) {
  std::ostringstream out;
  TextTable table({{"LABEL"}, {"P", true}, {"TEXT"}}, &out);
  table.AddRow({"NUM", "0.9921", "How many ?"});
  table.AddRow({"\xc3\xa9t\xc3\xa9 longer", "0.5", ""});
  table.Flush();
  table.AddRow({"A", "1", "x"});
  table.Flush();
  EXPECT_EQ(out.str(),
            "LABEL            P  TEXT\n"
            "NUM         0.9921  How many ?\n"
            "\xc3\xa9t\xc3\xa9 longer     0.5\n"
            "A                1  x\n");
}

TEST(TextTableTest, AnEmptyTableHasItsHeader) {
  std::ostringstream out;
  TextTable table({{"NAME"}, {"VERSION"}}, &out);
  table.Flush();
  EXPECT_EQ(out.str(), "NAME  VERSION\n");
}

TEST(OneLineTest, CutsAtCharactersAndKeepsToOneLine) {
  EXPECT_EQ(OneLine("short", 10), "short");
  EXPECT_EQ(OneLine("0123456789", 10), "0123456789");
  EXPECT_EQ(OneLine("0123456789a", 10), "0123456...");
  EXPECT_EQ(OneLine("a\tb\nc\x1b[1m", 20), "a b c [1m");
  EXPECT_EQ(OneLine("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 5), "\xc3\xa9\xc3\xa9...");
}

TEST(PrintableTest, TextDoesNothingToATerminal) {
  EXPECT_EQ(Printable("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(Printable("\n\r\t\x1b[1m\x7f"), "\\n\\r\\t\\x1B[1m\\x7F");
  EXPECT_EQ(Printable("\xc3"), "\\xC3");
  EXPECT_EQ(Printable("\xa9z"), "\\xA9z");
  EXPECT_EQ(Printable("\xc3\xa9\xa9"), "\xc3\xa9\\xA9");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xC2\\x9B");  // the control sequence introducer
  EXPECT_EQ(Printable(std::string("\0", 1)), "\\x00");
}

TEST(PrintableTest, KeepsWhatItIsToldTo) {
  EXPECT_EQ(Printable("a\n\tb \xc3\xa4", "\n\t"), "a\n\tb \xc3\xa4");
  EXPECT_EQ(Printable("\r\x1b[1m\x7f\xc2\x9b\xc3", "\n\t"), "\\r\\x1B[1m\\x7F\\xC2\\x9B\\xC3");
}

}  // namespace
}  // namespace sru::client
