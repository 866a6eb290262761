#include "client/alignment_view.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "client/text_table.h"
#include "client/token_view.h"

namespace sru::client {
namespace {

// Two characters of a terminal are about as wide as one is high.
constexpr size_t kCellWidth = 2;
// Longer names of tokens are cut.
constexpr size_t kMaxNameWidth = 16;

// The least weight of each shade, and two of its character.
struct CellShade {
  float weight;
  const char* cell;
  const char* name;
};
constexpr CellShade kCellShades[] = {{0.7f, "\u2588\u2588", "70% or more"},
                                     {0.5f, "\u2593\u2593", "50%"},
                                     {0.3f, "\u2592\u2592", "30%"},
                                     {0.1f, "\u2591\u2591", "10%"},
                                     {0.0f, "\u00b7 ", "less"}};

const char* CellOf(float weight) {
  return std::find_if(std::begin(kCellShades), std::end(kCellShades) - 1,
                      [weight](const CellShade& shade) { return weight >= shade.weight; })
      ->cell;
}

// A token's characters, each of them visible.
std::vector<std::string> Characters(const std::string& token) {
  std::vector<std::string> characters;
  for (const char byte : PrintableToken(token)) {
    const bool continues = ContinuesUtf8(byte);
    if (!continues || characters.empty()) characters.emplace_back();
    characters.back() += byte;
  }
  if (characters.size() > kMaxNameWidth) {
    characters.resize(kMaxNameWidth - 1);
    characters.emplace_back("\u2026");
  }
  return characters;
}

void EndLine(std::string* text) {
  text->erase(text->find_last_not_of(' ') + 1);
  text->push_back('\n');
}

}  // namespace

std::string AlignmentGrid(const std::vector<std::string>& source,
                          const std::vector<std::string>& target, absl::Span<const float> weights,
                          int columns) {
  if (weights.size() != source.size() * target.size()) return "";
  std::vector<std::vector<std::string>> names;
  for (const std::string& token : source) names.push_back(Characters(token));
  std::vector<std::string> rows;
  size_t margin = 0;
  for (const std::string& token : target) {
    rows.emplace_back();
    for (const std::string& character : Characters(token)) rows.back() += character;
    margin = std::max(margin, DisplayWidth(rows.back()));
  }
  ++margin;  // between a name and the first cell
  const size_t width = static_cast<size_t>(std::max(columns, 0));
  const size_t per_block = width > margin + kCellWidth ? (width - margin) / kCellWidth : 1;
  std::string grid;
  for (size_t begin = 0; begin < source.size(); begin += per_block) {
    const size_t end = std::min(source.size(), begin + per_block);
    if (begin > 0) grid += '\n';
    size_t height = 0;
    for (size_t s = begin; s < end; ++s) height = std::max(height, names[s].size());
    for (size_t line = 0; line < height; ++line) {
      grid.append(margin, ' ');
      for (size_t s = begin; s < end; ++s) {
        const size_t above = height - names[s].size();  // names end at the cells
        absl::StrAppend(&grid, line < above ? " " : names[s][line - above], " ");
      }
      EndLine(&grid);
    }
    for (size_t t = 0; t < target.size(); ++t) {
      absl::StrAppend(&grid, rows[t], std::string(margin - DisplayWidth(rows[t]), ' '));
      for (size_t s = begin; s < end; ++s) {
        grid += CellOf(weights[t * source.size() + s]);
      }
      EndLine(&grid);
    }
  }
  return grid;
}

std::string AlignmentLegend() {
  std::string line = "how much each token looked at each token of the source:";
  for (const CellShade& shade : kCellShades)
    absl::StrAppend(&line, "  ", shade.cell, " ", shade.name);
  return line;
}

}  // namespace sru::client
