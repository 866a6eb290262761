#include "kernels/cpu/programs/program_product.h"

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/row_layout.h"

namespace sru::kernels::cpu {
namespace {

// Rows `first` to `first` + `columns` of the matrix, transposed: [k][padded].
void PackBlock(WeightSource* source, const FloatView& weight, int k, int first, int columns,
               int padded, AlignedBuffer* packed) {
  const FloatView part =
      weight.Part(static_cast<size_t>(first) * k, static_cast<size_t>(columns) * k);
  const ReadWeights readable(source, part);
  packed->Reset(static_cast<size_t>(k) * padded);
  for (int column = 0; column < columns; ++column) {
    const float* from = part.data + static_cast<size_t>(column) * k;
    for (int row = 0; row < k; ++row) {
      packed->data()[static_cast<size_t>(row) * padded + column] = from[row];
    }
  }
}

}  // namespace

BlockedProduct::BlockedProduct(const Arithmetic& arithmetic, WeightSource* source,
                               const FloatView& weight, int k, int n)
    : k_(k), n_(n), arithmetic_(arithmetic) {
  // Blocks of about the same width rather than a narrow last one.
  const int blocks = (n + kBlockColumns - 1) / kBlockColumns;
  const int width = RowLayout::RoundUp((n + blocks - 1) / blocks);
  const std::vector<int> row_counts = RowBuckets(ChunkRows(width));
  piece_rows_ = row_counts.back();
  AlignedBuffer packed;
  for (int first = 0; first < n; first += width) {
    Block block;
    block.first = first;
    block.columns = std::min(width, n - first);
    const int padded = RowLayout::RoundUp(block.columns);
    PackBlock(source, weight, k, first, block.columns, padded, &packed);
    RoundRow(arithmetic.rounding, packed.data(), packed.size());
    block.product =
        std::make_unique<Product>(arithmetic.products, packed.data(), k, padded, row_counts);
    piece_rows_ = std::min(piece_rows_, block.product->max_rows());
    blocks_.push_back(std::move(block));
  }
}

int BlockedProduct::group_rows() const {
  return blocks_.size() == 1 ? piece_rows_ : std::max(kGroupRows, piece_rows_);
}

size_t BlockedProduct::bytes() const {
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.product->bytes();
  return bytes;
}

void ProductThread::Add(const BlockedProduct& product) {
  const size_t rows = product.group_rows() + product.piece_rows();
  const size_t x_size = rows * product.k();
  if (product.arithmetic().products == ProductType::kBFloat16) {
    rounded_.AtLeast(x_size);
  } else {
    x_.AtLeast(x_size);
  }
  for (const BlockedProduct::Block& block : product.blocks()) {
    z_.AtLeast(static_cast<size_t>(block.product->max_rows()) * block.product->n());
    const ProductShape& shape = block.product->shape();
    runners_.try_emplace(&shape, shape);
  }
}

void ProductThread::LayOut(RunPlan* plan) {
  plan->Add(&x_);
  plan->Add(&rounded_);
  plan->Add(&z_);
}

const float* ProductThread::Prepare(const BlockedProduct& product, const float* x,
                                    const int32_t* which, int rows) {
  const Arithmetic& arithmetic = product.arithmetic();
  const size_t k = product.k();
  const bool converts = arithmetic.products == ProductType::kBFloat16;
  if (which != nullptr && rows > 0 && which[rows - 1] - which[0] == rows - 1) {
    x += which[0] * k;
    which = nullptr;
  }
  if (which == nullptr && converts) {
    ToBFloat16Row(x, rows * k, rounded_.data());
    return x;
  }
  if (which == nullptr && arithmetic.rounding == Rounding::kNone) return x;
  for (int row = 0; row < rows; ++row) {
    const float* from = x + (which == nullptr ? row : which[row]) * k;
    if (converts) {
      ToBFloat16Row(from, k, rounded_.data() + row * k);
    } else {
      std::copy_n(from, k, x_.data() + row * k);
    }
  }
  if (!converts) RoundRow(arithmetic.rounding, x_.data(), rows * k);
  return x_.data();
}

void ProductThread::Run(const BlockedProduct& product, const BlockedProduct::Block& block,
                        const float* x, const ProductPiece& piece) {
  ProductRunner& runner = runners_.at(&block.product->shape());
  const size_t from = static_cast<size_t>(piece.row) * product.k();
  if (product.arithmetic().products == ProductType::kBFloat16) {
    runner.Run(*block.product, rounded_.data() + from, piece.rows, piece.z);
  } else {
    runner.Run(*block.product, x + from, piece.rows, piece.z);
  }
}

}  // namespace sru::kernels::cpu
