#include "kernels/bench/arranged_stack.h"

namespace sru::kernels {

Status ChooseTiles(const BackendOptions& hardware, cpu::CpuIsa* isa) {
  const Status status = cpu::ChooseCpuIsa(hardware.cpu_isa, isa);
  if (!status.ok() || isa->tiles != nullptr) return status;
  return InvalidArgument("arrangement: cpu_isa ", isa->name, " has no tiles");
}

Status ArrangedStack::Create(const StackSpec& spec, const BackendOptions& hardware,
                             const std::string& arrangement, const WorkspaceLimits& limits,
                             std::unique_ptr<ArrangedStack>* arranged) {
  cpu::CpuIsa isa;
  SRU_RETURN_IF_ERROR(ChooseTiles(hardware, &isa));
  cpu::TileArrangement parsed;
  if (!cpu::ParseTileArrangement(isa.tiles->unit, arrangement, &parsed)) {
    return InvalidArgument("arrangement: '", arrangement, "' is none of cpu_isa ", isa.name,
                           "; 'all' runs all of them");
  }
  arranged->reset(new ArrangedStack(spec, *isa.tiles, parsed, limits));
  return OkStatus();
}

ArrangedStack::ArrangedStack(const StackSpec& spec, const cpu::TileKernel& kernel,
                             const cpu::TileArrangement& arrangement, const WorkspaceLimits& limits)
    : arrangement_(arrangement),
      stack_(spec, kernel),
      parallel_(1, 1),
      workspace_(stack_, limits, 1) {
  stack_.arrangement = &arrangement_;
}

}  // namespace sru::kernels
