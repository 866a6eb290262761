#include "bench/engine_flags.h"

#include <algorithm>

#include "base/status.h"

namespace sru::bench {

void EngineFlags::AddFlags(client::FlagSet* flags) {
  flags->Add("backend", &backend, "cpu, cuda or reference");
  flags->Add("cpu_isa", &cpu_isa, "instruction set of the CPU backend, as sru_server's");
  flags->Add("rounds", &rounds, "most measurements of each, alternating");
  flags->Add("seconds", &seconds, "per row, after which no further round is begun");
  flags->Add("core", &core, "core to run on; -1 = the present one");
  flags->Add("json", &json, "print one JSON object");
}

kernels::BackendOptions EngineFlags::Hardware() const {
  kernels::BackendOptions hardware;
  hardware.cpu_isa = cpu_isa;
  hardware.cpu_threads = 1;
  return hardware;
}

absl::StatusOr<kernels::Rounds> EngineFlags::Rounds() const {
  if (rounds < 1 || rounds > 1 << 20) {
    return InvalidArgument("--rounds: expected 1 to ", 1 << 20, ", found ", rounds);
  }
  kernels::Rounds result;
  result.most = rounds;
  result.least = std::min(3, rounds);
  result.seconds = seconds;
  return result;
}

}  // namespace sru::bench
