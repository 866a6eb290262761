// AMX in plain C++, with the same tiles and order of sums: runs slowly on any arm64 and on x86 with
// AVX2.
#ifndef SRU_TESTS_TESTING_EMULATED_TILES_H_
#define SRU_TESTS_TESTING_EMULATED_TILES_H_

#include "kernels/cpu/tiles/tile_kernel.h"

namespace sru::kernels::cpu {

const TileKernel& EmulatedTileKernel();

}  // namespace sru::kernels::cpu

#endif  // SRU_TESTS_TESTING_EMULATED_TILES_H_
