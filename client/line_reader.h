// LineReader: reads lines from a file descriptor in batches, and waits no longer than necessary.
#ifndef SRU_CLIENT_LINE_READER_H_
#define SRU_CLIENT_LINE_READER_H_

#include <atomic>
#include <string>
#include <vector>

namespace sru::client {

// Not thread-safe. Does not own the descriptor.
class LineReader {
 public:
  // `stopped`, which may be null, ends the wait for a line once another thread sets it.
  explicit LineReader(int fd, const std::atomic<bool>* stopped = nullptr)
      : fd_(fd), stopped_(stopped) {}

  // Blocks until there is a line, then takes up to `max_lines` of the lines that have arrived, so
  // that a slow producer gets its answers line by line and a file is read in full batches. The
  // lines come without their ends ("\n" or "\r\n"), and the first without a byte order mark. Empty
  // at the end of the input, after an error and when stopped.
  std::vector<std::string> NextBatch(int max_lines);

  // Returns the errno of the read that failed, or 0. NextBatch() first hands out the lines that
  // came before, but not the line that the error cut off.
  int error() const { return error_; }

 private:
  bool TakeLine(std::string* line);
  // Waits at most `timeout_ms` (-1 = until stopped); false if nothing came, or at the end.
  bool Fill(int timeout_ms);

  const int fd_;
  const std::atomic<bool>* const stopped_;
  std::string buffer_;
  size_t begin_ = 0;     // start of the bytes that were not handed out yet
  size_t searched_ = 0;  // there is no line end before this
  bool end_ = false;
  int error_ = 0;
  bool begun_ = false;  // a line has been handed out
};

}  // namespace sru::client

#endif  // SRU_CLIENT_LINE_READER_H_
