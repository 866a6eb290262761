// How texts are sent: the flags of the commands that send some.
#ifndef SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
#define SRU_CLIENT_COMMANDS_TEXT_INPUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/commands/line_input.h"
#include "client/flag_set.h"
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
  // A blank line is a text if texts without tokens are skipped by the server.
  LineInput::Lines lines() const {
    return skip_empty ? LineInput::Lines::kAll : LineInput::Lines::kSkipBlank;
  }
};

// The text as it is or, if `tokens`, cut at its spaces.
v1::Sequence MakeSequence(const std::string& text, bool tokens);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
