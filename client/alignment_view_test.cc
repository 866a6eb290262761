#include "client/alignment_view.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/text_table.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

TEST(AlignmentViewTest, NamesTheRowsAndColumns) {
  const float weights[] = {0.9f, 0.1f, 0.0f,   //
                           0.3f, 0.5f, 0.2f};  //
  EXPECT_EQ(AlignmentGrid({"A", "man", "."}, {"Ein", "Mann"}, weights, 80),
            "       m\n"
            "       a\n"
            "     A n .\n"
            "Ein  \u2588\u2588\u2591\u2591\u00b7\n"
            "Mann \u2592\u2592\u2593\u2593\u2591\u2591\n");
}

// 8 characters: the margin of 2 and three cells.
TEST(AlignmentViewTest, WrapsWideGrids) {
  const std::vector<float> weights = {0, 0, 0, 0, 1, 0, 0};
  const std::string grid = AlignmentGrid({"a", "b", "c", "d", "e", "f", "g"}, {"x"}, weights, 8);
  EXPECT_EQ(grid,
            "  a b c\n"
            "x \u00b7 \u00b7 \u00b7\n"
            "\n"
            "  d e f\n"
            "x \u00b7 \u2588\u2588\u00b7\n"
            "\n"
            "  g\n"
            "x \u00b7\n");
  for (const absl::string_view line : absl::StrSplit(grid, '\n')) {
    EXPECT_LE(DisplayWidth(line), 8u) << line;
  }
  // Too narrow for anything: a column each.
  EXPECT_EQ(AlignmentGrid({"a", "b"}, {"x"}, {0, 1}, 1), "  a\nx \u00b7\n\n  b\nx \u2588\u2588\n");
}

TEST(AlignmentViewTest, NamesDoNothingToATerminal) {
  const std::string grid =
      AlignmentGrid({"\x1b[1m", "\u00e4\u00f6"}, {std::string(40, 'x'), "\n"}, {1, 0, 0, 1}, 80);
  EXPECT_EQ(grid.find('\x1b'), std::string::npos);
  EXPECT_NE(grid.find("\u00f6\n"), std::string::npos) << grid;
  EXPECT_NE(grid.find("xxxxxxxxxxxxxxx\u2026 \u2588\u2588"), std::string::npos) << grid;
  EXPECT_NE(grid.find("\\n               "), std::string::npos) << grid;
}

TEST(AlignmentViewTest, NothingToShow) {
  EXPECT_EQ(AlignmentGrid({}, {}, {}, 80), "");
  EXPECT_EQ(AlignmentGrid({}, {"x"}, {}, 80), "");
  EXPECT_EQ(AlignmentGrid({"a", "b"}, {"x"}, {1}, 80), "");  // the numbers do not fit
  const float nan = std::nanf("");
  EXPECT_EQ(AlignmentGrid({"a"}, {"x"}, {nan}, 80), "  a\nx \u00b7\n");
}

TEST(AlignmentViewTest, TheLegendHasEveryShade) {
  EXPECT_EQ(AlignmentLegend(),
            "how much each token looked at each token of the source:  \u2588\u2588 70% or more  "
            "\u2593\u2593 50%  \u2592\u2592 30%  \u2591\u2591 10%  \u00b7  less");
}

}  // namespace
}  // namespace sru::client
