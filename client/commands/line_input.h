// The texts of a command: its arguments, or the lines of standard input.
#ifndef SRU_CLIENT_COMMANDS_LINE_INPUT_H_
#define SRU_CLIENT_COMMANDS_LINE_INPUT_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/line_reader.h"

namespace sru::client {

// Not thread-safe, apart from Stop().
class LineInput {
 public:
  struct Item {
    int64_t line = 0;  // or the argument, from 1
    std::string text;
  };

  // Without `arguments`, reads standard input. `skips_blank`: a blank line is no text.
  LineInput(std::vector<std::string> arguments, bool skips_blank);

  // At most `max_items` texts; none at the end. kInvalidArgument if standard input cannot be read.
  // Stop() makes it return kCancelled.
  absl::StatusOr<std::vector<Item>> Next(int max_items);

  // Ends a Next() that waits for a line. Any thread may call it.
  void Stop() { stopped_ = true; }

  // "line 12" or "text 12": for messages.
  std::string Where(const Item& item) const;

 private:
  const std::vector<std::string> arguments_;
  const bool skips_blank_;
  std::atomic<bool> stopped_{false};
  LineReader reader_;
  int64_t line_ = 0;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_LINE_INPUT_H_
