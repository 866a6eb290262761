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

}  // namespace
}  // namespace sru::client
