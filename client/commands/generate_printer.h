// Prints what `sru_client generate` gets, as it comes.
#ifndef SRU_CLIENT_COMMANDS_GENERATE_PRINTER_H_
#define SRU_CLIENT_COMMANDS_GENERATE_PRINTER_H_

#include <string>
#include <vector>

#include "client/commands/json_output.h"
#include "client/messages_fwd.h"
#include "client/text_table.h"

namespace sru::client {

struct GeneratePrinterOptions {
  bool json = false;        // one object per message
  bool token_rows = false;  // one row per token, with what is known of it
  bool terminal = false;    // control characters become visible, and a text ends with its line
  int num_samples = 1;
};

// For one call. With several samples, the first one that is not complete is printed as it comes,
// the others once it is complete. Not thread-safe.
class GeneratePrinter {
 public:
  explicit GeneratePrinter(const GeneratePrinterOptions& options);

  void Add(const v1::GenerateResponse& response);
  // Call last, also after an error: prints what was held back.
  void Finish();

  bool printed() const { return printed_; }

 private:
  struct Sample {
    std::string held_back;
    bool begun = false;
    bool complete = false;
    int tokens = 0;
  };

  void AddRows(const v1::GenerateResponse& response);
  void PrintText(int number, const std::string& text);
  void EndText();

  const GeneratePrinterOptions options_;
  std::vector<Sample> samples_;
  size_t current_ = 0;  // the sample that is printed as it comes
  bool at_line_start_ = true;
  bool printed_ = false;
  TextTable rows_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_GENERATE_PRINTER_H_
