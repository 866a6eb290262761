// The flags that every subcommand of sru_client has: where the server is, how to reach it, and
// whether to print JSON.
#ifndef SRU_CLIENT_COMMANDS_COMMON_FLAGS_H_
#define SRU_CLIENT_COMMANDS_COMMON_FLAGS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/calls.h"
#include "client/commands/command.h"
#include "client/flag_set.h"

namespace sru::client {

struct CommonFlags {
  ConnectOptions connect;
  bool json = false;

  void AddTo(FlagSet* flags, const char* address_help = "HOST:PORT of the server",
             const char* address_variable = "SRU_ADDRESS");

  // "UNAVAILABLE: the server is shutting down" and what the user can do about it.
  std::string Explain(const absl::Status& status) const;
};

// Connects, or prints why it cannot and returns null with the exit code.
std::unique_ptr<Client> MakeClient(const Command& command, const CommonFlags& flags,
                                   int* exit_code);

// Prints a call's error to standard error and returns the exit code for it.
int CallError(const Command& command, const CommonFlags& flags, const absl::Status& status);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_COMMON_FLAGS_H_
