// Prints what `sru_client translate` has got: lines, a table of the best, alignments or JSON. A hard alignment that has come
// follows its translation.
#ifndef SRU_CLIENT_COMMANDS_TRANSLATE_PRINTER_H_
#define SRU_CLIENT_COMMANDS_TRANSLATE_PRINTER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/commands/json_output.h"
#include "client/commands/line_input.h"
#include "client/commands/unknown_words.h"
#include "client/messages_fwd.h"
#include "client/text_table.h"

namespace sru::client {

struct TranslatePrinterOptions {
  bool json = false;
  bool table = false;      // a row for each hypothesis, rather than a line for each text
  bool alignment = false;  // a table below each translation: which tokens looked where
  bool terminal = false;   // so nothing that is printed may be obeyed
};

// Not thread-safe. Writes to standard output.
class TranslatePrinter {
 public:
  // `input` outlives the printer.
  TranslatePrinter(const TranslatePrinterOptions& options, const LineInput* input);

  // `translation` is that of `item`, of a call that took `latency`.
  void Add(const LineInput::Item& item, const v1::TranslateResponse& response,
           const v1::Translation& translation, absl::Duration latency);
  // The text could not be translated. Where there is a line for each text, this one's is empty.
  void AddFailed();
  // Prints what was added, as soon as nothing more is there to be added at once.
  void Flush();

  // What was printed in all: "64 texts, 832 tokens, ..."; `elapsed` is the time that it took.
  std::string Stats(absl::Duration elapsed) const;
  Json StatsJson(absl::Duration elapsed) const;
  const UnknownWords& unknown_words() const { return unknown_words_; }

 private:
  std::string Text(const v1::Hypothesis& hypothesis) const;
  void PrintAlignments(const LineInput::Item& item, const v1::Translation& translation);
  Json TextJson(const LineInput::Item& item, const v1::TranslateResponse& response,
                const v1::Translation& translation, absl::Duration latency) const;

  const TranslatePrinterOptions options_;
  const LineInput* const input_;
  TextTable table_;
  UnknownWords unknown_words_;
  int64_t texts_ = 0;
  int64_t source_tokens_ = 0;
  int64_t target_tokens_ = 0;  // of the best hypothesis of each text
  int64_t unfinished_ = 0;     // likewise
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_TRANSLATE_PRINTER_H_
