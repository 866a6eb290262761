// The subcommand model in builds without the CPU backend (SRU_CPU=OFF).
#include <iostream>

#include "bench/commands.h"

namespace sru::bench {

constexpr Command kModel = {
    "model", "time a model of a repository by length and batch, without a server", "",
    [](const Command& /*command*/, const std::vector<std::string>& /*args*/) {
      std::cerr << "sru_bench model: this build has no CPU backend (SRU_CPU=OFF)\n";
      return kExitFailed;
    }};

}  // namespace sru::bench
