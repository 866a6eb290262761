// The texts that classify and encode send: the flags that say how, and where the texts come from.
#ifndef SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
#define SRU_CLIENT_COMMANDS_TEXT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/flag_set.h"
#include "client/line_reader.h"
#include "client/messages_fwd.h"

namespace sru::client {

struct InputFlags {
  std::string model;
  int64_t version = 0;
  bool truncate = false;
  bool tokens = false;
  bool skip_empty = false;
  std::string priority;
  int batch = 32;

  // `can_truncate`: whether the call has that field.
  void AddTo(FlagSet* flags, bool can_truncate = true);
  // For a call that has the field skip_empty.
  void AddSkipEmpty(FlagSet* flags);
  // Parses `priority`. kInvalidArgument names the flag that is out of range.
  absl::Status Check(v1::Priority* parsed_priority) const;
};

// Texts from the arguments or, without any, from standard input. Not thread-safe.
class TextInput {
 public:
  struct Item {
    int64_t line = 0;  // from 1
    std::string text;
  };

  // `keep_blank`: blank lines are texts too, rather than skipped.
  explicit TextInput(std::vector<std::string> texts, bool keep_blank = false);

  bool from_stdin() const { return from_stdin_; }

  // At most `max_items` texts; none at the end.
  std::vector<Item> Next(int max_items);

 private:
  std::vector<std::string> texts_;
  size_t next_ = 0;
  bool from_stdin_ = false;
  const bool keep_blank_;
  int64_t line_ = 0;
  LineReader reader_;
};

// The text as it is or, if `tokens`, cut at its spaces.
v1::Sequence MakeSequence(const std::string& text, bool tokens);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
