// How the tokens of a text and their probabilities are shown.
#ifndef SRU_CLIENT_TOKEN_VIEW_H_
#define SRU_CLIENT_TOKEN_VIEW_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sru::client {

// The control sequences of a terminal for black on pale green, and for its own colors again.
inline constexpr char kPaleGreen[] = "\x1b[30;48;5;157m";
inline constexpr char kResetColor[] = "\x1b[0m";

// Whether to print colors. `no_color` and `term` are the environment's NO_COLOR and TERM, null if unset. NO_COLOR counts if it is
// not empty (no-color.org).
bool WantsColor(bool is_terminal, const char* no_color, const char* term);

// Cuts a text where the tokenizer `preprocessing` (ModelInfo.preprocessing) cuts it. nullopt for a
// tokenizer whose cuts only the server knows, and if there are not `count` tokens.
std::optional<std::vector<std::string>> SplitTokens(absl::string_view text,
                                                    absl::string_view preprocessing, int count);

// Whether the tokenizer makes a token of a newline.
bool HasNewlineToken(absl::string_view preprocessing);

// A token as something that is visible, takes one line and does nothing to a terminal: control
// characters and bytes that are not UTF-8 become \n, \t, \xE2 and so on.
std::string PrintableToken(absl::string_view token);
// The same between quotation marks.
std::string QuotedToken(absl::string_view token);

// Text as it is, but that control characters other than newline and tab do nothing to a terminal:
// they become \x1B and so on, as do bytes that are not UTF-8.
std::string TerminalText(absl::string_view text);

struct ScoredToken {
  std::string text;
  std::optional<double> log_prob;  // none: nothing predicts it
};

// The tokens one after the other on the colors of their probabilities. The bytes of a character
// count as one token, whose probability is their product.
std::string ColoredTokens(const std::vector<ScoredToken>& tokens);
// What the colors mean, in one line.
std::string ColorLegend();

// Information of something with this log-probability (natural logarithm).
double Bits(double log_prob);

}  // namespace sru::client

#endif  // SRU_CLIENT_TOKEN_VIEW_H_
