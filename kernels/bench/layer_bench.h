// Times one SRU layer against what its matrix products alone cost, in one alternating run, so that
// the ratio holds on a machine whose speed moves. Both on one thread, in the time that it is on a
// core (of backend cuda: the wall's).
#ifndef SRU_KERNELS_BENCH_LAYER_BENCH_H_
#define SRU_KERNELS_BENCH_LAYER_BENCH_H_

#include <string>

#include "kernels/backend.h"

namespace sru::kernels {

struct LayerBenchOptions {
  std::string backend = "cpu";
  DataType dtype = DataType::kFloat32;
  std::string cpu_isa = "auto";  // BackendOptions::cpu_isa
  int length = 32;               // tokens per sequence
  int batch = 32;                // sequences
  int input = 256;               // features per token
  int hidden = 128;              // per direction
  bool bidirectional = true;
  int rounds = 51;  // of layer, products, layer, products, ...; odd, so that the median is a sample
};

struct LayerBenchResult {
  double layer_us = 0;      // median time of Run() with token vectors as the only output
  double products_us = 0;   // median time of oneDNN's matmul on [length * batch][input] x
                            // [input][n], all directions and gates in one product, weights packed
                            // once. With bfloat16: of bfloat16 x and weights, float32 sums and
                            // results, where the processor has that
  double ratio = 0;         // layer_us / products_us
  double gflops = 0;        // of the product alone
  std::string description;  // of the backend
};

// Fails when the backend cannot be made or the options are out of range.
Status RunLayerBench(const LayerBenchOptions& options, LayerBenchResult* result);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_LAYER_BENCH_H_
