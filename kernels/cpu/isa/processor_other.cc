// What a processor that is not x86 has (cpu_isa.h), which is no instruction set of x86, and no
// tiles.
#include <cstdlib>

#include "kernels/cpu/int8/int8_kernel.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/tiles/tile_kernel.h"

namespace sru::kernels::cpu {

bool HasAvx2() { return false; }
bool HasAvx512() { return false; }
bool HasAvx512Bf16() { return false; }
bool HasAvx512Vnni() { return false; }
bool HasAmx() { return false; }

bool HasNeon() {
#ifdef __aarch64__
  return true;
#else
  return false;
#endif
}

// Never called, because of the above.
const TileKernel& AmxTileKernel() { std::abort(); }
const TileKernel& Avx512TileKernel() { std::abort(); }
const Int8Kernel& VnniInt8Kernel() { return PairInt8Kernel(); }

}  // namespace sru::kernels::cpu
