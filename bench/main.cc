// sru_bench: measures an SRU inference server, or a part of it, on this machine.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "bench/commands.h"

int main(int argc, char** argv) {
  // gRPC's own log lines would come between the user and the report.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  const std::vector<std::string> args(argv + 1, argv + argc);
  const sru::client::Program program = {"sru_bench",
                                        "measures an SRU inference server on this machine.", "", "",
                                        sru::BuildText("sru_bench")};
  const int exit_code = sru::client::RunProgram(
      program, {&sru::bench::kLoad, &sru::bench::kGenerate, &sru::bench::kModel}, args);
  if (exit_code != sru::bench::kExitOk || std::cout.flush().good()) return exit_code;
  std::cerr << "sru_bench " << args[0] << ": cannot write to standard output\n";
  return sru::bench::kExitFailed;
}
