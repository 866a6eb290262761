// The subcommand model in builds without the CPU backend (SRU_CPU=OFF).
#include <iostream>

#include "bench/commands.h"

namespace sru::bench {

int ModelMain(const std::vector<std::string>& /*args*/) {
  std::cerr << "sru_bench model: this build has no CPU backend (SRU_CPU=OFF)\n";
  return kExitFailed;
}

}  // namespace sru::bench
