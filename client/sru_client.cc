// sru_client: the command line of an SRU inference server. Each subcommand is a file of
// client/commands/.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "client/commands/commands.h"

namespace sru::client {
namespace {

void PrintUsage(std::ostream& out) {
  out << "sru_client calls an SRU inference server.\n\n"
         "usage: sru_client SUBCOMMAND [--flag=value ...] [TEXT ...]\n\n";
  size_t width = 0;
  for (const Command* command : kCommands) width = std::max(width, std::strlen(command->name));
  for (const Command* command : kCommands) {
    out << "  " << command->name << std::string(width + 2 - std::strlen(command->name), ' ')
        << command->summary << "\n";
  }
  out << "\nsru_client SUBCOMMAND --help shows its flags, with examples; --version. Exit codes: 0 "
         "all is "
         "well, "
         "1 a call\nfailed, 2 the command line is wrong.\n";
}

int RunCommand(const std::vector<std::string>& args) {
  if (args.empty()) {
    PrintUsage(std::cerr);
    return kExitUsage;
  }
  for (const Command* command : kCommands) {
    if (args[0] == command->name) return command->run(*command, {args.begin() + 1, args.end()});
  }
  if (args[0] == "help" || args[0] == "--help" || args[0] == "-h") {
    PrintUsage(std::cout);
    return kExitOk;
  }
  if (args[0] == "--version") {
    std::cout << BuildText("sru_client") << "\n";
    return kExitOk;
  }
  std::cerr << "sru_client: there is no subcommand '" << args[0] << "'\n\n";
  PrintUsage(std::cerr);
  return kExitUsage;
}

int Main(const std::vector<std::string>& args) {
  const int exit_code = RunCommand(args);
  if (std::cout.flush().good()) return exit_code;
  std::cerr << "sru_client: standard output cannot be written\n";
  return std::max(exit_code, kExitFailed);
}

}  // namespace
}  // namespace sru::client

int main(int argc, char** argv) {
  // gRPC's own log lines would come between the user and the message that matters.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  return sru::client::Main(std::vector<std::string>(argv + 1, argv + argc));
}
