// sru_bench: measures an SRU inference server, or a part of it, on this machine.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "bench/commands.h"

namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args);
};

constexpr Command kCommands[] = {
    {"load", "send calls to a server and report throughput and latency", sru::bench::LoadMain},
    {"generate", "have a language model write texts and report tokens/s and their times",
     sru::bench::GenerateMain},
    {"model", "time a model of a repository by length and batch, without a server",
     sru::bench::ModelMain},
};

void PrintUsage(std::ostream& out) {
  out << "sru_bench measures an SRU inference server on this machine.\n\nusage: sru_bench "
         "SUBCOMMAND [--flag=value ...]\n\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(10 - std::string(command.name).size(), ' ')
        << command.summary << "\n";
  }
  out << "\nsru_bench SUBCOMMAND --help shows its flags, with examples; --version.\n";
}

}  // namespace

int main(int argc, char** argv) {
  // gRPC's own log lines would come between the user and the report.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) {
    PrintUsage(std::cerr);
    return sru::bench::kExitUsage;
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    PrintUsage(std::cout);
    return sru::bench::kExitOk;
  }
  if (args[0] == "--version") {
    std::cout << sru::BuildText("sru_bench") << "\n";
    return sru::bench::kExitOk;
  }
  for (const Command& command : kCommands) {
    if (args[0] != command.name) continue;
    const int exit_code = command.run({args.begin() + 1, args.end()});
    // Some commands print through stdio.
    std::fflush(stdout);
    if (exit_code != sru::bench::kExitOk || (std::cout.flush() && std::ferror(stdout) == 0)) {
      return exit_code;
    }
    std::cerr << "sru_bench " << command.name << ": cannot write to standard output\n";
    return sru::bench::kExitFailed;
  }
  std::cerr << "sru_bench: there is no subcommand '" << args[0] << "'\n\n";
  PrintUsage(std::cerr);
  return sru::bench::kExitUsage;
}
