// The products of a decode step on the GPU, each algorithm for itself.
#ifndef SRU_KERNELS_BENCH_GPU_PRODUCTS_H_
#define SRU_KERNELS_BENCH_GPU_PRODUCTS_H_

#include <memory>

#include "kernels/cuda/device/gpu.h"

namespace sru::kernels::cuda {

// Prints a JSON object a line for each shape of the paper's systems, type and number of rows: the
// microseconds, with weights from memory, of our own product and of the library's
// fastest with the reference's bits (product_plan.h), and whether ours has them.
Status PrintProducts(const std::shared_ptr<Gpu>& gpu);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_BENCH_GPU_PRODUCTS_H_
