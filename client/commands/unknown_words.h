// UnknownWords: counts the words that a model's vocabulary does not have, and warns if those were most.
#ifndef SRU_CLIENT_COMMANDS_UNKNOWN_WORDS_H_
#define SRU_CLIENT_COMMANDS_UNKNOWN_WORDS_H_

#include <cstdint>
#include <string>

#include "client/commands/command.h"

namespace sru::client {

// Not thread-safe.
class UnknownWords {
 public:
  // Of one answer: its tokens, and those of them that are unknown.
  void Add(int64_t tokens, int64_t unknown) {
    tokens_ += tokens;
    unknown_ += unknown;
  }

  // Prints a line to standard error if more than half were unknown. Call it once, at the end.
  void Warn(const Command& command) const;

 private:
  int64_t tokens_ = 0;
  int64_t unknown_ = 0;
};

// A text's cell in a column of token counts: "7", "7 (cut)", "7 (cut, 2 unknown)".
std::string TokenCell(int tokens, bool truncated, int unknown);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_UNKNOWN_WORDS_H_
