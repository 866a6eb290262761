// Times a stack of SRU layers against what its matrix products alone cost, and its scans alone, in
// one alternating run, so that the ratios hold on a machine whose speed moves.
#ifndef SRU_KERNELS_BENCH_LAYER_BENCH_H_
#define SRU_KERNELS_BENCH_LAYER_BENCH_H_

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/measure.h"

namespace sru::kernels {

struct LayerBenchOptions {
  std::string backend = "cpu";
  BackendOptions hardware;
  DataType dtype = DataType::kFloat32;
  int length = 32;     // tokens per sequence
  int batch = 32;      // sequences
  int input = 0;       // features per token; 0 = as many as a layer puts out
  int hidden = 128;    // per direction
  int directions = 2;  // 1 or 2
  int layers = 1;
  Rounds rounds;
};

struct LayerBenchResult {
  double layer_us = 0;      // median time of Run() with token vectors as the only output
  double products_us = 0;   // median time of oneDNN's matmul on [length * batch][input] x
                            // [input][n], all directions and gates of a layer in one product,
                            // weights packed once (bare_product.h); the sum over the layers
  double scan_us = 0;       // median time of all scans alone, U in the cache
  double ratio = 0;         // layer_us / products_us
  double gflops = 0;        // of the products alone
  int rounds = 0;           // that were run
  std::string description;  // of the backend
};

// Fails when the backend cannot be made or the options are out of range.
Status RunLayerBench(const LayerBenchOptions& options, LayerBenchResult* result);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_LAYER_BENCH_H_
