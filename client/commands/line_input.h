// The texts of a command: from its arguments, or the lines of files or of standard input.
#ifndef SRU_CLIENT_COMMANDS_LINE_INPUT_H_
#define SRU_CLIENT_COMMANDS_LINE_INPUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/line_reader.h"

namespace sru::client {

// Not thread-safe, apart from Stop().
class LineInput {
 public:
  struct Item {
    size_t source = 0;  // which of the files; 0 if there are none
    int64_t line = 0;   // in its source, from 1
    std::string text;
  };

  // `arguments` are texts, or names of files ("-" is standard input); if there are none, standard
  // input is read. `skips_blank`: a blank line is no text.
  LineInput(std::vector<std::string> arguments, bool files, bool skips_blank);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  // At most `max_items` texts of one source; none at the end. kInvalidArgument names a source that
  // cannot be read, again at each further call. Stop() makes it return kCancelled.
  absl::StatusOr<std::vector<Item>> Next(int max_items);

  // Ends a Next() that waits for a line. Any thread may call it.
  void Stop() { stopped_ = true; }

  // "" for texts that are arguments or come from standard input.
  const std::string& source_name(size_t source) const;
  // "FILE:12", "line 12" or "text 12": for messages.
  std::string Where(const Item& item) const;

 private:
  absl::Status OpenNext();
  void Close();
  // CannotBeRead() for the present source.
  absl::Status ReadError(int error) const;

  const std::vector<std::string> arguments_;
  const bool files_;
  const bool skips_blank_;
  size_t source_ = 0;  // of the arguments, or of the texts
  int fd_ = -1;
  std::unique_ptr<LineReader> reader_;
  int64_t line_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_LINE_INPUT_H_
