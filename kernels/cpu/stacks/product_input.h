// What precedes the products of a layer: layer norm and the low-rank projection.
#ifndef SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_
#define SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_

#include <cstddef>
#include <memory>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16_rows.h"
#include "kernels/cpu/base/layer_norm.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/product.h"

namespace sru::kernels::cpu {

// Made once per worker and layer. Not thread-safe.
class ProductInput {
 public:
  ProductInput(const Layer& layer, int max_rows) : layer_(layer) {
    const size_t rows = static_cast<size_t>(max_rows) + kMaxChunkRows;
    if (layer.layer_norm == LayerNorm::kBefore) {
      normalized_ = AlignedBuffer(rows * layer.input.stride());
    }
    if (layer.projection != nullptr) {
      projected_ = AlignedBuffer(rows * layer.projection->n());
      projection_ = std::make_unique<ProductRunner>(*layer.projection);
    }
  }

  // x [rows][layer.input.stride()]; the result is x itself or is in this object.
  const float* Run(const float* x, int rows) {
    if (layer_.layer_norm == LayerNorm::kBefore) {
      NormalizeRows(layer_.input, layer_.norm.weight.data(), layer_.norm.bias.data(), x, rows,
                    normalized_.data());
      Round(normalized_.data(), rows, layer_.input.stride());
      x = normalized_.data();
    }
    if (projection_ != nullptr) {
      RunInChunks(*layer_.projection, *projection_, x, rows, projected_.data());
      Round(projected_.data(), rows, layer_.projection->n());
      x = projected_.data();
    }
    return x;
  }

  size_t bytes() const { return normalized_.bytes() + projected_.bytes(); }

 private:
  void Round(float* values, int rows, int stride) const {
    RoundRow(layer_.rounding, values, static_cast<size_t>(rows) * stride);
  }

  const Layer& layer_;
  AlignedBuffer normalized_;
  AlignedBuffer projected_;
  std::unique_ptr<ProductRunner> projection_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_
