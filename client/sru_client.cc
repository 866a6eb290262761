// sru_client: the command line of an SRU inference server. Each subcommand is a file of
// client/commands/.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "base/build_info.h"
#include "client/commands/commands.h"

int main(int argc, char** argv) {
  // gRPC's own log lines would come between the user and the message that matters.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  const sru::client::Program program = {
      "sru_client", "calls an SRU inference server.", " [TEXT ...]",
      " Exit codes: 0 all is well, 1 a call\nfailed, 2 the command line is wrong.",
      sru::BuildText("sru_client")};
  const int exit_code =
      sru::client::RunProgram(program, sru::client::kCommands, {argv + 1, argv + argc});
  if (std::cout.flush().good()) return exit_code;
  std::cerr << "sru_client: standard output cannot be written\n";
  return std::max(exit_code, sru::client::kExitFailed);
}
