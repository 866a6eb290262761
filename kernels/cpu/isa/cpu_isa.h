// The instruction sets of the CPU backend: what the machine has, and which one is used.
//
//   name           float32                     bfloat16
//   avx2           oneDNN, AVX2                products in float32 of values rounded to bfloat16
//   avx512         oneDNN, AVX-512             the same
//   avx512_bf16    oneDNN, AVX-512             own tiles with VDPBF16PS (tile_kernel.h)
//   amx            oneDNN, AVX-512             own tiles with TDPBF16PS
//   neon           oneDNN for arm64, NEON      products in float32 of values rounded to bfloat16
#ifndef SRU_KERNELS_CPU_ISA_CPU_ISA_H_
#define SRU_KERNELS_CPU_ISA_CPU_ISA_H_

#include <string>

#include "kernels/cpu/tiles/tile_kernel.h"
#include "kernels/status.h"

namespace sru::kernels::cpu {

struct CpuIsa {
  std::string name;                   // one of the above, or "baseline" where there is none
  const TileKernel* tiles = nullptr;  // for stacks in bfloat16
  // Whether oneDNN multiplies in bfloat16, for the operations of a program that are no stacks.
  bool multiplies_bfloat16 = false;
  std::string note;  // why it is not the best that the processor claims to have, or empty
};

// What the processor has: processor_x86.cc, processor_other.cc.
bool HasAvx2();
bool HasAvx512();
bool HasAvx512Bf16();
bool HasAvx512Vnni();
// Also asks the system for the permission to use tiles, which the process then keeps.
bool HasAmx();
bool HasNeon();

// `name` is one of the above or "auto", the best that the machine has.
//
// oneDNN and Highway are limited for the whole process: one that has forced an instruction set
// cannot change to another. kInvalidArgument for an unknown name; kUnavailable, with what the
// machine has, when it lacks this one or the process has settled on another.
Status ChooseCpuIsa(const std::string& name, CpuIsa* isa);

// Whether a kernel's products of small matrices are right, in every arrangement.
bool MultipliesRight(const TileKernel& kernel);

// Makes `kernel` the tiles of "amx_emulated", a name that only tests have. Call before
// ChooseCpuIsa().
void AddEmulatedTiles(const TileKernel& kernel);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_ISA_CPU_ISA_H_
