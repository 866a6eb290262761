#include "client/commands/command.h"

#include <iostream>
#include <utility>

namespace sru::client {

std::optional<int> ParseArgs(const Command& command, const std::vector<std::string>& args,
                             FlagSet* flags, std::vector<std::string>* positional) {
  auto parsed = flags->Parse(args);
  if (!parsed.ok()) return UsageError(command, parsed.status().message());
  if (flags->help_requested()) {
    std::cout << command.help << "\nflags:\n" << flags->Help();
    return kExitOk;
  }
  *positional = *std::move(parsed);
  return std::nullopt;
}

int UsageError(const Command& command, absl::string_view message) {
  std::cerr << "sru_client " << command.name << ": " << message << "\nsru_client " << command.name
            << " --help shows the flags, with examples\n";
  return kExitUsage;
}

}  // namespace sru::client
