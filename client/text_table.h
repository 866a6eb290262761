// TextTable: rows in aligned columns, printed as they come; and text as a terminal may show it.
#ifndef SRU_CLIENT_TEXT_TABLE_H_
#define SRU_CLIENT_TEXT_TABLE_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sru::client {

// Rows are printed in groups, because a stream may have no end to wait for: each column is as wide
// as its widest cell so far. The last column is not padded and may hold any text. Not thread-safe.
class TextTable {
 public:
  struct Column {
    std::string name;
    bool right_aligned = false;
  };

  TextTable(std::vector<Column> columns, std::ostream* out);

  // One cell per column.
  void AddRow(std::vector<std::string> cells);
  // Prints the rows that were added since the last time, the first time after the column names.
  void Flush();

 private:
  void Print(const std::vector<std::string>& cells);

  const std::vector<Column> columns_;
  std::ostream* const out_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
  bool started_ = false;
};

// One line of at most `width` characters: control characters become spaces, and "..." replaces what
// is cut off.
std::string OneLine(absl::string_view text, size_t width);

// Text in one line that does nothing to a terminal: control characters and bytes that are not UTF-8
// become \n, \t, \xE2 and so on, except for the characters of `keep`.
std::string Printable(absl::string_view text, absl::string_view keep = "");

}  // namespace sru::client

#endif  // SRU_CLIENT_TEXT_TABLE_H_
