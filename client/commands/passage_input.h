// The passages that `sru_client answer` looks for answers in: files, or their paragraphs.
#ifndef SRU_CLIENT_COMMANDS_PASSAGE_INPUT_H_
#define SRU_CLIENT_COMMANDS_PASSAGE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/line_input.h"

namespace sru::client {

// Not thread-safe.
class PassageInput {
 public:
  struct Passage {
    size_t source = 0;   // which of the files
    int64_t number = 1;  // in its file, from 1
    int64_t line = 1;    // of its beginning, in its file, from 1
    // Of its beginning, in its file: in bytes and in code points.
    int64_t byte = 0;
    int64_t character = 0;
    std::string text;
  };

  // `files` are names ("-" is standard input); if there are none, standard input is read.
  // `paragraphs`: a blank line ends a passage; else a file is one.
  PassageInput(std::vector<std::string> files, bool paragraphs);

  // At most `max_passages` passages of about `max_bytes` in all; none at the end. Errors are those
  // of LineInput::Next().
  absl::StatusOr<std::vector<Passage>> Next(int max_passages, size_t max_bytes);

  // LineInput::Stop().
  void Stop() { input_.Stop(); }

  // The names of the files so far that have no text, which give no passage.
  const std::vector<std::string>& empty_files() const { return empty_files_; }

  // "" for standard input.
  const std::string& file(size_t source) const { return input_.source_name(source); }
  // "FILE:12" or "line 12": where a part of a passage is, which begins with its byte `offset`.
  std::string Where(const Passage& passage, size_t offset) const;
  // The line of that, in its file.
  static int64_t Line(const Passage& passage, size_t offset);

 private:
  // The next line, or nullopt at the end; reads several at a time.
  absl::StatusOr<std::optional<LineInput::Item>> NextLine();
  absl::StatusOr<std::optional<Passage>> NextPassage();
  // Notes that the files before `source` have ended.
  void EndFilesBefore(size_t source);

  LineInput input_;
  const bool paragraphs_;
  std::vector<LineInput::Item> lines_;  // that were read
  size_t next_line_ = 0;                // of them
  // Where the next line is. A line of another file than the one before begins at 0.
  size_t source_ = 0;
  int64_t passages_ = 0;  // of this file so far
  int64_t byte_ = 0;
  int64_t character_ = 0;
  std::vector<std::string> empty_files_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_PASSAGE_INPUT_H_
