// The subcommands of sru_client, and what each does with its command line: parse it, check it and
// connect. Each is one file of this folder that defines its entry.
#ifndef SRU_CLIENT_COMMANDS_COMMANDS_H_
#define SRU_CLIENT_COMMANDS_COMMANDS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/flags.h"
#include "client/calls.h"
#include "client/command_line.h"

namespace sru::client {

extern const Command kClassify;
extern const Command kEncode;
extern const Command kScore;
extern const Command kGenerate;
extern const Command kAnswer;
extern const Command kTranslate;
extern const Command kTag;
extern const Command kTokenize;
extern const Command kModels;
extern const Command kHealth;
extern const Command kAdmin;

// In the order in which --help lists them.
inline constexpr const Command* kCommands[] = {&kClassify, &kEncode,    &kScore, &kGenerate,
                                               &kAnswer,   &kTranslate, &kTag,   &kTokenize,
                                               &kModels,   &kHealth,    &kAdmin};

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

#endif  // SRU_CLIENT_COMMANDS_COMMANDS_H_
