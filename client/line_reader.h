// LineReader: lines from a file descriptor in batches that do not wait for more than they must.
#ifndef SRU_CLIENT_LINE_READER_H_
#define SRU_CLIENT_LINE_READER_H_

#include <string>
#include <vector>

namespace sru::client {

// Not thread-safe. Does not own the descriptor.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // Blocks until there is a line, then takes up to `max_lines` of those that are there already, so
  // that a slow producer gets its answers line by line and a file goes in full batches. Without
  // their line ends ("\n" or "\r\n"). Empty at the end of the input.
  std::vector<std::string> NextBatch(int max_lines);

 private:
  bool TakeLine(std::string* line);
  // Waits at most `timeout_ms` (-1 = for ever); false when nothing came, or at the end.
  bool Fill(int timeout_ms);

  const int fd_;
  std::string buffer_;
  size_t begin_ = 0;     // of what was not handed out yet
  size_t searched_ = 0;  // no line end before this
  bool end_ = false;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_LINE_READER_H_
