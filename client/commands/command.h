// Command: a subcommand of sru_client, and what every subcommand does with its command line: parse
// it, check it and connect.
//
// Each subcommand is one file of this folder that defines its entry; commands.h lists them.
#ifndef SRU_CLIENT_COMMANDS_COMMAND_H_
#define SRU_CLIENT_COMMANDS_COMMAND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/flags.h"
#include "client/calls.h"

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

// The flags that every subcommand has: where the server is, how to reach it, and whether to print
// JSON.
struct CommonFlags {
  ConnectOptions connect;
  bool json = false;
  const char* address_help = "HOST:PORT of the server";
  const char* address_variable = "SRU_ADDRESS";

  // "UNAVAILABLE: the server is shutting down" and what the user can do about it.
  std::string Explain(const absl::Status& status) const;
};

struct Start {
  std::vector<std::string> arguments;  // those that are no flags
  std::unique_ptr<Client> client;      // null: the program ends now, with `exit_code`
  int exit_code = kExitOk;
};

// Adds the common flags, parses the command line, lets `check` look at it and connects. Prints the
// help if it is asked for, and what is wrong with the command line or the connection.
Start Begin(
    const Command& command, const std::vector<std::string>& args, Flags* flags, CommonFlags* common,
    absl::FunctionRef<absl::Status(const std::vector<std::string>& arguments)> check =
        [](const auto& /*arguments*/) { return absl::OkStatus(); });

// Prints a message, or a call's error, to standard error and returns the exit code for it.
int Failure(const Command& command, absl::string_view message);
int CallError(const Command& command, const CommonFlags& flags, const absl::Status& status);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_COMMAND_H_
