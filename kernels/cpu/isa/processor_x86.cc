// What an x86 processor has (cpu_isa.h).
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/isa/cpu_isa.h"

namespace sru::kernels::cpu {
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf ReadLeaf(unsigned leaf, unsigned subleaf) {
  Leaf l;
  __get_cpuid_count(leaf, subleaf, &l.eax, &l.ebx, &l.ecx, &l.edx);
  return l;
}

bool AsksForTiles() {
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  const unsigned features = ReadLeaf(7, 0).edx;
  if ((features & kBf16) == 0 || (features & kTile) == 0) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512vl");
}

bool HasAvx512Bf16() {
  constexpr unsigned kBf16 = 1u << 5;
  static const bool has = HasAvx512() && (ReadLeaf(7, 1).eax & kBf16) != 0;
  return has;
}

bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

bool HasAmx() {
  static const bool has = HasAvx512Bf16() && AsksForTiles();
  return has;
}

bool HasNeon() { return false; }

}  // namespace sru::kernels::cpu
