// Matrix products y = x w with w packed once: on oneDNN, with primitives made once for a few row
// counts, or our own with w in int8 (int8_product.h).
//
//   Product product(ProductType::kFloat32, weights, k, n, RowBuckets(max_rows));  // packs them
//   ProductRunner runner(product);                                                // one per worker
//   runner.Run(product, x, rows, y);                            // rows <= product.max_rows()
//
// x is [rows][k], y is [rows][n], row-major without gaps. `rows` is rounded up to the next row
// count that a primitive exists for, so max_rows() rows of x must be readable and of y writable;
// the contents of the rows past `rows` are of no use afterwards.
//
// A row's result has the same bits for any number of rows and at any place among them. oneDNN does
// not promise that, and on AVX2 it is not so for some row counts; therefore each row count is tried
// once when its primitive is made (row_probe.h), and those that differ are not used. All row counts
// of a product are computed by the same implementation of oneDNN's, the first one that serves few
// rows as well as many: two of them may sum in different orders, as those with and without AMX do.
//
// Products in bfloat16 take x in bfloat16; sums and y are float32. Those in int8 take and give
// float32 all the same. In int8 any number of rows is multiplied as it is, and n is a multiple of
// kRowAlignment.
//
// Constructors and Run() throw dnnl::error; the backend catches it at its interface.
#ifndef SRU_KERNELS_CPU_STACKS_PRODUCT_H_
#define SRU_KERNELS_CPU_STACKS_PRODUCT_H_

#include <algorithm>
#include <cstddef>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/int8/int8_product.h"

namespace sru::kernels::cpu {

// Row counts up to max_rows that primitives are made for, ascending; the last is max_rows.
std::vector<int> RowBuckets(int max_rows);

enum class ProductType { kFloat32, kBFloat16, kInt8 };

// The primitives of one (k, n): they do not depend on the weights' values. Each is made once for
// all models of the process, which share it for as long as one of them has it: what is tried and
// made when the first is loaded is there for the others.
struct ProductShape {
  struct Bucket {
    int rows;
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
  };

  ProductType type = ProductType::kFloat32;
  int k = 0;
  int n = 0;
  int max_rows = 0;
  // Of oneDNN's.
  dnnl::memory::desc packed_weights;
  std::vector<Bucket> buckets;  // ascending in rows, not empty
};

// A weight matrix and the primitives that multiply by it. Immutable, thread-safe.
class Product {
 public:
  // `weights` is [k][n]; it is copied. `row_counts` as from RowBuckets().
  Product(ProductType type, const float* weights, int k, int n, const std::vector<int>& row_counts);

  int k() const { return shape_->k; }
  int n() const { return shape_->n; }
  // At most the largest of the row counts that were asked for.
  int max_rows() const { return shape_->max_rows; }
  size_t bytes() const { return shape_->packed_weights.get_size() + int8_weights_.bytes(); }
  const ProductShape& shape() const { return *shape_; }
  // Those of the shape's type.
  const dnnl::memory& weights() const { return weights_; }
  const Int8Matrix& int8_weights() const { return int8_weights_; }

 private:
  std::shared_ptr<const ProductShape> shape_;
  dnnl::memory weights_;
  Int8Matrix int8_weights_;
};

// Runs the products of one shape for one worker. Keeps the argument maps, so that a call creates
// nothing of ours.
class ProductRunner {
 public:
  explicit ProductRunner(const ProductShape& shape);
  explicit ProductRunner(const Product& product) : ProductRunner(product.shape()) {}

  void Run(const Product& product, const float* x, int rows, float* y);
  void Run(const Product& product, const BFloat16* x, int rows, float* y);

 private:
  struct Call {
    dnnl::matmul primitive;
    int rows;
    dnnl::memory x;
    dnnl::memory y;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  void Execute(const Product& product, void* x, int rows, float* y);

  dnnl::stream stream_;
  AlignedArray<uint8_t> scratchpad_;  // of all calls
  std::vector<Call> calls_;           // ascending in rows
  std::vector<uint8_t> call_of_;      // [rows]: index of the smallest call with at least that many
};

// y = x w for any number of rows. y must have room for product.max_rows() rows past the last.
inline void RunInChunks(const Product& product, ProductRunner& runner, const float* x, int rows,
                        float* y) {
  for (int row = 0; row < rows; row += product.max_rows()) {
    runner.Run(product, x + static_cast<size_t>(row) * product.k(),
               std::min(product.max_rows(), rows - row),
               y + static_cast<size_t>(row) * product.n());
  }
}

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_PRODUCT_H_
