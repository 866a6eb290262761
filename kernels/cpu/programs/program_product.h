// The products of a program's operations, z = W x for the rows of a value (program.h). W may have
// as many rows as a vocabulary has words, so it is multiplied in blocks of columns of z: a block of
// some rows stays in the second-level cache, where the operation makes of it what it wants.
//
//   BlockedProduct product(arithmetic, source, weight, k, n);  // packs the weights
//   ProductThread thread;                                      // one per thread
//   thread.Add(product);
//   thread.LayOut(&plan);
//   thread.Multiply(product, x, rows, [&](const ProductPiece& piece) { ... });
//
// A row's results have the same bits for any number of rows and at any place among them.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PRODUCT_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PRODUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Immutable and thread-safe.
class BlockedProduct {
 public:
  struct Block {
    int first = 0;    // of z's columns
    int columns = 0;  // without padding
    std::unique_ptr<Product> product;
  };

  // `weight` is [n][k]; it is read from `source` and copied. Throws dnnl::error and std::bad_alloc.
  BlockedProduct(const Arithmetic& arithmetic, WeightSource* source, const FloatView& weight, int k,
                 int n);

  int k() const { return k_; }
  int n() const { return n_; }
  // Columns of all blocks with their padding; only the last block has any.
  int padded_n() const { return blocks_.back().first + blocks_.back().product->n(); }
  // Rows of a piece, at most.
  int piece_rows() const { return piece_rows_; }
  // Rows that are worth preparing together: all blocks are multiplied by them in turn.
  int group_rows() const;
  const std::vector<Block>& blocks() const { return blocks_; }
  const Arithmetic& arithmetic() const { return arithmetic_; }
  double operations(int rows) const { return 2.0 * rows * k_ * n_; }
  size_t bytes() const;

 private:
  int k_;
  int n_;
  int piece_rows_;
  Arithmetic arithmetic_;
  std::vector<Block> blocks_;
};

// A block of columns of some adjacent rows.
struct ProductPiece {
  int row = 0;  // the first, counted from the first of the rows that are multiplied
  int rows = 0;
  int first = 0;  // the first column
  int columns = 0;
  float* z = nullptr;  // [rows][stride], may be changed
  size_t stride = 0;   // columns and their padding, whose values are 0 * x
};

// What one thread needs for the products of a program. Not thread-safe.
class ProductThread {
 public:
  // Makes room for `product`, before LayOut(). Throws std::bad_alloc and dnnl::error.
  void Add(const BlockedProduct& product);
  void LayOut(RunPlan* plan);

  // Multiplies the rows of x that `which` names in ascending order, or rows 0 to `rows` - 1 when it
  // is null, and calls body(piece) for each block of each run of rows. The blocks of a row come in
  // ascending order. product.piece_rows() rows past the last one named must be readable. `rows` is
  // at most product.group_rows(). Throws dnnl::error.
  template <typename Body>
  void Multiply(const BlockedProduct& product, const float* x, const int32_t* which, int rows,
                const Body& body) {
    x = Prepare(product, x, which, rows);
    for (const BlockedProduct::Block& block : product.blocks()) {
      ProductPiece piece;
      piece.first = block.first;
      piece.columns = block.columns;
      piece.z = z_.data();
      piece.stride = block.product->n();
      for (piece.row = 0; piece.row < rows; piece.row += piece.rows) {
        piece.rows = std::min(product.piece_rows(), rows - piece.row);
        Run(product, block, x, piece);
        body(piece);
      }
    }
  }

 private:
  // The rows as the product takes them: x itself, or in this object.
  const float* Prepare(const BlockedProduct& product, const float* x, const int32_t* which,
                       int rows);
  void Run(const BlockedProduct& product, const BlockedProduct::Block& block, const float* x,
           const ProductPiece& piece);

  RunArray<float> x_;           // rows that are not adjacent or are rounded
  RunArray<BFloat16> rounded_;  // rows in bfloat16
  RunArray<float> z_;
  std::unordered_map<const ProductShape*, ProductRunner> runners_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PRODUCT_H_
