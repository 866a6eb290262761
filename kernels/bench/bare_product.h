// oneDNN's matrix product alone, the least that a layer can cost: y = x w for one number of rows, w
// packed once in the layout that oneDNN chooses. On one thread. It knows nothing of the CPU
// backend, so that it stays what the backend is measured against.
#ifndef SRU_KERNELS_BENCH_BARE_PRODUCT_H_
#define SRU_KERNELS_BENCH_BARE_PRODUCT_H_

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/system_case.h"

namespace sru::kernels {

// All products of a model, one after the other. Those of equal shapes have weights of their own and
// share x and y, to save memory.
class BareProducts {
 public:
  // Random values. x and w are stored as `dtype`, y always as float32, which is what a scan reads.
  // Throws dnnl::error and std::bad_alloc, as does Run().
  BareProducts(DataType dtype, const std::vector<ProductSize>& sizes);

  void Run();

 private:
  struct Product {
    dnnl::matmul primitive;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Product> products_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_BARE_PRODUCT_H_
