// For builds without the CPU backend (SRU_CPU=OFF).
#include "kernels/bench/layer_bench.h"
#include "kernels/cpu/cpu_backend.h"

namespace sru::kernels {
namespace {

Status NotBuilt() {
  return Status(StatusCode::kUnavailable, "backend cpu: this build has none (SRU_CPU=OFF)");
}

}  // namespace

bool CpuBackendIsBuilt() { return false; }

Status CreateCpuBackend(const BackendOptions& /*options*/, std::unique_ptr<Backend>* /*backend*/) {
  return NotBuilt();
}

Status RunLayerBench(const LayerBenchOptions& /*options*/, LayerBenchResult* /*result*/) {
  return NotBuilt();
}

}  // namespace sru::kernels
