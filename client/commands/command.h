// Command: a subcommand of sru_client, and what every subcommand does with its command line.
//
// Each subcommand is one file of this folder that defines its entry; commands.h lists them.
#ifndef SRU_CLIENT_COMMANDS_COMMAND_H_
#define SRU_CLIENT_COMMANDS_COMMAND_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/flag_set.h"

namespace sru::client {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a call failed
inline constexpr int kExitUsage = 2;   // the command line is wrong

struct Command {
  const char* name;
  const char* summary;  // its line in `sru_client --help`
  const char* help;     // what its own --help prints above the flags: purpose, usage, examples
  // Takes the arguments after the subcommand's name and returns the program's exit code.
  int (*run)(const Command& command, const std::vector<std::string>& args);
};

// Parses flags and arguments. Returns the exit code if the program should end now: after --help,
// which prints the command's help and its flags, and after an error.
std::optional<int> ParseArgs(const Command& command, const std::vector<std::string>& args,
                             FlagSet* flags, std::vector<std::string>* positional);

// Prints what is wrong with the command line to standard error and returns the exit code for it.
int UsageError(const Command& command, absl::string_view message);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_COMMAND_H_
