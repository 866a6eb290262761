#include "client/token_view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace sru::client {
namespace {

constexpr double kLn2 = 0.69314718055994530942;

// The least probability of each color, and the color: black on pale backgrounds of the 256-color
// palette, which can be read on dark and on light terminals.
struct Shade {
  double probability;
  const char* name;
  const char* code;
};
constexpr Shade kShades[] = {{0.5, "50% or more", kPaleGreen},
                             {0.1, "10%", "\x1b[30;48;5;229m"},
                             {0.01, "1%", "\x1b[30;48;5;222m"},
                             {0.001, "0.1%", "\x1b[30;48;5;216m"},
                             {0, "less", "\x1b[30;48;5;210m"}};

const Shade& ShadeOf(double log_prob) {
  const double probability = std::exp(log_prob);
  return *std::find_if(
      std::begin(kShades), std::end(kShades) - 1,
      [probability](const Shade& shade) { return probability >= shade.probability; });
}

// Length of the UTF-8 character that starts with this byte; 1 if none does.
size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
}

size_t FindInvalid(absl::string_view text) {
  return FindInvalidUtf8(std::string_view(text.data(), text.size()));
}

// The separators of words, and whether a newline is one or a token of its own.
std::vector<std::string> SplitWords(absl::string_view text, bool newline_is_token) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    if (c == '\n' && newline_is_token) {
      end_word();
      words.emplace_back("\n");
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return words;
}

std::vector<std::string> SplitCharacters(absl::string_view text) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t size = std::min(CharacterBytes(text[i]), text.size() - i);
    characters.emplace_back(text.substr(i, size));
    i += size;
  }
  return characters;
}

// Escapes what a terminal would obey, except for the characters of `keep`.
std::string Printable(absl::string_view text, absl::string_view keep) {
  std::string printable;
  for (size_t i = 0; i < text.size();) {
    const absl::string_view character = text.substr(i, CharacterBytes(text[i]));
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters, too.
    const bool is_c1 =
        byte == 0xc2 && character.size() == 2 && static_cast<unsigned char>(character[1]) < 0xa0;
    if ((byte >= 0x20 && byte != 0x7f && !is_c1 && FindInvalid(character) == character.size()) ||
        keep.find(text[i]) != absl::string_view::npos) {
      absl::StrAppend(&printable, character);
      i += character.size();
      continue;
    }
    switch (text[i]) {
      case '\n':
        printable += "\\n";
        break;
      case '\r':
        printable += "\\r";
        break;
      case '\t':
        printable += "\\t";
        break;
      default:
        absl::StrAppendFormat(&printable, "\\x%02X", byte);
    }
    ++i;
  }
  return printable;
}

}  // namespace

bool WantsColor(bool is_terminal, const char* no_color, const char* term) {
  const bool wants_none = no_color != nullptr && *no_color != '\0';
  const bool has_none = term == nullptr || absl::string_view(term) == "dumb";
  return is_terminal && !wants_none && !has_none;
}

std::optional<std::vector<std::string>> SplitTokens(absl::string_view text,
                                                    absl::string_view preprocessing, int count) {
  std::vector<std::string> tokens;
  if (preprocessing == "bytes") {
    for (const char byte : text) tokens.emplace_back(1, byte);
  } else if (preprocessing == "characters") {
    tokens = SplitCharacters(text);
  } else if (preprocessing == "line_words") {
    tokens = SplitWords(text, /*newline_is_token=*/true);
  } else if (preprocessing == "whitespace" || preprocessing == "lowercase") {
    tokens = SplitWords(text, /*newline_is_token=*/false);
  } else {
    return std::nullopt;
  }
  // Text with rarer white space is cut differently by the server.
  if (tokens.size() != static_cast<size_t>(count)) return std::nullopt;
  return tokens;
}

bool HasNewlineToken(absl::string_view preprocessing) {
  return preprocessing == "bytes" || preprocessing == "characters" || preprocessing == "line_words";
}

std::string PrintableToken(absl::string_view token) { return Printable(token, /*keep=*/""); }

std::string QuotedToken(absl::string_view token) {
  return absl::StrCat("'", PrintableToken(token), "'");
}

std::string TerminalText(absl::string_view text) { return Printable(text, /*keep=*/"\n\t"); }

std::string ColoredTokens(const std::vector<ScoredToken>& tokens) {
  std::string line;
  std::string character;  // the bytes of one so far
  double log_prob = 0;
  bool scored = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (character.empty()) {
      log_prob = 0;
      scored = false;
    }
    character += tokens[i].text;
    if (tokens[i].log_prob.has_value()) {
      log_prob += *tokens[i].log_prob;
      scored = true;
    }
    // More bytes of it may come.
    if (i + 1 < tokens.size() && !character.empty() &&
        character.size() < CharacterBytes(character[0]) &&
        FindInvalid(character) < character.size()) {
      continue;
    }
    const std::string printable = PrintableToken(character);
    if (scored) {
      absl::StrAppend(&line, ShadeOf(log_prob).code, printable, kResetColor);
    } else {
      absl::StrAppend(&line, printable);
    }
    character.clear();
  }
  return line;
}

std::string ColorLegend() {
  std::string line = "probability of each token:";
  for (const Shade& shade : kShades) {
    absl::StrAppend(&line, " ", shade.code, " ", shade.name, " ", kResetColor);
  }
  return line;
}

double Bits(double log_prob) { return log_prob == 0 ? 0 : -log_prob / kLn2; }

}  // namespace sru::client
