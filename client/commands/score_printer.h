// Prints what `sru_client score` has found: a row per text, its tokens, and totals.
#ifndef SRU_CLIENT_COMMANDS_SCORE_PRINTER_H_
#define SRU_CLIENT_COMMANDS_SCORE_PRINTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/commands/json_output.h"
#include "client/commands/line_input.h"
#include "client/commands/unknown_words.h"
#include "client/messages_fwd.h"
#include "client/text_table.h"
#include "client/token_view.h"

namespace sru::client {

struct ScorePrinterOptions {
  bool json = false;
  bool totals_only = false;
  bool per_token = false;
  bool candidates = false;
  bool tokens_are_split = false;  // by spaces: --tokens
  bool color = false;             // tokens in colors rather than a row each
  std::string preprocessing;      // of the model, if tokens are shown
};

// Not thread-safe. Writes to standard output.
class ScorePrinter {
 public:
  // `input` outlives the printer.
  ScorePrinter(const ScorePrinterOptions& options, const LineInput* input);

  // `score` is that of `item`, of a call that took `latency`.
  void Add(const LineInput::Item& item, const v1::ScoreResponse& response, const v1::Score& score,
           absl::Duration latency);
  // Prints what was added, as soon as nothing more is there to be added at once.
  void Flush();
  // Prints the totals. Call last.
  void Finish();

  // Of all texts that were added.
  const UnknownWords& unknown_words() const { return unknown_words_; }

 private:
  struct Total {
    size_t source = 0;
    int64_t texts = 0;
    int64_t tokens = 0;
    int64_t scored = 0;
    double log_prob = 0;

    void Add(const LineInput::Item& item, const v1::Score& score);
    void Add(const Total& other);
  };

  // The tokens of a text as far as a client knows them, with what predicts them.
  std::vector<ScoredToken> Tokens(const LineInput::Item& item, const v1::Score& score) const;
  void AddTokenRows(const LineInput::Item& item, const v1::Score& score);
  void PrintColored(const LineInput::Item& item, const v1::Score& score);
  Json TextJson(const LineInput::Item& item, const v1::ScoreResponse& response,
                const v1::Score& score, absl::Duration latency) const;
  std::string Name(const Total& total) const;
  Json TotalJson(const Total& total, bool with_file) const;

  const ScorePrinterOptions options_;
  const LineInput* const input_;
  const bool token_rows_;
  const bool colored_;
  UnknownWords unknown_words_;
  std::vector<Total> totals_;  // one per source that has a text
  TextTable texts_;
  TextTable tokens_;
  bool legend_printed_ = false;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_SCORE_PRINTER_H_
