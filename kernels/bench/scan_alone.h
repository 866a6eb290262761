// The scans of a stack on their own (cpu/base/scan.h), without the products that they wait for: all
// layers, directions and sequences, with U of at most kRows tokens, so that it stays in the cache.
#ifndef SRU_KERNELS_BENCH_SCAN_ALONE_H_
#define SRU_KERNELS_BENCH_SCAN_ALONE_H_

#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/stack_spec.h"

namespace sru::kernels {

class ScanAlone {
 public:
  // The sizes and variants of `spec`, random values. Throws std::bad_alloc.
  ScanAlone(const StackSpec& spec, const std::vector<int>& lengths);

  void Run();

 private:
  static constexpr int kRows = 64;

  struct LayerScan {
    cpu::ScanParameters parameters;
    int directions;
  };

  void RunDirection(const cpu::ScanParameters& parameters);

  const std::vector<int> lengths_;
  std::vector<LayerScan> layers_;
  cpu::AlignedBuffer constants_;
  cpu::AlignedBuffer u_;  // [kRows][planes]
  cpu::AlignedBuffer x_;  // [kRows][padded]
  cpu::AlignedBuffer h_;  // [kRows][padded]
  cpu::AlignedBuffer c_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_SCAN_ALONE_H_
