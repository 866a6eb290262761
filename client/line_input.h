// The texts of a command: its arguments, or the lines of standard input.
#ifndef SRU_CLIENT_LINE_INPUT_H_
#define SRU_CLIENT_LINE_INPUT_H_

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::client {

// Not thread-safe, apart from Stop().
class LineInput {
 public:
  struct Item {
    int64_t line = 0;  // or the argument, from 1
    std::string text;
  };

  // Without `arguments`, reads `fd`, which it does not own. `skips_blank`: a blank line is no text.
  LineInput(std::vector<std::string> arguments, bool skips_blank, int fd = STDIN_FILENO);

  // At most `max_items` texts; none at the end. Blocks until there is one, then takes those that
  // have arrived, so that a slow producer gets its answers line by line and a file is read in full
  // batches. Lines come without their ends ("\n" or "\r\n"), and the first without a byte order
  // mark. kInvalidArgument if the input cannot be read, after the lines that came before, but
  // without the one that the error cut off. kCancelled once Stop() was called.
  absl::StatusOr<std::vector<Item>> Next(int max_items);

  // Ends a Next() that waits for a line. Any thread may call it.
  void Stop() { stopped_ = true; }

  // "line 12" or "text 12": for messages.
  std::string Where(const Item& item) const;

 private:
  bool TakeLine(std::string* line);
  // Waits at most `timeout_ms` (-1 = until stopped); false if nothing came, or at the end.
  bool Fill(int timeout_ms);

  const std::vector<std::string> arguments_;
  const bool skips_blank_;
  const int fd_;
  std::atomic<bool> stopped_{false};
  int64_t line_ = 0;  // the last line or argument that was taken
  std::string buffer_;
  size_t begin_ = 0;     // start of the bytes that were not taken yet
  size_t searched_ = 0;  // there is no line end before this
  bool end_ = false;
  int error_ = 0;  // of the read that failed
};

}  // namespace sru::client

#endif  // SRU_CLIENT_LINE_INPUT_H_
