// The subcommands layer and model in builds without the CPU backend (SRU_CPU=OFF): they cannot be built, because
// they measure the engine, against oneDNN.
#include <iostream>

#include "bench/commands.h"

namespace sru::bench {
namespace {

int NotBuilt(const char* command) {
  std::cerr << "sru_bench " << command << ": this build has no CPU backend (SRU_CPU=OFF)\n";
  return kExitFailed;
}

}  // namespace

int LayerMain(const std::vector<std::string>& /*args*/) { return NotBuilt("layer"); }
int ModelMain(const std::vector<std::string>& /*args*/) { return NotBuilt("model"); }

}  // namespace sru::bench
